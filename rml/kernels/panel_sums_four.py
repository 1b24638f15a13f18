"""From the sums of four tokens (panel_dot.dot_four) to their totals: panel_sums.py, with the factors read once.

h[sums + 512 c + 128 t + e] is the sum of piece c for token t; the totals of token t are at f[total + 128 t + e], those
of a K type's block at k[block + 256 t + e]. The sum of token t's activations is k[x + t * x_step], their scale
f[scale + t * scale_step] times `factor`.

Of planes of width 4 the sums are known modulo 2^16, and 8 times the sum of the activations lies within 32767 of them.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64


def less(low: i16, middle: i16) -> i32:
    """The sum whose low 16 bits are given, less `middle`: an i16 holds it. Said like this, it is one instruction."""
    return (((i32(low) - i32(middle)) & 65535) ^ 32768) - 32768


def eight_times(x: i32) -> i16:
    """8 x: the middle that `less` takes off, of a sum x of activations."""
    return i16(x * 8)


def pieces_at(h: vec[i16], p: i64) -> i32:
    """The sum of four pieces."""
    return i32(h[p]) + i32(h[p + 512]) + i32(h[p + 1024]) + i32(h[p + 1536])


def add_nibbles_four(
    h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    scale_step: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += (sum - 8 x) * d * scale: Q4_0."""
    x0: i32 = k[x]
    x1: i32 = k[x + x_step]
    x2: i32 = k[x + 2 * x_step]
    x3: i32 = k[x + 3 * x_step]
    m0: i16 = eight_times(x0)
    m1: i16 = eight_times(x1)
    m2: i16 = eight_times(x2)
    m3: i16 = eight_times(x3)
    s0: float = f[scale] * factor
    s1: float = f[scale + scale_step] * factor
    s2: float = f[scale + 2 * scale_step] * factor
    s3: float = f[scale + 3 * scale_step] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] += float(less(h[sums + e], m0)) * by * s0
        f[total + 128 + e] += float(less(h[sums + 128 + e], m1)) * by * s1
        f[total + 256 + e] += float(less(h[sums + 256 + e], m2)) * by * s2
        f[total + 384 + e] += float(less(h[sums + 384 + e], m3)) * by * s3


def add_nibbles_with_minimum_four(
    h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    scale_step: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += (sum * d + x * m) * scale: Q4_1."""
    x0: i32 = k[x]
    x1: i32 = k[x + x_step]
    x2: i32 = k[x + 2 * x_step]
    x3: i32 = k[x + 3 * x_step]
    m0: i16 = eight_times(x0)
    m1: i16 = eight_times(x1)
    m2: i16 = eight_times(x2)
    m3: i16 = eight_times(x3)
    s0: float = f[scale] * factor
    s1: float = f[scale + scale_step] * factor
    s2: float = f[scale + 2 * scale_step] * factor
    s3: float = f[scale + 3 * scale_step] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        least: float = read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] += (float(less(h[sums + e], m0) + i32(m0)) * by + float(x0) * least) * s0
        f[total + 128 + e] += (float(less(h[sums + 128 + e], m1) + i32(m1)) * by + float(x1) * least) * s1
        f[total + 256 + e] += (float(less(h[sums + 256 + e], m2) + i32(m2)) * by + float(x2) * least) * s2
        f[total + 384 + e] += (float(less(h[sums + 384 + e], m3) + i32(m3)) * by + float(x3) * least) * s3


def add_pieces_four(
    h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    scale_step: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += (sum - 16 x) * d * scale: Q5_0."""
    x0: i32 = k[x]
    x1: i32 = k[x + x_step]
    x2: i32 = k[x + 2 * x_step]
    x3: i32 = k[x + 3 * x_step]
    s0: float = f[scale] * factor
    s1: float = f[scale + scale_step] * factor
    s2: float = f[scale + 2 * scale_step] * factor
    s3: float = f[scale + 3 * scale_step] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] += float(pieces_at(h, sums + e) - 16 * x0) * by * s0
        f[total + 128 + e] += float(pieces_at(h, sums + 128 + e) - 16 * x1) * by * s1
        f[total + 256 + e] += float(pieces_at(h, sums + 256 + e) - 16 * x2) * by * s2
        f[total + 384 + e] += float(pieces_at(h, sums + 384 + e) - 16 * x3) * by * s3


