"""The K types: blocks of 256 weights with integer scales of their own for every 32 (Q2_K, Q3_K, Q6_K: 16).

Q2_K,  84 bytes: 16 bytes with a 4-bit scale (low) and minimum (high), 64 bytes of bit pairs, f16 d, f16 dmin.
Q4_K, 144 bytes: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
Q5_K, 176 bytes: the same with 32 bytes of fifth bits before the nibbles: bit s of byte j is that of weight 32 s + j.
    weight = d * sc * q - dmin * m
Q3_K, 110 bytes: 32 bytes of third bits, 64 of bit pairs, 12 of 6-bit scales, f16 d. Bit 4 n + c of byte j of the third
bits is that of weight 128 n + 32 c + j.
    weight = d * (sc - 32) * (q - 4)
Q6_K, 210 bytes: 128 bytes of low nibbles, 64 of upper bit pairs, 16 int8 scales, f16 d.
    weight = d * sc * (q - 32)

The scales are integers, so a block is 256 integers sc * q times one float: `block_*` writes them as i16, and every path
takes them from there, one token, tiles or float64 (k_rows.py).
"""

from __future__ import annotations

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def block_q2_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = sc * q of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        scale: i64 = p + (part >> 1) * 8 + (part & 1)
        s0: i16 = i16(w[scale] & 15)
        s1: i16 = i16(w[scale + 2] & 15)
        s2: i16 = i16(w[scale + 4] & 15)
        s3: i16 = i16(w[scale + 6] & 15)
        for j in range(i64(16)):
            v: u8 = w[p + 16 + part * 16 + j]
            h[to + j] = i16(v & 3) * s0
            h[to + 32 + j] = i16((v >> 2) & 3) * s1
            h[to + 64 + j] = i16((v >> 4) & 3) * s2
            h[to + 96 + j] = i16(v >> 6) * s3


def scales_q3_k(wb: bytes, p: i64, half: i64) -> i64:
    """Eight 6-bit scales from the 12 bytes at p, one in each byte: parts 0 to 7 (half = 0) or 8 to 15 (half = 1).

    The first eight bytes hold the four low bits of parts 0 to 7 and 8 to 15, the last four the two high bits of all.
    """
    low: i64 = (read_i64_le(wb, p) >> (half * 4)) & 1085102592571150095  # 0x0f in each byte
    high: i32 = read_i32_le(wb, p + 8) >> i32(half * 4)
    first: i32 = (high & 50529027) << 4  # 0x03 in each byte
    second: i32 = (high & 202116108) << 2  # 0x0c in each byte
    return low | i64(first) | (i64(second) << 32)


def block_q3_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = (sc - 32) * (q - 4) of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        scales: i64 = scales_q3_k(wb, p + 96, part >> 1) >> ((part & 1) * 8)
        s0: i16 = i16(scales & 63) - 32
        s1: i16 = i16((scales >> 16) & 63) - 32
        s2: i16 = i16((scales >> 32) & 63) - 32
        s3: i16 = i16((scales >> 48) & 63) - 32
        third: i64 = p + (part & 1) * 16
        shift: i16 = i16((part >> 1) * 4)
        for j in range(i64(16)):
            v: u8 = w[p + 32 + part * 16 + j]
            bits: i16 = i16(w[third + j]) >> shift
            h[to + j] = (i16(v & 3) + ((bits & 1) << 2) - 4) * s0
            h[to + 32 + j] = (i16((v >> 2) & 3) + ((bits & 2) << 1) - 4) * s1
            h[to + 64 + j] = (i16((v >> 4) & 3) + (bits & 4) - 4) * s2
            h[to + 96 + j] = (i16(v >> 6) + ((bits & 8) >> 1) - 4) * s3


def scales_k4(wb: bytes, p: i64) -> i64:
    """The eight 6-bit scales of the 12 bytes at p, one in each byte of the result."""
    a: i32 = read_i32_le(wb, p)
    c: i32 = read_i32_le(wb, p + 8)
    low: i32 = a & 1061109567  # 0x3f in each byte
    high: i32 = (c & 252645135) | ((a >> 2) & 808464432)  # 0x0f and 0x30 in each byte
    return i64(low) | (i64(high) << 32)


def minima_k4(wb: bytes, p: i64) -> i64:
    """The eight 6-bit minima of the 12 bytes at p, one in each byte of the result."""
    b: i32 = read_i32_le(wb, p + 4)
    c: i32 = read_i32_le(wb, p + 8)
    low: i32 = b & 1061109567
    high: i32 = ((c >> 4) & 252645135) | ((b >> 2) & 808464432)
    return i64(low) | (i64(high) << 32)


def block_q4_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = sc * q of the block at byte p."""
    scales: i64 = scales_k4(wb, p + 4)
    for c in range(i64(4)):
        low: i16 = i16(scales & 255)
        high: i16 = i16((scales >> 8) & 255)
        scales >>= 16
        for j in range(i64(32)):
            h[out + c * 64 + j] = i16(w[p + 16 + c * 32 + j] & 15) * low
            h[out + c * 64 + 32 + j] = i16(w[p + 16 + c * 32 + j] >> 4) * high


def block_q5_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = sc * q of the block at byte p."""
    scales: i64 = scales_k4(wb, p + 4)
    for c in range(i64(4)):
        low: i16 = i16(scales & 255)
        high: i16 = i16((scales >> 8) & 255)
        scales >>= 16
        shift: i16 = i16(c * 2)
        for j in range(i64(32)):
            v: u8 = w[p + 48 + c * 32 + j]
            bits: i16 = (i16(w[p + 16 + j]) >> shift) << 4
            h[out + c * 64 + j] = (i16(v & 15) | (bits & 16)) * low
            h[out + c * 64 + 32 + j] = (i16(v >> 4) | ((bits & 32) >> 1)) * high


def block_q6_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = sc * (q - 32) of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        scale: i64 = p + 192 + (part >> 1) * 8 + (part & 1)
        s0: i16 = i16((i32(w[scale]) ^ 128) - 128)
        s1: i16 = i16((i32(w[scale + 2]) ^ 128) - 128)
        s2: i16 = i16((i32(w[scale + 4]) ^ 128) - 128)
        s3: i16 = i16((i32(w[scale + 6]) ^ 128) - 128)
        nibbles: i64 = p + (part >> 1) * 64 + (part & 1) * 16
        for j in range(i64(16)):
            a: u8 = w[nibbles + j]
            b: u8 = w[nibbles + 32 + j]
            top: u8 = w[p + 128 + part * 16 + j]
            h[to + j] = (i16((a & 15) | ((top & 3) << 4)) - 32) * s0
            h[to + 32 + j] = (i16((b & 15) | ((top & 12) << 2)) - 32) * s1
            h[to + 64 + j] = (i16((a >> 4) | (top & 48)) - 32) * s2
            h[to + 96 + j] = (i16((b >> 4) | ((top & 192) >> 2)) - 32) * s3


def dot_block(h: vec[i16], a: i64, b: i64) -> i32:
    """Sum of h[a + j] * h[b + j] over 256 positions."""
    total: i32 = 0
    for j in range(i64(256)):
        total += i32(h[a + j]) * i32(h[b + j])
    return total


def dot_minima(h: vec[i16], mins: i64, k: vec[i32], sums: i64) -> i32:
    """Sum over 16 parts s of h[mins + s] * k[sums + s]."""
    total: i32 = 0
    for s in range(i64(16)):
        total += i32(h[mins + s]) * k[sums + s]
    return total
