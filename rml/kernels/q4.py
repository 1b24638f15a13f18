"""Q4_0 and Q4_1: blocks of 32 weights, two to a byte; byte j holds weight j (low bits) and j + 16 (high bits).

Q4_0, 18 bytes: f16 d, 16 bytes; weight = d * (q - 8). Q4_1, 20 bytes: f16 d, f16 m, 16 bytes; weight = d * q + m.

Products are of unsigned q and int8 bytes, in two loops of 16 (see q8.py); the 8 is taken off with the activations' sum.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def matvec_q4_0(
    w: vec[u8], start: i64, first: i64, last: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], sums: i64,
    f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations x[at:]; layouts in matmul.matvec."""
    for r in range(first, last):
        p: i64 = start + r * blocks * 18
        total: float = 0.0
        for b in range(blocks):
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] & 15) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] >> 4) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            total += float(acc - 8 * k[sums + b]) * f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))] * f[scale + b]
            p += 18
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def matvec_q4_1(
    w: vec[u8], start: i64, first: i64, last: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], sums: i64,
    f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations x[at:]; layouts in matmul.matvec."""
    for r in range(first, last):
        p: i64 = start + r * blocks * 20
        total: float = 0.0
        for b in range(blocks):
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 4 + j] & 15) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 4 + j] >> 4) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
            m: float = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
            total += (float(acc) * d + float(k[sums + b]) * m) * f[scale + b]
            p += 20
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def unpack_q4_0(w: vec[u8], p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, half: i64) -> None:
    """h[out + b * 256 + j] = q - 8 of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        f[d + b * 8] = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        for j in range(i64(16)):
            h[out + b * 256 + j] = i16(i32(w[p + 2 + j] & 15) - 8)
        for j in range(i64(16)):
            h[out + b * 256 + 16 + j] = i16(i32(w[p + 2 + j] >> 4) - 8)
        p += 18


def unpack_q4_1(
    w: vec[u8], p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, m: i64, half: i64
) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8], f[m + b * 8] = its scale, minimum; from byte p."""
    for b in range(blocks):
        f[d + b * 8] = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        f[m + b * 8] = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
        for j in range(i64(16)):
            h[out + b * 256 + j] = i16(w[p + 4 + j] & 15)
        for j in range(i64(16)):
            h[out + b * 256 + 16 + j] = i16(w[p + 4 + j] >> 4)
        p += 20


def widen_q4_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], half: i64, out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 2 + j] & 15) - 8)
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 2 + j] >> 4) - 8)
        p += 18


def widen_q4_1(w: vec[u8], p: i64, blocks: i64, f: vec[float], half: i64, out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        m: float = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 4 + j] & 15)) + m
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 4 + j] >> 4)) + m
        p += 20
