"""Q5_0 and Q5_1: Q4's nibbles plus a fifth bit of each weight, bit j of 32 in four bytes.

Q5_0, 22 bytes: f16 d, 4 bytes of fifth bits, 16 bytes of nibbles; weight = d * (q - 16).
Q5_1, 24 bytes: f16 d, f16 m, the same; weight = d * q + m.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def dot_q5(w: vec[u8], p: i64, h: vec[i16], x: i64, offset: i32) -> i32:
    """Sum of (q - offset) * h over one block; p is the byte of its fifth bits."""
    low: i32 = i32(w[p]) | (i32(w[p + 1]) << 8)
    high: i32 = i32(w[p + 2]) | (i32(w[p + 3]) << 8)
    total: i32 = 0
    for j in range(i64(16)):
        bit: i32 = i32(1) << i32(j)
        a: u8 = w[p + 4 + j] & 15
        b: u8 = w[p + 4 + j] >> 4
        if low & bit != 0:
            a |= 16
        if high & bit != 0:
            b |= 16
        total += (i32(a) - offset) * i32(h[x + j])
        total += (i32(b) - offset) * i32(h[x + 16 + j])
    return total


def unpack_block(w: vec[u8], p: i64, h: vec[i16], out: i64, offset: i32) -> None:
    """h[out + j] = q - offset of one block; p is the byte of its fifth bits."""
    bits: i32 = i32(w[p]) | (i32(w[p + 1]) << 8)
    for j in range(i64(16)):
        h[out + j] = i16((i32(w[p + 4 + j] & 15) | (((bits >> i32(j)) & 1) << 4)) - offset)
    bits = i32(w[p + 2]) | (i32(w[p + 3]) << 8)
    for j in range(i64(16)):
        h[out + 16 + j] = i16((i32(w[p + 4 + j] >> 4) | (((bits >> i32(j)) & 1) << 4)) - offset)


def matvec_q5_0(
    w: vec[u8], start: i64, first: i64, last: i64, blocks: i64, h: vec[i16], hx: i64,
    f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations; layouts in matmul.matvec."""
    for r in range(first, last):
        p: i64 = start + r * blocks * 22
        total: float = 0.0
        for b in range(blocks):
            acc: i32 = dot_q5(w, p + 2, h, hx + b * 32, 16)
            total += float(acc) * f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))] * f[scale + b]
            p += 22
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def matvec_q5_1(
    w: vec[u8], start: i64, first: i64, last: i64, blocks: i64, h: vec[i16], hx: i64, k: vec[i32], sums: i64,
    f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations; layouts in matmul.matvec."""
    for r in range(first, last):
        p: i64 = start + r * blocks * 24
        total: float = 0.0
        for b in range(blocks):
            acc: i32 = dot_q5(w, p + 4, h, hx + b * 32, 0)
            d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
            m: float = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
            total += (float(acc) * d + float(k[sums + b]) * m) * f[scale + b]
            p += 24
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def unpack_q5_0(w: vec[u8], p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, half: i64) -> None:
    """h[out + b * 256 + j] = q - 16 of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        f[d + b * 8] = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        unpack_block(w, p + 2, h, out + b * 256, 16)
        p += 22


def unpack_q5_1(
    w: vec[u8], p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, m: i64, half: i64
) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8], f[m + b * 8] = its scale, minimum; from byte p."""
    for b in range(blocks):
        f[d + b * 8] = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        f[m + b * 8] = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
        unpack_block(w, p + 4, h, out + b * 256, 0)
        p += 24


def widen_q5(
    w: vec[u8], p: i64, blocks: i64, minimum: i64, h: vec[i16], hs: i64, f: vec[float], half: i64, out: i64
) -> None:
    """f[out + j] = weight j of the blocks from byte p, in float64; minimum = 1 for Q5_1. h[hs : hs + 32] is scratch."""
    for b in range(blocks):
        d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        if minimum != 0:
            m: float = f[half + (i64(w[p + 2]) | (i64(w[p + 3]) << 8))]
            unpack_block(w, p + 4, h, hs, 0)
            for j in range(i64(32)):
                f[out + j] = float(i32(h[hs + j])) * d + m
            p += 24
        else:
            unpack_block(w, p + 2, h, hs, 16)
            for j in range(i64(32)):
                f[out + j] = float(i32(h[hs + j])) * d
            p += 22
        out += 32
