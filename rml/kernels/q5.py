"""Q5_0 and Q5_1: Q4's nibbles plus a fifth bit of each weight, bit j of 32 in four bytes.

Q5_0, 22 bytes: f16 d, 4 bytes of fifth bits, 16 bytes of nibbles; weight = d * (q - 16).
Q5_1, 24 bytes: f16 d, f16 m, the same; weight = d * q + m.
"""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.prefetch import AHEAD, prefetch


def dot_q5(w: vec[u8], wb: bytes, p: i64, h: vec[i16], x: i64) -> i32:
    """Sum of q * h over one block; p is the byte of its fifth bits.

    Two sums, so that the compiler adds each up in one piece; the bit tests become a mask loaded from memory.
    """
    bits: i32 = read_i32_le(wb, p)
    high: i32 = bits >> 16
    total: i32 = 0
    for j in range(i64(16)):
        a: i16 = i16(w[p + 4 + j] & 15)
        if bits & (i32(1) << i32(j)) != 0:
            a |= 16
        total += i32(a) * i32(h[x + j])
    rest: i32 = 0
    for j in range(i64(16)):
        c: i16 = i16(w[p + 4 + j] >> 4)
        if high & (i32(1) << i32(j)) != 0:
            c |= 16
        rest += i32(c) * i32(h[x + 16 + j])
    return total + rest


def sums_q5_0(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64, k: vec[i32], out: i64,
    fi: vec[i64], d: i64
) -> None:  # fmt: skip
    """Row r of the rows from byte p: k[out + 8 b + r] = sum of q * h[hx + 32 b :], fi[d + 8 b + r] = bits of d."""
    for r in range(rows):
        for b in range(blocks):
            prefetch(wb, p + AHEAD)
            k[out + b * 8 + r] = dot_q5(w, wb, p + 2, h, hx + b * 32)
            fi[d + b * 8 + r] = fi[i64(read_i32_le(wb, p) & 65535)]
            p += 22


def sums_q5_1(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64, k: vec[i32], out: i64,
    fi: vec[i64], d: i64, m: i64
) -> None:  # fmt: skip
    """As sums_q5_0, and fi[m + 8 b + r] = the bits of m."""
    for r in range(rows):
        for b in range(blocks):
            prefetch(wb, p + AHEAD)
            k[out + b * 8 + r] = dot_q5(w, wb, p + 4, h, hx + b * 32)
            both: i32 = read_i32_le(wb, p)
            fi[d + b * 8 + r] = fi[i64(both & 65535)]
            fi[m + b * 8 + r] = fi[i64((both >> 16) & 65535)]
            p += 24


def unpack_block(w: vec[u8], p: i64, h: vec[i16], out: i64, offset: i32) -> None:
    """h[out + j] = q - offset of one block; p is the byte of its fifth bits."""
    bits: i32 = i32(w[p]) | (i32(w[p + 1]) << 8)
    for j in range(i64(16)):
        h[out + j] = i16((i32(w[p + 4 + j] & 15) | (((bits >> i32(j)) & 1) << 4)) - offset)
    bits = i32(w[p + 2]) | (i32(w[p + 3]) << 8)
    for j in range(i64(16)):
        h[out + 16 + j] = i16((i32(w[p + 4 + j] >> 4) | (((bits >> i32(j)) & 1) << 4)) - offset)


def unpack_q5_0(w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64) -> None:
    """h[out + b * 256 + j] = q - 16 of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        prefetch(wb, p + AHEAD)
        f[d + b * 8] = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        unpack_block(w, p + 2, h, out + b * 256, 16)
        p += 22


def unpack_q5_1(
    w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, m: i64
) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8], f[m + b * 8] = its scale, minimum; from byte p."""
    for b in range(blocks):
        prefetch(wb, p + AHEAD)
        f[d + b * 8] = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        f[m + b * 8] = f[i64(w[p + 2]) | (i64(w[p + 3]) << 8)]
        unpack_block(w, p + 4, h, out + b * 256, 0)
        p += 24


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
