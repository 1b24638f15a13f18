"""Eight rows of a K type times a tile of 32 tokens: products of 256 positions at a time, one token after another.

With a sum of 256 products the pairwise i16 product (vpdpwssd) runs at its full rate and the sum across the lanes at the
end costs little: faster than tokens in lanes, which suits blocks of 32 (tile.py).

Scratch of eight rows, block after block as it is read:
    h[hs + b * 2048 + r * 256 + j]   the integers of block b of row r
    h[hs + blocks * 2048 + (b * 8 + r) * 16 + s]   the integer minima of its 16 parts
    f[fs + r * 32 + t]   totals; f[fs + 256 + b * 8 + r] factors d, f[fs + 256 + (blocks + b) * 8 + r] factors -dmin
    k[ks + r * 32 + t]   sums of one block; k[ks + 256 + t] of the minima of one row
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64


def dot_tokens(h: vec[i16], weights: i64, x: i64, tokens: i64, k: vec[i32], out: i64) -> None:
    """k[out + t] = sum of h[weights + j] * h[x + t * 256 + j] over 256 positions, t < tokens."""
    for t in range(tokens):
        total: i32 = 0
        for j in range(i64(256)):
            total += i32(h[weights + j]) * i32(h[x + t * 256 + j])
        k[out + t] = total


def minimum_sums(h: vec[i16], mins: i64, k: vec[i32], sums: i64, out: i64) -> None:
    """k[out + t] = sum over 16 parts s of h[mins + s] * k[sums + s * 32 + t]."""
    m0: i32 = i32(h[mins])
    m1: i32 = i32(h[mins + 1])
    m2: i32 = i32(h[mins + 2])
    m3: i32 = i32(h[mins + 3])
    m4: i32 = i32(h[mins + 4])
    m5: i32 = i32(h[mins + 5])
    m6: i32 = i32(h[mins + 6])
    m7: i32 = i32(h[mins + 7])
    m8: i32 = i32(h[mins + 8])
    m9: i32 = i32(h[mins + 9])
    m10: i32 = i32(h[mins + 10])
    m11: i32 = i32(h[mins + 11])
    m12: i32 = i32(h[mins + 12])
    m13: i32 = i32(h[mins + 13])
    m14: i32 = i32(h[mins + 14])
    m15: i32 = i32(h[mins + 15])
    for t in range(i64(32)):
        value: i32 = m0 * k[sums + t] + m1 * k[sums + 32 + t] + m2 * k[sums + 64 + t] + m3 * k[sums + 96 + t]
        value += m4 * k[sums + 128 + t] + m5 * k[sums + 160 + t] + m6 * k[sums + 192 + t] + m7 * k[sums + 224 + t]
        value += m8 * k[sums + 256 + t] + m9 * k[sums + 288 + t] + m10 * k[sums + 320 + t] + m11 * k[sums + 352 + t]
        value += m12 * k[sums + 384 + t] + m13 * k[sums + 416 + t] + m14 * k[sums + 448 + t] + m15 * k[sums + 480 + t]
        k[out + t] = value


def add_scaled(k: vec[i32], acc: i64, f: vec[float], d: i64, scale: i64, total: i64) -> None:
    """f[total + t] += k[acc + t] * f[d] * f[scale + t]."""
    factor: float = f[d]
    for t in range(i64(32)):
        f[total + t] += float(k[acc + t]) * factor * f[scale + t]


def add_with_minimum(
    k: vec[i32], acc: i64, minimum: i64, f: vec[float], d: i64, m: i64, scale: i64, total: i64
) -> None:
    """f[total + t] += (k[acc + t] * f[d] + k[minimum + t] * f[m]) * f[scale + t]."""
    factor: float = f[d]
    lowest: float = f[m]
    for t in range(i64(32)):
        f[total + t] += (float(k[acc + t]) * factor + float(k[minimum + t]) * lowest) * f[scale + t]


def eight_rows_k(
    h: vec[i16], hs: i64, blocks: i64, rows: i64, minimum: i64, x: i64, tokens: i64, k: vec[i32], sums: i64, ks: i64,
    f: vec[float], scale: i64, fs: i64
) -> None:  # fmt: skip
    """f[fs + r * 32 + t] = unpacked row r times token t < tokens of the tile at h[x], f[scale], k[sums]."""
    for t in range(i64(256)):
        f[fs + t] = 0.0
    for b in range(blocks):
        for r in range(rows):
            dot_tokens(h, hs + b * 2048 + r * 256, x + b * 8192, tokens, k, ks + r * 32)
        for r in range(rows):
            d: i64 = fs + 256 + b * 8 + r
            if minimum == 0:
                add_scaled(k, ks + r * 32, f, d, scale + b * 32, fs + r * 32)
            else:
                minimum_sums(h, hs + blocks * 2048 + (b * 8 + r) * 16, k, sums + b * 512, ks + 256)
                add_with_minimum(k, ks + r * 32, ks + 256, f, d, d + blocks * 8, scale + b * 32, fs + r * 32)
