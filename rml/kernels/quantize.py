"""Activations rounded to int8, one scale per group of 32 positions (of 256 for the K types).

    m = max |x|;  scale = m / 127;  q = round-half-even(x * (127 / m)), 0 where m = 0

An infinity or a NaN among the x makes the scale NaN and every q of the group 0: it reaches every product and is not
lost in a rounding. The arenas: f float64, with fb and fi the same memory as bytes and i64; h i16; k i32.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f64_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

MAGIC: Final = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which the low bits of the sum then hold


def parts_of(group: i64) -> i64:
    """Sums of q per group: one for a group of 32, sixteen (of 16 positions each) for a group of 256."""
    if group == 256:
        return i64(16)
    return i64(1)


def peak_bits(fb: bytes, x: i64, count: i64) -> i64:
    """The bits of the largest |f[x + j]|, j < count: positive floats are ordered as their bits are."""
    low: i64 = 4611686018427387903
    magnitude: i64 = low * 2 + 1  # all bits but the sign; literals of 2^62 and more would be objects
    peak: i64 = 0
    for j in range(count):
        v: i64 = read_i64_le(fb, (x + j) * 8) & magnitude
        if v > peak:
            peak = v
    return peak


def round_values(f: vec[float], x: i64, count: i64, inverse: float, out: i64) -> None:
    """f[out + j] = f[x + j] * inverse, rounded to an integer, + MAGIC."""
    for j in range(count):
        f[out + j] = f[x + j] * inverse + MAGIC


def low_bytes(fb: bytes, x: i64, count: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = the integer that f[x + j] - MAGIC is."""
    for j in range(count):
        h[out + j] = i16(((read_i64_le(fb, (x + j) * 8) & 255) ^ 128) - 128)


def sum_of(h: vec[i16], x: i64, count: i64) -> i32:
    """The sum of h[x + j], j < count."""
    total: i32 = 0
    for j in range(count):
        total += i32(h[x + j])
    return total


def round_group(f: vec[float], fb: bytes, fi: vec[i64], x: i64, group: i64, h: vec[i16], out: i64, fs: i64) -> float:
    """h[out + j] = q of one group; returns its scale. f[fs : fs + group] is scratch."""
    peak: i64 = peak_bits(fb, x, group)
    part: i64 = 4609434218613702656
    infinity: i64 = part * 2  # as bits, 2047 * 2^52; those of a NaN are larger
    if peak == 0 or peak >= infinity:
        for j in range(group):
            h[out + j] = 0
        zero: float = 0.0
        if peak != 0:
            fi[fs] = infinity
            zero *= read_f64_le(fb, fs * 8)
        return zero
    fi[fs] = peak
    m: float = read_f64_le(fb, fs * 8)
    round_values(f, x, group, 127.0 / m, fs)
    low_bytes(fb, fs, group, h, out)
    return m / 127.0


def pack_bytes(h: vec[i16], x: i64, count: i64, hu: vec[u8], out: i64) -> None:
    """hu[out + j] = the int8 h[x + j], as a byte."""
    for j in range(count):
        hu[out + j] = u8(i32(h[x + j]) & 255)


def quantize_row(
    f: vec[float], fb: bytes, fi: vec[i64], x: i64, cols: i64, group: i64, h: vec[i16], hu: vec[u8], hx: i64,
    k: vec[i32], sums: i64, scale: i64, fs: i64
) -> None:  # fmt: skip
    """Rounds one token, f[x + position], for matmul.matvec. group: matmul.group_of of the matrix's type, not 0.

    Writes h[hx + position] = q and the same as bytes, hu[2 * (hx + cols) + position], where hu is the same memory as h
    (unsigned weights times int8 bytes are one instruction, vpdpbusd); f[scale + g] = the group's scale; k[sums + s] =
    the sums of q, each of 32 positions (of 16 where group is 256). A row takes 2 * cols entries of h.
    f[fs : fs + group] is scratch.
    """
    parts: i64 = parts_of(group)
    size: i64 = group // parts
    for g in range(cols // group):
        f[scale + g] = round_group(f, fb, fi, x + g * group, group, h, hx + g * group, fs)
        for s in range(parts):
            k[sums + g * parts + s] = sum_of(h, hx + g * group + s * size, size)
    pack_bytes(h, hx, cols, hu, (hx + cols) * 2)


def place(h: vec[i16], x: i64, count: i64, out: i64) -> None:
    """h[out + 64 p], h[out + 64 p + 1] = h[x + 2 p], h[x + 2 p + 1] for `count` positions: a token's lane of a tile."""
    for p in range(count >> 1):
        h[out + p * 64] = h[x + p * 2]
        h[out + p * 64 + 1] = h[x + p * 2 + 1]


def quantize_lane(
    f: vec[float], fb: bytes, fi: vec[i64], x: i64, cols: i64, group: i64, h: vec[i16], out: i64,
    k: vec[i32], sums: i64, scale: i64, hs: i64, fs: i64
) -> None:  # fmt: skip
    """One token as quantize_row, but into a lane: h as `place`, f[scale + g * 32], k[sums + s * 32].

    x < 0 stands for no token: zeros. Scratch: f[fs : fs + group], h[hs : hs + group].
    """
    parts: i64 = parts_of(group)
    size: i64 = group // parts
    for g in range(cols // group):
        if x < 0:
            f[scale + g * 32] = 0.0
            for j in range(group):
                h[hs + j] = 0
        else:
            f[scale + g * 32] = round_group(f, fb, fi, x + g * group, group, h, hs, fs)
        for s in range(parts):
            k[sums + (g * parts + s) * 32] = sum_of(h, hs + s * size, size)
        place(h, hs, group, out + g * group * 32)


def tile_size(cols: i64) -> i64:
    """Entries of h that a tile of 32 tokens takes."""
    return cols * 32


def quantize_tile(
    f: vec[float], fb: bytes, fi: vec[i64], x: i64, xstride: i64, tokens: i64, cols: i64, group: i64,
    h: vec[i16], hx: i64, k: vec[i32], sums: i64, scale: i64, hs: i64, fs: i64
) -> None:  # fmt: skip
    """One tile: f[x + t * xstride + position] for tokens t < `tokens` (1..32) into its lane t, zeros in the others.

    h[hx + 64 p + 2 t + i] = q of position 2 p + i of token t; f[scale + g * 32 + t] the scales, k[sums + s * 32 + t]
    the sums. A tile takes tile_size entries of h, (cols / group) * 32 of f, (cols / 32) * 32 of k ((cols / 16) * 32
    for group 256); matmul.tile expects those of one activation matrix one after another in each arena. Scratch:
    f[fs : fs + group], h[hs : hs + group].
    """
    for lane in range(i64(32)):
        token: i64 = -1
        if lane < tokens:
            token = x + lane * xstride
        quantize_lane(f, fb, fi, token, cols, group, h, hx + lane * 2, k, sums + lane, scale + lane, hs, fs)
