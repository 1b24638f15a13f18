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

All in one file: what they call must be inlined.
"""

from __future__ import annotations

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.kinds import factor_byte, has_minimum, offset_of, row_bytes


def quants_q2_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = q of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        for j in range(i64(16)):
            v: u8 = w[p + 16 + part * 16 + j]
            h[to + j] = i16(v & 3)
            h[to + 32 + j] = i16((v >> 2) & 3)
            h[to + 64 + j] = i16((v >> 4) & 3)
            h[to + 96 + j] = i16(v >> 6)


def quants_q3_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = q of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        third: i64 = p + (part & 1) * 16
        shift: i16 = i16((part >> 1) * 4)
        for j in range(i64(16)):
            v: u8 = w[p + 32 + part * 16 + j]
            bits: i16 = i16(w[third + j]) >> shift
            h[to + j] = i16(v & 3) + ((bits & 1) << 2)
            h[to + 32 + j] = i16((v >> 2) & 3) + ((bits & 2) << 1)
            h[to + 64 + j] = i16((v >> 4) & 3) + (bits & 4)
            h[to + 96 + j] = i16(v >> 6) + ((bits & 8) >> 1)


def quants_q4_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = q of the block at byte p."""
    for c in range(i64(4)):
        for j in range(i64(32)):
            h[out + c * 64 + j] = i16(w[p + 16 + c * 32 + j] & 15)
            h[out + c * 64 + 32 + j] = i16(w[p + 16 + c * 32 + j] >> 4)


def quants_q5_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = q of the block at byte p."""
    for c in range(i64(4)):
        shift: i16 = i16(c * 2)
        for j in range(i64(32)):
            v: u8 = w[p + 48 + c * 32 + j]
            bits: i16 = (i16(w[p + 16 + j]) >> shift) << 4
            h[out + c * 64 + j] = i16(v & 15) | (bits & 16)
            h[out + c * 64 + 32 + j] = i16(v >> 4) | ((bits & 32) >> 1)


def quants_q6_k(w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out + j] = q of the block at byte p."""
    for part in range(i64(4)):
        to: i64 = out + (part >> 1) * 128 + (part & 1) * 16
        nibbles: i64 = p + (part >> 1) * 64 + (part & 1) * 16
        for j in range(i64(16)):
            a: u8 = w[nibbles + j]
            b: u8 = w[nibbles + 32 + j]
            top: u8 = w[p + 128 + part * 16 + j]
            h[to + j] = i16((a & 15) | ((top & 3) << 4))
            h[to + 32 + j] = i16((b & 15) | ((top & 12) << 2))
            h[to + 64 + j] = i16((a >> 4) | (top & 48))
            h[to + 96 + j] = i16((b >> 4) | ((top & 192) >> 2))


def quants_k(kind: i64, w: vec[u8], p: i64, h: vec[i16], out: i64) -> None:
    """h[out : out + 256] = the unsigned integers q of the block at byte p."""
    if kind == 10:
        quants_q2_k(w, p, h, out)
    elif kind == 11:
        quants_q3_k(w, p, h, out)
    elif kind == 12:
        quants_q4_k(w, p, h, out)
    elif kind == 13:
        quants_q5_k(w, p, h, out)
    else:
        quants_q6_k(w, p, h, out)


def scales_q3_k(wb: bytes, p: i64, half: i64) -> i64:
    """Eight 6-bit scales from the 12 bytes at p, one in each byte: parts 0 to 7 (half = 0) or 8 to 15 (half = 1).

    The first eight bytes hold the four low bits of parts 0 to 7 and 8 to 15, the last four the two high bits of all.
    """
    low: i64 = (read_i64_le(wb, p) >> (half * 4)) & 1085102592571150095  # 0x0f in each byte
    high: i32 = read_i32_le(wb, p + 8) >> i32(half * 4)
    first: i32 = (high & 50529027) << 4  # 0x03 in each byte
    second: i32 = (high & 202116108) << 2  # 0x0c in each byte
    return low | i64(first) | (i64(second) << 32)


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


def scales_k(kind: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out : out + 16] = the integer scales of every 16 weights of the block at byte p, signed."""
    if kind == 10:
        for s in range(i64(16)):
            h[out + s] = i16(w[p + s] & 15)
    elif kind == 11:
        low: i64 = scales_q3_k(wb, p + 96, 0)
        high: i64 = scales_q3_k(wb, p + 96, 1)
        for s in range(i64(8)):
            h[out + s] = i16((low >> (s * 8)) & 63) - 32
            h[out + 8 + s] = i16((high >> (s * 8)) & 63) - 32
    elif kind == 14:
        for s in range(i64(16)):
            h[out + s] = i16((i32(w[p + 192 + s]) ^ 128) - 128)
    else:
        packed: i64 = scales_k4(wb, p + 4)
        for s in range(i64(16)):
            h[out + s] = i16((packed >> ((s >> 1) * 8)) & 63)


def minima_k(kind: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out : out + 16] = the integer minima of every 16 weights of the block at byte p, of a type that has them."""
    if kind == 10:
        for s in range(i64(16)):
            h[out + s] = i16(w[p + s] >> 4)
    else:
        packed: i64 = minima_k4(wb, p + 4)
        for s in range(i64(16)):
            h[out + s] = i16((packed >> ((s >> 1) * 8)) & 63)


def widen_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], hs: i64,
    f: vec[float], out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64, exactly. h[hs : hs + 288] is scratch."""
    size: i64 = row_bytes(kind, 256)
    at: i64 = factor_byte(kind)
    offset: i16 = i16(offset_of(kind))
    for b in range(blocks):
        quants_k(kind, w, p, h, hs)
        scales_k(kind, w, wb, p, h, hs + 256)
        d: float = f[i64(w[p + at]) | (i64(w[p + at + 1]) << 8)]
        for s in range(i64(16)):
            scale: i16 = h[hs + 256 + s]
            for j in range(i64(16)):
                f[out + s * 16 + j] = float(i32((h[hs + s * 16 + j] - offset) * scale)) * d
        if has_minimum(kind) != 0:
            minima_k(kind, w, wb, p, h, hs + 272)
            m: float = f[i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8)]
            for s in range(i64(16)):
                low: float = float(i32(h[hs + 272 + s])) * m
                for j in range(i64(16)):
                    f[out + s * 16 + j] -= low
        out += 256
        p += size
