"""Q4_K, Q5_K, Q6_K: blocks of 256 weights with integer scales of their own for every 32 (Q6_K: 16).

Q4_K, 144 bytes: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
Q5_K, 176 bytes: the same with 32 bytes of fifth bits before the nibbles: bit s of byte j is that of weight 32 s + j.
    weight = d * sc * q - dmin * m
Q6_K, 210 bytes: 128 bytes of low nibbles, 64 of upper bit pairs, 16 int8 scales, f16 d.
    weight = d * sc * (q - 32)

The scales are integers, so a block is 256 integers sc * q (Q6_K: sc * (q - 32)) times one float: `block_*` writes them
as i16, and every path, one token, tiles or float64, takes them from there (k_rows.py).
"""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def scales_k4(wb: bytes, p: i64, h: vec[i16], mins: i64, k: vec[i32], ks: i64) -> None:
    """k[ks + s] = the 6-bit scale of part s of 8, h[mins + 2s] = h[mins + 2s + 1] = its minimum; 12 bytes from p."""
    a: i32 = read_i32_le(wb, p)
    b: i32 = read_i32_le(wb, p + 4)
    c: i32 = read_i32_le(wb, p + 8)
    low: i32 = a & 1061109567  # 0x3f in each byte
    high: i32 = (c & 252645135) | ((a >> 2) & 808464432)  # 0x0f and 0x30 in each byte
    for s in range(i64(4)):
        k[ks + s] = (low >> i32(s * 8)) & 255
        k[ks + 4 + s] = (high >> i32(s * 8)) & 255
    low = b & 1061109567
    high = ((c >> 4) & 252645135) | ((b >> 2) & 808464432)
    for s in range(i64(8)):
        h[mins + s] = i16((low >> i32((s >> 1) * 8)) & 255)
        h[mins + 8 + s] = i16((high >> i32((s >> 1) * 8)) & 255)


def block_q4_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64, mins: i64, k: vec[i32], ks: i64) -> None:
    """h[out + j] = sc * q of the block at byte p, h[mins + s] = minima of 16 weights; k[ks : ks + 8] is scratch."""
    scales_k4(wb, p + 4, h, mins, k, ks)
    for c in range(i64(4)):
        s: i16 = i16(k[ks + c * 2])
        for j in range(i64(32)):
            h[out + c * 64 + j] = i16(w[p + 16 + c * 32 + j] & 15) * s
        s = i16(k[ks + c * 2 + 1])
        for j in range(i64(32)):
            h[out + c * 64 + 32 + j] = i16(w[p + 16 + c * 32 + j] >> 4) * s


def block_q5_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64, mins: i64, k: vec[i32], ks: i64) -> None:
    """h[out + j] = sc * q of the block at byte p, h[mins + s] = minima of 16 weights; k[ks : ks + 8] is scratch."""
    scales_k4(wb, p + 4, h, mins, k, ks)
    for c in range(i64(4)):
        s: i16 = i16(k[ks + c * 2])
        shift: i16 = i16(c * 2)
        for j in range(i64(32)):
            q: i16 = i16(w[p + 48 + c * 32 + j] & 15) | (((i16(w[p + 16 + j]) >> shift) & 1) << 4)
            h[out + c * 64 + j] = q * s
        s = i16(k[ks + c * 2 + 1])
        shift += 1
        for j in range(i64(32)):
            q = i16(w[p + 48 + c * 32 + j] >> 4) | (((i16(w[p + 16 + j]) >> shift) & 1) << 4)
            h[out + c * 64 + 32 + j] = q * s


def block_q6_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = sc * (q - 32) of the block at byte p."""
    for n in range(i64(2)):
        for c in range(i64(4)):
            low: i64 = p + n * 64 + (c & 1) * 32
            nibble: i16 = i16((c >> 1) * 4)
            pair: i16 = i16(c * 2)
            for g in range(i64(2)):
                s: i16 = i16((i32(w[p + 192 + n * 8 + c * 2 + g]) ^ 128) - 128)
                for j in range(i64(16)):
                    q: i16 = (i16(w[low + g * 16 + j]) >> nibble) & 15
                    q |= ((i16(w[p + 128 + n * 32 + g * 16 + j]) >> pair) & 3) << 4
                    h[out + n * 128 + c * 32 + g * 16 + j] = (q - 32) * s
