"""Q8_0, Q4_0, Q4_1, Q5_0, Q5_1: rows of blocks of 32 weights, as they lie in the file, widened to float64.

Q8_0, 34 bytes: f16 d, 32 int8 q; weight = d * q.
Q4_0, 18 bytes: f16 d, 16 bytes; byte j holds q of weight j (low bits) and j + 16 (high bits); weight = d * (q - 8).
Q4_1, 20 bytes: f16 d, f16 m, the same; weight = d * q + m.
Q5_0, 22 bytes: f16 d, 4 bytes of fifth bits, bit j of 32 that of weight j, Q4's nibbles; weight = d * (q - 16).
Q5_1, 24 bytes: f16 d, f16 m, the same; weight = d * q + m.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def widen_q8_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(32)):
            f[out + b * 32 + j] = d * float((i32(w[p + 2 + j]) ^ 128) - 128)
        p += 34


def widen_q4_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 2 + j] & 15) - 8)
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 2 + j] >> 4) - 8)
        p += 18


def widen_q4_1(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        m: float = f[i64(w[p + 2]) | (i64(w[p + 3]) << 8)]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 4 + j] & 15)) + m
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 4 + j] >> 4)) + m
        p += 20


def unpack_block(w: vec[u8], p: i64, h: vec[i16], out: i64, offset: i32) -> None:
    """h[out + j] = q - offset of one block; p is the byte of its fifth bits."""
    bits: i32 = i32(w[p]) | (i32(w[p + 1]) << 8)
    for j in range(i64(16)):
        h[out + j] = i16((i32(w[p + 4 + j] & 15) | (((bits >> i32(j)) & 1) << 4)) - offset)
    bits = i32(w[p + 2]) | (i32(w[p + 3]) << 8)
    for j in range(i64(16)):
        h[out + 16 + j] = i16((i32(w[p + 4 + j] >> 4) | (((bits >> i32(j)) & 1) << 4)) - offset)


def widen_q5(w: vec[u8], p: i64, blocks: i64, minimum: i64, h: vec[i16], hs: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of the blocks from byte p, in float64; minimum = 1 for Q5_1. h[hs : hs + 32] is scratch."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        if minimum != 0:
            m: float = f[i64(w[p + 2]) | (i64(w[p + 3]) << 8)]
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
