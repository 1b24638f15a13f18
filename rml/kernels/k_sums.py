"""Q4_K and Q6_K rows times int8 activations, from the stored bits: sums of each part first, then times its scale.

Both multiply unsigned q by int8 bytes, which is one instruction (vpdpbusd), in loops of 16 (see q8.py). The other K
types take the way over i16 integers (k_rows.py).
"""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i32, i64, u8

from rml.kernels.k_quants import minima_k4, scales_k4


def dot_minima_k4(minima: i64, k: vec[i32], sums: i64) -> i32:
    """Sum over 8 parts of the minimum (byte s) times the sum of activations k[sums + 2 s] + k[sums + 2 s + 1]."""
    total: i32 = 0
    for s in range(i64(8)):
        total += i32((minima >> (s * 8)) & 255) * (k[sums + s * 2] + k[sums + s * 2 + 1])
    return total


def sums_q4_k(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64,
    k: vec[i32], sums: i64, out: i64, low: i64, f: vec[float], half: i64, d: i64, m: i64
) -> None:  # fmt: skip
    """Row r of the rows from byte p: k[out + 8 b + r] = sum of sc * q * x[at + 256 b :], f[d + 8 b + r] = d.

    k[low + 8 b + r] = sum of the integer minima times the activations, f[m + 8 b + r] = -dmin.
    """
    for r in range(rows):
        for b in range(blocks):
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
            f[d + b * 8 + r] = f[half + i64(read_i32_le(wb, p) & 65535)]
            f[m + b * 8 + r] = -f[half + i64(read_i32_le(wb, p + 2) & 65535)]
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


def parts_q6_k(w: vec[u8], p: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], out: i64) -> None:
    """k[out + 16 b + s] = sum of q * the activations of part s of block b of the row at byte p."""
    for b in range(blocks):
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
    w: vec[u8], p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], sums: i64, out: i64, parts: i64,
    f: vec[float], half: i64, d: i64
) -> None:  # fmt: skip
    """Row r of the rows from byte p: k[out + 8 b + r] = sum of sc * (q - 32) * x[at + 256 b :], f[d + 8 b + r] = d.

    k[parts : parts + 16 * blocks] is scratch. All parts of a row first: sums just written, one by one, could not be
    read again as a vector without waiting for them.
    """
    for r in range(rows):
        parts_q6_k(w, p, blocks, x, at, k, parts)
        for b in range(blocks):
            k[out + b * 8 + r] = scale_parts_q6_k(w, p + 192, k, parts + b * 16, sums + b * 16)
            f[d + b * 8 + r] = f[half + (i64(w[p + 208]) | (i64(w[p + 209]) << 8))]
            p += 210