def add_pieces_with_minimum_four(
    h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, kb: bytes, d: i64, f: vec[float], scale: i64,
    scale_step: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += (sum * d + x * m) * scale: Q5_1."""
    x0: i32 = k[x]
    x1: i32 = k[x + x_step]
    x2: i32 = k[x + 2 * x_step]
    x3: i32 = k[x + 3 * x_step]
    s0: float = f[scale] * factor
    s1: float = f[scale + scale_step] * factor
    s2: float = f[scale + 2 * scale_step] * factor
    s3: float = f[scale + 3 * scale_step] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        least: float = read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] += (float(pieces_at(h, sums + e)) * by + float(x0) * least) * s0
        f[total + 128 + e] += (float(pieces_at(h, sums + 128 + e)) * by + float(x1) * least) * s1
        f[total + 256 + e] += (float(pieces_at(h, sums + 256 + e)) * by + float(x2) * least) * s2
        f[total + 384 + e] += (float(pieces_at(h, sums + 384 + e)) * by + float(x3) * least) * s3


def add_bytes_four(
    k: vec[i32], sums: i64, kb: bytes, d: i64, f: vec[float], scale: i64, scale_step: i64, factor: float, total: i64,
    lanes: i64
) -> None:  # fmt: skip
    """total += sum * d * scale, of the sums k[sums + 128 t + e]: Q8_0."""
    s0: float = f[scale] * factor
    s1: float = f[scale + scale_step] * factor
    s2: float = f[scale + 2 * scale_step] * factor
    s3: float = f[scale + 3 * scale_step] * factor
    for e in range(lanes):
        by: float = read_f32_le(kb, (d + e) * 4)
        f[total + e] += float(k[sums + e] + k[sums + 512 + e]) * by * s0
        f[total + 128 + e] += float(k[sums + 128 + e] + k[sums + 640 + e]) * by * s1
        f[total + 256 + e] += float(k[sums + 256 + e] + k[sums + 768 + e]) * by * s2
        f[total + 384 + e] += float(k[sums + 384 + e] + k[sums + 896 + e]) * by * s3


def scale_four(
    width: i64, h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, scales: i64, block: i64, lanes: i64
) -> None:
    """block += sum * scale, and 128 later += x * minimum, x being a sum of two: a part of Q4_K and Q5_K."""
    x0: i32 = k[x] + k[x + 1]
    x1: i32 = k[x + x_step] + k[x + x_step + 1]
    x2: i32 = k[x + 2 * x_step] + k[x + 2 * x_step + 1]
    x3: i32 = k[x + 3 * x_step] + k[x + 3 * x_step + 1]
    if width == 4:
        m0: i16 = eight_times(x0)
        m1: i16 = eight_times(x1)
        m2: i16 = eight_times(x2)
        m3: i16 = eight_times(x3)
        for e in range(lanes):
            by: i32 = k[scales + e]
            k[block + e] += (less(h[sums + e], m0) + i32(m0)) * by
            k[block + 256 + e] += (less(h[sums + 128 + e], m1) + i32(m1)) * by
            k[block + 512 + e] += (less(h[sums + 256 + e], m2) + i32(m2)) * by
            k[block + 768 + e] += (less(h[sums + 384 + e], m3) + i32(m3)) * by
    else:
        for e in range(lanes):
            by = k[scales + e]
            k[block + e] += pieces_at(h, sums + e) * by
            k[block + 256 + e] += pieces_at(h, sums + 128 + e) * by
            k[block + 512 + e] += pieces_at(h, sums + 256 + e) * by
            k[block + 768 + e] += pieces_at(h, sums + 384 + e) * by
    for e in range(lanes):
        least: i32 = k[scales + lanes * 2 + e]
        k[block + 128 + e] += x0 * least
        k[block + 384 + e] += x1 * least
        k[block + 640 + e] += x2 * least
        k[block + 896 + e] += x3 * least


def scale_pieces_four(
    h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, offset: i32, scales: i64, block: i64, lanes: i64
) -> None:
    """block += (sum - offset * x) * scale of the first 16 positions and of the last, pieces 0 and 1: Q2_K, Q3_K."""
    x0: i32 = offset * k[x]
    y0: i32 = offset * k[x + 1]
    x1: i32 = offset * k[x + x_step]
    y1: i32 = offset * k[x + x_step + 1]
    x2: i32 = offset * k[x + 2 * x_step]
    y2: i32 = offset * k[x + 2 * x_step + 1]
    x3: i32 = offset * k[x + 3 * x_step]
    y3: i32 = offset * k[x + 3 * x_step + 1]
    for e in range(lanes):
        first: i32 = k[scales + e]
        last: i32 = k[scales + lanes + e]
        k[block + e] += (i32(h[sums + e]) - x0) * first + (i32(h[sums + 512 + e]) - y0) * last
        k[block + 256 + e] += (i32(h[sums + 128 + e]) - x1) * first + (i32(h[sums + 640 + e]) - y1) * last
        k[block + 512 + e] += (i32(h[sums + 256 + e]) - x2) * first + (i32(h[sums + 768 + e]) - y2) * last
        k[block + 768 + e] += (i32(h[sums + 384 + e]) - x3) * first + (i32(h[sums + 896 + e]) - y3) * last


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
    width: i64, minimum: i64, h: vec[i16], sums: i64, k: vec[i32], x: i64, x_step: i64, kb: bytes, d: i64,
    f: vec[float], scale: i64, scale_step: i64, factor: float, total: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a block of 32 positions into the totals."""
    if width == 4 and minimum == 0:
        add_nibbles_four(h, sums, k, x, x_step, kb, d, f, scale, scale_step, factor, total, lanes)
    elif width == 4:
        add_nibbles_with_minimum_four(h, sums, k, x, x_step, kb, d, f, scale, scale_step, factor, total, lanes)
    elif minimum == 0:
        add_pieces_four(h, sums, k, x, x_step, kb, d, f, scale, scale_step, factor, total, lanes)
    else:
        add_pieces_with_minimum_four(h, sums, k, x, x_step, kb, d, f, scale, scale_step, factor, total, lanes)
