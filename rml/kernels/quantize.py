"""Activations rounded to int8, one scale per group of 32 positions (of 256 for the K types).

    m = max |x|;  scale = m / 127;  q = round-half-even(x * (127 / m)), 0 where m = 0

An infinity or a NaN among the x makes the scale NaN and every q of the group 0: it reaches every product and is not
lost in a rounding. The arenas: f float64, with fb and fi the same memory as bytes and i64; hu u8; k i32.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f64_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64, u8

MAGIC: Final = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which the low bits of the sum then hold
PART: Final = 16  # positions whose q are added up: half of a block of 32, a sixteenth of one of 256


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


def low_bytes(fb: bytes, x: i64, count: i64, hu: vec[u8], out: i64) -> None:
    """hu[out + j] = the int8 integer that f[x + j] - MAGIC is, as a byte."""
    for j in range(count):
        hu[out + j] = u8(read_i64_le(fb, (x + j) * 8) & 255)


def sum_of(hu: vec[u8], x: i64, count: i64) -> i32:
    """The sum of the int8 bytes hu[x + j], j < count."""
    total: i32 = 0
    for j in range(count):
        total += (i32(hu[x + j]) ^ 128) - 128
    return total


def round_group(f: vec[float], fb: bytes, fi: vec[i64], x: i64, group: i64, hu: vec[u8], out: i64, fs: i64) -> float:
    """hu[out + j] = q of one group; returns its scale. f[fs : fs + group] is scratch."""
    peak: i64 = peak_bits(fb, x, group)
    part: i64 = 4609434218613702656
    infinity: i64 = part * 2  # as bits, 2047 * 2^52; those of a NaN are larger
    if peak == 0 or peak >= infinity:
        for j in range(group):
            hu[out + j] = 0
        zero: float = 0.0
        if peak != 0:
            fi[fs] = infinity
            zero *= read_f64_le(fb, fs * 8)
        return zero
    fi[fs] = peak
    m: float = read_f64_le(fb, fs * 8)
    round_values(f, x, group, 127.0 / m, fs)
    low_bytes(fb, fs, group, hu, out)
    return m / 127.0


def quantize_row(
    f: vec[float], fb: bytes, fi: vec[i64], x: i64, cols: i64, group: i64, row: i64, rows: i64, hu: vec[u8], hx: i64,
    k: vec[i32], sums: i64, scale: i64, fs: i64
) -> None:  # fmt: skip
    """Rounds row `row` of `rows`, f[x + position]. group: kinds.group_of of the matrix's type, not 0.

    The same group of all rows lies together, for they are multiplied one after another: with i = g * rows + row,
    hu[hx + i * group + j] = q, an int8 byte; f[scale + i] = the group's scale; k[sums + (i * group / PART) + s] = the
    sums of q, each of PART positions. f[fs : fs + group] is scratch.
    """
    parts: i64 = group // PART
    for g in range(cols // group):
        i: i64 = g * rows + row
        f[scale + i] = round_group(f, fb, fi, x + g * group, group, hu, hx + i * group, fs)
        for s in range(parts):
            k[sums + i * parts + s] = sum_of(hu, hx + i * group + s * PART, PART)
