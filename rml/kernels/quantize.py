"""Activations rounded to int8, one scale per group of 32 positions (of 256 for the K types).

    m = max |x|;  scale = m / 127;  q = round-half-even(x * (127 / m)), 0 where m = 0

An infinity or a NaN among the x makes the scale NaN, so that it reaches every product and is not lost in a rounding.
The rounding adds 1.5 * 2^52 and reads the integer in the low bits of the sum through `fb`, the same memory as `f`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

MAGIC: Final = 6755399441055744.0  # 1.5 * 2^52: the unit in the last place of the sum is 1


def round_group(f: vec[float], x: i64, count: i64, fs: i64) -> float:
    """f[fs + j] = MAGIC + the rounded value of f[x + j]; returns the scale. `count` is a multiple of 32.

    f[fs + count : fs + count + 64] is scratch.
    """
    top: i64 = fs + count
    bad: i64 = top + 32
    for t in range(i64(32)):
        f[top + t] = 0.0
        f[bad + t] = 0.0
    for b in range(count >> 5):
        for t in range(i64(32)):
            v: float = f[x + b * 32 + t]
            f[bad + t] += v * 0.0
            if v < 0.0:
                v = -v
            if v > f[top + t]:
                f[top + t] = v
    m: float = 0.0
    z: float = 0.0
    for t in range(i64(32)):
        z += f[bad + t]
        if f[top + t] > m:
            m = f[top + t]
    inverse: float = 0.0
    if m > 0.0:
        inverse = 127.0 / m
    for j in range(count):
        f[fs + j] = f[x + j] * inverse + MAGIC
    return m / 127.0 + z


def parts_of(group: i64) -> i64:
    """Sums of q per group: one for a group of 32, sixteen (of 16 positions each) for a group of 256."""
    if group == 256:
        return i64(16)
    return i64(1)


def quantize_row(
    f: vec[float], fb: bytes, x: i64, cols: i64, group: i64, h: vec[i16], hx: i64, k: vec[i32], sums: i64, scale: i64,
    fs: i64
) -> None:  # fmt: skip
    """Rounds one token, f[x + position], for matmul.matvec. group: matmul.group_of of the matrix's type, not 0.

    Writes h[hx + position] = q, f[scale + g] = the group's scale, k[sums + s] = the sums of q, each of 32 positions
    (of 16 where group is 256). f[fs : fs + group + 64] is scratch; fb is the same memory as f.
    """
    parts: i64 = parts_of(group)
    size: i64 = group // parts
    for g in range(cols // group):
        f[scale + g] = round_group(f, x + g * group, group, fs)
        to: i64 = hx + g * group
        for j in range(group):
            h[to + j] = i16(((read_i64_le(fb, (fs + j) * 8) & 255) ^ 128) - 128)
        for s in range(parts):
            total: i32 = 0
            for j in range(size):
                total += i32(h[to + s * size + j])
            k[sums + g * parts + s] = total


def quantize_lane(
    f: vec[float], fb: bytes, x: i64, cols: i64, group: i64, a: vec[u8], ax: i64, k: vec[i32], sums: i64, scale: i64,
    fs: i64
) -> None:  # fmt: skip
    """Rounds one token, f[x + position], into one lane of a tile of 32 tokens for matmul.tile.

    ax, sums and scale are the tile's, plus the lane (0..31). Writes a[ax + position * 32] = q + 128,
    f[scale + g * 32] = the group's scale, k[sums + s * 32] = the sums of q (as quantize_row). Scratch as quantize_row.
    """
    parts: i64 = parts_of(group)
    size: i64 = group // parts
    for g in range(cols // group):
        f[scale + g * 32] = round_group(f, x + g * group, group, fs)
        to: i64 = ax + g * group * 32
        for s in range(parts):
            total: i32 = 0
            for j in range(size):
                q: i32 = ((i32(read_i64_le(fb, (fs + s * size + j) * 8) & 255)) ^ 128) - 128
                total += q
                a[to + (s * size + j) * 32] = u8(q + 128)
            k[sums + (g * parts + s) * 32] = total


def empty_lane(f: vec[float], cols: i64, group: i64, a: vec[u8], ax: i64, k: vec[i32], sums: i64, scale: i64) -> None:
    """Makes one lane of a tile zero: every lane that holds no token must be. Offsets as quantize_lane."""
    parts: i64 = parts_of(group)
    for j in range(cols):
        a[ax + j * 32] = 128
    for g in range(cols // group):
        f[scale + g * 32] = 0.0
    for s in range(cols // group * parts):
        k[sums + s * 32] = 0


def quantize_tile(
    f: vec[float], fb: bytes, x: i64, xstride: i64, tokens: i64, cols: i64, group: i64, a: vec[u8], ax: i64,
    k: vec[i32], sums: i64, scale: i64, fs: i64
) -> None:  # fmt: skip
    """One tile: f[x + t * xstride + position] for tokens t < `tokens` (at most 32) into its lane t, zero in the others.

    A tile takes cols * 32 entries of a, cols / group * 32 of f, cols / 32 * 32 (group 256: cols / 16 * 32) of k;
    matmul.tile expects the tiles of one activation matrix one after another in each arena.
    """
    for t in range(i64(32)):
        if t < tokens:
            quantize_lane(f, fb, x + t * xstride, cols, group, a, ax + t, k, sums + t, scale + t, fs)
        else:
            empty_lane(f, cols, group, a, ax + t, k, sums + t, scale + t)
