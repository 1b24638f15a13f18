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

Rows times int8 activations: Q4_K and Q6_K multiply unsigned q by int8 bytes, which is one instruction (vpdpbusd), in
loops of 16 (see q8.py), first the sum of each part, then times its scale. The others write a row's i16 integers first
(what was just written in other pieces could not be read again without waiting), then multiply. In all
`sums_*` the rows lie one after another from byte p. k[out + 8 b + r] = sum of block b's integers of row r times the
activations h[hx + 256 b :], as bytes x[at + 256 b :]; fi[d + 8 b + r] = the bits of d; where there is a minimum,
k[low + 8 b + r] = sum of the integer minima times the activations, whose sums by 16 are k[sums + 16 b :], and
fi[m + 8 b + r] = the bits of -dmin, that is of the f16 with the other sign.
All in one file: what they call must be inlined.
"""

from __future__ import annotations

from librt.strings import read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.prefetch import AHEAD, prefetch


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


def ask(wb: bytes, p: i64) -> None:
    """Asks for the block AHEAD bytes after the one at byte p: three cache lines, the next block asks for the rest."""
    prefetch(wb, p + AHEAD)
    prefetch(wb, p + AHEAD + 64)
    prefetch(wb, p + AHEAD + 128)


def dot_block(h: vec[i16], a: i64, b: i64) -> i32:
    """Sum of h[a + j] * h[b + j] over 256 positions."""
    total: i32 = 0
    for j in range(i64(256)):
        total += i32(h[a + j]) * i32(h[b + j])
    return total


def dot_minima_k2(w: vec[u8], p: i64, k: vec[i32], sums: i64) -> i32:
    """Sum over 16 parts of the minimum (upper nibble of byte p + s) times the sum of activations k[sums + s]."""
    total: i32 = 0
    for s in range(i64(16)):
        total += i32(w[p + s] >> 4) * k[sums + s]
    return total


def dot_minima_k4(minima: i64, k: vec[i32], sums: i64) -> i32:
    """Sum over 8 parts of the minimum (byte s) times the sum of activations k[sums + 2 s] + k[sums + 2 s + 1]."""
    total: i32 = 0
    for s in range(i64(8)):
        total += i32((minima >> (s * 8)) & 255) * (k[sums + s * 2] + k[sums + s * 2 + 1])
    return total


def dot_row(h: vec[i16], x: i64, blocks: i64, hx: i64, k: vec[i32], out: i64) -> None:
    """k[out + 8 b] = the dot product of the blocks h[x + 256 b :] and h[hx + 256 b :]."""
    for b in range(blocks):
        k[out + b * 8] = dot_block(h, x + b * 256, hx + b * 256)


def sums_q2_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64,
    k: vec[i32], sums: i64, out: i64, low: i64, fi: vec[i64], d: i64, m: i64, hs: i64
) -> None:  # fmt: skip
    """Q2_K; h[hs : hs + 256 * blocks] is scratch."""
    for r in range(rows):
        for b in range(blocks):
            ask(wb, p)
            block_q2_k(w, p, h, hs + b * 256)
            k[low + b * 8 + r] = dot_minima_k2(w, p, k, sums + b * 16)
            both: i32 = read_i32_le(wb, p + 80)
            fi[d + b * 8 + r] = fi[i64(both & 65535)]
            fi[m + b * 8 + r] = fi[i64(((both >> 16) & 65535) ^ 32768)]
            p += 84
        dot_row(h, hs, blocks, hx, k, out + r)


def sums_q3_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64,
    k: vec[i32], out: i64, fi: vec[i64], d: i64, hs: i64
) -> None:  # fmt: skip
    """Q3_K; h[hs : hs + 256 * blocks] is scratch."""
    for r in range(rows):
        for b in range(blocks):
            ask(wb, p)
            block_q3_k(w, wb, p, h, hs + b * 256)
            fi[d + b * 8 + r] = fi[i64(w[p + 108]) | (i64(w[p + 109]) << 8)]
            p += 110
        dot_row(h, hs, blocks, hx, k, out + r)


def sums_q5_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64,
    k: vec[i32], sums: i64, out: i64, low: i64, fi: vec[i64], d: i64, m: i64, hs: i64
) -> None:  # fmt: skip
    """Q5_K; h[hs : hs + 256 * blocks] is scratch."""
    for r in range(rows):
        for b in range(blocks):
            ask(wb, p)
            block_q5_k(w, wb, p, h, hs + b * 256)
            k[low + b * 8 + r] = dot_minima_k4(minima_k4(wb, p + 4), k, sums + b * 16)
            fi[d + b * 8 + r] = fi[i64(read_i32_le(wb, p) & 65535)]
            fi[m + b * 8 + r] = fi[i64((read_i32_le(wb, p + 2) & 65535) ^ 32768)]
            p += 176
        dot_row(h, hs, blocks, hx, k, out + r)


def sums_q4_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64,
    k: vec[i32], sums: i64, out: i64, low: i64, fi: vec[i64], d: i64, m: i64
) -> None:  # fmt: skip
    """Q4_K."""
    for r in range(rows):
        for b in range(blocks):
            ask(wb, p)
            total: i32 = 0
            scales: i64 = scales_k4(wb, p + 4)
            for c in range(i64(4)):
                q: i64 = p + 16 + c * 32
                to: i64 = at + b * 256 + c * 64
                first: i32 = 0
                second: i32 = 0
                for j in range(i64(16)):
                    first += i32(w[q + j] & 15) * ((i32(x[to + j]) ^ 128) - 128)
                for j in range(i64(16)):
                    first += i32(w[q + 16 + j] & 15) * ((i32(x[to + 16 + j]) ^ 128) - 128)
                for j in range(i64(16)):
                    second += i32(w[q + j] >> 4) * ((i32(x[to + 32 + j]) ^ 128) - 128)
                for j in range(i64(16)):
                    second += i32(w[q + 16 + j] >> 4) * ((i32(x[to + 48 + j]) ^ 128) - 128)
                total += first * i32(scales & 255) + second * i32((scales >> 8) & 255)
                scales >>= 16
            k[out + b * 8 + r] = total
            k[low + b * 8 + r] = dot_minima_k4(minima_k4(wb, p + 4), k, sums + b * 16)
            fi[d + b * 8 + r] = fi[i64(read_i32_le(wb, p) & 65535)]
            fi[m + b * 8 + r] = fi[i64((read_i32_le(wb, p + 2) & 65535) ^ 32768)]
            p += 144


def quarter_q6_k(w: vec[u8], low: i64, top: i64, x: vec[u8], at: i64, k: vec[i32], out: i64) -> None:
    """k[out + 2 c] = sum of q * x[at + 32 c + j] over 16 positions j, c < 4: the parts that share 16 upper bytes.

    low, top: the bytes of their low nibbles (c = 0, 2; those of c = 1, 3 stand 32 later) and of their upper bit pairs.
    """
    a: i32 = 0
    b: i32 = 0
    c: i32 = 0
    d: i32 = 0
    for j in range(i64(16)):
        a += i32((w[low + j] & 15) | ((w[top + j] & 3) << 4)) * ((i32(x[at + j]) ^ 128) - 128)
    for j in range(i64(16)):
        b += i32((w[low + 32 + j] & 15) | ((w[top + j] & 12) << 2)) * ((i32(x[at + 32 + j]) ^ 128) - 128)
    for j in range(i64(16)):
        c += i32((w[low + j] >> 4) | (w[top + j] & 48)) * ((i32(x[at + 64 + j]) ^ 128) - 128)
    for j in range(i64(16)):
        d += i32((w[low + 32 + j] >> 4) | ((w[top + j] & 192) >> 2)) * ((i32(x[at + 96 + j]) ^ 128) - 128)
    k[out] = a
    k[out + 2] = b
    k[out + 4] = c
    k[out + 6] = d


def parts_q6_k(w: vec[u8], wb: bytes, p: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], out: i64) -> None:
    """k[out + 16 b + s] = sum of q * the activations of part s of block b of the row at byte p."""
    for b in range(blocks):
        ask(wb, p)
        quarter_q6_k(w, p, p + 128, x, at, k, out)
        quarter_q6_k(w, p + 16, p + 144, x, at + 16, k, out + 1)
        quarter_q6_k(w, p + 64, p + 160, x, at + 128, k, out + 8)
        quarter_q6_k(w, p + 80, p + 176, x, at + 144, k, out + 9)
        p += 210
        at += 256
        out += 16


def scale_parts_q6_k(w: vec[u8], p: i64, k: vec[i32], parts: i64, sums: i64) -> i32:
    """Sum over 16 parts of the int8 scale at byte p + s * (k[parts + s] - 32 * the sum of activations k[sums + s])."""
    total: i32 = 0
    for s in range(i64(16)):
        total += ((i32(w[p + s]) ^ 128) - 128) * (k[parts + s] - 32 * k[sums + s])
    return total


def sums_q6_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64,
    k: vec[i32], sums: i64, out: i64, parts: i64, fi: vec[i64], d: i64
) -> None:  # fmt: skip
    """Q6_K; k[parts : parts + 16 * blocks] is scratch.

    All parts of a row first: sums just written, one by one, could not be read again as a vector without waiting.
    """
    for r in range(rows):
        parts_q6_k(w, wb, p, blocks, x, at, k, parts)
        for b in range(blocks):
            k[out + b * 8 + r] = scale_parts_q6_k(w, p + 192, k, parts + b * 16, sums + b * 16)
            fi[d + b * 8 + r] = fi[i64(w[p + 208]) | (i64(w[p + 209]) << 8)]
            p += 210
