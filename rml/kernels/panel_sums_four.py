"""From the sums of four tokens (panel_dot.dot_four) to their totals: panel_sums.py, with the factors read once.

h[sums + 128 t + e] is the sum for token t over 32 positions, or over the first 16 and 512 later the last 16; the totals
of token t are at f[total + 128 t + e], those of a K type's block at k[block + 256 t + e]. The sums of token t's
activations, of 16 positions each, are k[x + 2 t] and the next, of a K type k[x + 16 t]; their scale is f[scale + t]
times `factor`.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.fma import fma


def both(h: vec[i16], p: i64) -> i32:
    """The sum over both halves."""
    return i32(h[p]) + i32(h[p + 512])


def add_nibbles_four(
    h: vec[i16], sums: i64, kb: bytes, d: i64, f: vec[float], scale: i64, factor: float, total: i64,
    lanes: i64
) -> None:  # fmt: skip
    """total += sum * d * scale: Q4_0."""
    s0: float = f[scale] * factor
    s1: float = f[scale + 1] * factor
    s2: float = f[scale + 2] * factor
    s3: float = f[scale + 3] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] = fma(float(i32(h[sums + e])) * by, s0, f[total + e])
        f[total + 128 + e] = fma(float(i32(h[sums + 128 + e])) * by, s1, f[total + 128 + e])
        f[total + 256 + e] = fma(float(i32(h[sums + 256 + e])) * by, s2, f[total + 256 + e])
        f[total + 384 + e] = fma(float(i32(h[sums + 384 + e])) * by, s3, f[total + 384 + e])


def add_nibbles_with_minimum_four(
    middle: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += ((sum + middle * x) * d + x * m) * scale: Q4_1."""
    x0: i32 = k[x] + k[x + 1]
    x1: i32 = k[x + 2] + k[x + 3]
    x2: i32 = k[x + 4] + k[x + 5]
    x3: i32 = k[x + 6] + k[x + 7]
    s0: float = f[scale] * factor
    s1: float = f[scale + 1] * factor
    s2: float = f[scale + 2] * factor
    s3: float = f[scale + 3] * factor
    m0: i32 = middle * x0
    m1: i32 = middle * x1
    m2: i32 = middle * x2
    m3: i32 = middle * x3
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        least: float = read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] = fma(fma(float(i32(h[sums + e]) + m0), by, float(x0) * least), s0, f[total + e])
        f[total + 128 + e] = fma(fma(float(i32(h[sums + 128 + e]) + m1), by, float(x1) * least), s1, f[total + 128 + e])
        f[total + 256 + e] = fma(fma(float(i32(h[sums + 256 + e]) + m2), by, float(x2) * least), s2, f[total + 256 + e])
        f[total + 384 + e] = fma(fma(float(i32(h[sums + 384 + e]) + m3), by, float(x3) * least), s3, f[total + 384 + e])


def add_fives_four(
    h: vec[i16], sums: i64, kb: bytes, d: i64, f: vec[float], scale: i64, factor: float, total: i64,
    lanes: i64
) -> None:  # fmt: skip
    """total += sum * d * scale: Q5_0."""
    s0: float = f[scale] * factor
    s1: float = f[scale + 1] * factor
    s2: float = f[scale + 2] * factor
    s3: float = f[scale + 3] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] = fma(float(both(h, sums + e)) * by, s0, f[total + e])
        f[total + 128 + e] = fma(float(both(h, sums + 128 + e)) * by, s1, f[total + 128 + e])
        f[total + 256 + e] = fma(float(both(h, sums + 256 + e)) * by, s2, f[total + 256 + e])
        f[total + 384 + e] = fma(float(both(h, sums + 384 + e)) * by, s3, f[total + 384 + e])


