"""Q2_K and Q3_K: blocks of 256 weights with an integer scale for every 16. See k_quants.py.

Q2_K, 84 bytes: 16 bytes with a 4-bit scale (low) and minimum (high), 64 bytes of bit pairs, f16 d, f16 dmin.
    weight = d * sc * q - dmin * m
Q3_K, 110 bytes: 32 bytes of third bits, 64 of bit pairs, 12 of 6-bit scales, f16 d. Bit 4 n + c of byte j of the third
bits is that of weight 128 n + 32 c + j.
    weight = d * (sc - 32) * (q - 4)
"""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def block_q2_k(w: vec[u8], p: i64, h: vec[i16], out: i64, mins: i64) -> None:
    """h[out + j] = sc * q of the block at byte p, h[mins + s] = the minimum of 16 weights."""
    for s in range(i64(16)):
        h[mins + s] = i16(w[p + s] >> 4)
    for n in range(i64(2)):
        for c in range(i64(4)):
            shift: i16 = i16(c * 2)
            for g in range(i64(2)):
                scale: i16 = i16(w[p + n * 8 + c * 2 + g] & 15)
                for j in range(i64(16)):
                    q: i16 = (i16(w[p + 16 + n * 32 + g * 16 + j]) >> shift) & 3
                    h[out + n * 128 + c * 32 + g * 16 + j] = q * scale


def scales_q3_k(wb: bytes, p: i64, k: vec[i32], ks: i64) -> None:
    """k[ks + s] = sc - 32 of part s of 16, from the 12 bytes at p: four low bits, then two high bits of each."""
    a: i32 = read_i32_le(wb, p)
    b: i32 = read_i32_le(wb, p + 4)
    c: i32 = read_i32_le(wb, p + 8)
    nibbles: i32 = 252645135  # 0x0f in each byte
    pairs: i32 = 808464432  # 0x30 in each byte
    v0: i32 = (a & nibbles) | ((c & 50529027) << 4)
    v1: i32 = (b & nibbles) | ((c & 202116108) << 2)
    v2: i32 = ((a >> 4) & nibbles) | (c & pairs)
    v3: i32 = ((b >> 4) & nibbles) | ((c >> 2) & pairs)
    for s in range(i64(4)):
        k[ks + s] = ((v0 >> i32(s * 8)) & 255) - 32
        k[ks + 4 + s] = ((v1 >> i32(s * 8)) & 255) - 32
        k[ks + 8 + s] = ((v2 >> i32(s * 8)) & 255) - 32
        k[ks + 12 + s] = ((v3 >> i32(s * 8)) & 255) - 32


def block_q3_k(w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64, k: vec[i32], ks: i64) -> None:
    """h[out + j] = (sc - 32) * (q - 4) of the block at byte p; k[ks : ks + 16] is scratch."""
    scales_q3_k(wb, p + 96, k, ks)
    for n in range(i64(2)):
        for c in range(i64(4)):
            shift: i16 = i16(c * 2)
            bit: i16 = i16(n * 4 + c)
            for g in range(i64(2)):
                scale: i16 = i16(k[ks + n * 8 + c * 2 + g])
                for j in range(i64(16)):
                    q: i16 = (i16(w[p + 32 + n * 32 + g * 16 + j]) >> shift) & 3
                    q |= ((i16(w[p + g * 16 + j]) >> bit) & 1) << 2
                    h[out + n * 128 + c * 32 + g * 16 + j] = (q - 4) * scale