def add_fives_with_minimum_four(
    middle: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += ((sum + middle * x) * d + x * m) * scale: Q5_1."""
    x0: i32 = k[x] + k[x + 1]
    x1: i32 = k[x + 2] + k[x + 3]
    x2: i32 = k[x + 4] + k[x + 5]
    x3: i32 = k[x + 6] + k[x + 7]
    s0: float = f[scale] * factor
    s1: float = f[scale + 1] * factor
    s2: float = f[scale + 2] * factor
    s3: float = f[scale + 3] * factor
    m0: i32 = middle * x0
    m1: i32 = middle * x1
    m2: i32 = middle * x2
    m3: i32 = middle * x3
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        least: float = read_f32_le(kb, (d + lanes + e) * 4)
        t0: float = fma(float(both(h, sums + e) + m0), by, float(x0) * least)
        f[total + e] = fma(t0, s0, f[total + e])
        t1: float = fma(float(both(h, sums + 128 + e) + m1), by, float(x1) * least)
        f[total + 128 + e] = fma(t1, s1, f[total + 128 + e])
        t2: float = fma(float(both(h, sums + 256 + e) + m2), by, float(x2) * least)
        f[total + 256 + e] = fma(t2, s2, f[total + 256 + e])
        t3: float = fma(float(both(h, sums + 384 + e) + m3), by, float(x3) * least)
        f[total + 384 + e] = fma(t3, s3, f[total + 384 + e])


def add_bytes_four(
    k: vec[i32], sums: i64, kb: bytes, d: i64, f: vec[float], scale: i64, factor: float, total: i64,
    lanes: i64
) -> None:  # fmt: skip
    """total += sum * d * scale, of the sums k[sums + 128 t + e]: Q8_0."""
    s0: float = f[scale] * factor
    s1: float = f[scale + 1] * factor
    s2: float = f[scale + 2] * factor
    s3: float = f[scale + 3] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] = fma(float(k[sums + e]) * by, s0, f[total + e])
        f[total + 128 + e] = fma(float(k[sums + 128 + e]) * by, s1, f[total + 128 + e])
        f[total + 256 + e] = fma(float(k[sums + 256 + e]) * by, s2, f[total + 256 + e])
        f[total + 384 + e] = fma(float(k[sums + 384 + e]) * by, s3, f[total + 384 + e])


def scale_four(
    width: i64, middle: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, scales: i64, block: i64,
    lanes: i64
) -> None:  # fmt: skip
    """block += (sum + middle * x) * scale, and 128 later += x * minimum: a part of Q4_K and Q5_K."""
    x0: i32 = k[x] + k[x + 1]
    x1: i32 = k[x + 16] + k[x + 17]
    x2: i32 = k[x + 32] + k[x + 33]
    x3: i32 = k[x + 48] + k[x + 49]
    m0: i32 = middle * x0
    m1: i32 = middle * x1
    m2: i32 = middle * x2
    m3: i32 = middle * x3
    if width == 4:
        for e in range(lanes):
            by: i32 = k[scales + e]
            k[block + e] += (i32(h[sums + e]) + m0) * by
            k[block + 256 + e] += (i32(h[sums + 128 + e]) + m1) * by
            k[block + 512 + e] += (i32(h[sums + 256 + e]) + m2) * by
            k[block + 768 + e] += (i32(h[sums + 384 + e]) + m3) * by
    else:
        for e in range(lanes):
            by = k[scales + e]
            k[block + e] += (both(h, sums + e) + m0) * by
            k[block + 256 + e] += (both(h, sums + 128 + e) + m1) * by
            k[block + 512 + e] += (both(h, sums + 256 + e) + m2) * by
            k[block + 768 + e] += (both(h, sums + 384 + e) + m3) * by
    for e in range(lanes):
        least: i32 = k[scales + lanes * 2 + e]
        k[block + 128 + e] += x0 * least
        k[block + 384 + e] += x1 * least
        k[block + 640 + e] += x2 * least
        k[block + 896 + e] += x3 * least


def scale_threes_four(
    back: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, scales: i64, block: i64, lanes: i64
) -> None:
    """block += (sum + back * x) * scale of the first 16 positions and of the last: Q2_K, Q3_K."""
    x0: i32 = back * k[x]
    y0: i32 = back * k[x + 1]
    x1: i32 = back * k[x + 16]
    y1: i32 = back * k[x + 17]
    x2: i32 = back * k[x + 32]
    y2: i32 = back * k[x + 33]
    x3: i32 = back * k[x + 48]
    y3: i32 = back * k[x + 49]
    for e in range(lanes):
        first: i32 = k[scales + e]
        last: i32 = k[scales + lanes + e]
        k[block + e] += (i32(h[sums + e]) + x0) * first + (i32(h[sums + 512 + e]) + y0) * last
        k[block + 256 + e] += (i32(h[sums + 128 + e]) + x1) * first + (i32(h[sums + 640 + e]) + y1) * last
        k[block + 512 + e] += (i32(h[sums + 256 + e]) + x2) * first + (i32(h[sums + 768 + e]) + y2) * last
        k[block + 768 + e] += (i32(h[sums + 384 + e]) + x3) * first + (i32(h[sums + 896 + e]) + y3) * last


def scale_halves_four(k: vec[i32], sums: i64, scales: i64, block: i64, lanes: i64) -> None:
    """block += sum * scale of the first 16 positions, k[sums + 128 t + e], and of the last, 512 later: Q6_K."""
    for e in range(lanes):
        first: i32 = k[scales + e]
        last: i32 = k[scales + lanes + e]
        k[block + e] += k[sums + e] * first + k[sums + 512 + e] * last
        k[block + 256 + e] += k[sums + 128 + e] * first + k[sums + 640 + e] * last
        k[block + 512 + e] += k[sums + 256 + e] * first + k[sums + 768 + e] * last
        k[block + 768 + e] += k[sums + 384 + e] * first + k[sums + 896 + e] * last


def add_four(
    width: i64, minimum: i64, middle: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, kb: bytes, d: i64,
    f: vec[float], scale: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a block of 32 positions into the totals."""
    if width == 4 and minimum == 0:
        add_nibbles_four(h, sums, kb, d, f, scale, factor, total, lanes)
    elif width == 4:
        add_nibbles_with_minimum_four(
            middle, h, sums, k, x, kb, d, f, scale, factor, total, lanes
        )  # fmt: skip
    elif minimum == 0:
        add_fives_four(h, sums, kb, d, f, scale, factor, total, lanes)
    else:
        add_fives_with_minimum_four(
            middle, h, sums, k, x, kb, d, f, scale, factor, total, lanes
        )  # fmt: skip
