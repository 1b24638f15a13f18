"""Eight rows of a K type times tiles of 32 tokens: blocks of 256 positions, summed up as tile.py does 32.

Scratch as in tile.py, but
    h[hs + b * 2048 + r * 256 + j]   the integers of block b of row r
    h[hs + blocks * 2048 + (b * 8 + r) * 16 + s]   the integer minima of its 16 parts; behind them the spread positions
    k[ks + T * 1024 + i * 256 + r * 32 + t]   sums of four of a block's eight parts of 32 positions
    k[ks + TILES * 1024 + T * 256 + r * 32 + t]   sums of the block; k[ks + TILES * 1280 + t] of the minima of a row
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.norms import fill
from rml.kernels.tile import FACTORS, TILES, add_scaled, multiply


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


def add_with_minimum(
    k: vec[i32], acc: i64, minimum: i64, f: vec[float], d: i64, m: i64, scale: i64, total: i64
) -> None:
    """f[total + t] += (k[acc + t] * f[d] + k[minimum + t] * f[m]) * f[scale + t]."""
    factor: float = f[d]
    lowest: float = f[m]
    for t in range(i64(32)):
        f[total + t] += (float(k[acc + t]) * factor + float(k[minimum + t]) * lowest) * f[scale + t]


def add_parts(k: vec[i32], x: i64, acc: i64, more: i64) -> None:
    """k[acc + j] = (k[acc + j] if `more` is 1, 0 if it is 0) + k[x + j] + k[x + 256 + j] + ... + k[x + 768 + j]."""
    for j in range(i64(256)):
        k[acc + j] = k[acc + j] * i32(more) + k[x + j] + k[x + 256 + j] + k[x + 512 + j] + k[x + 768 + j]


def add_block(
    h: vec[i16], mins: i64, rows: i64, minimum: i64, k: vec[i32], acc: i64, sums: i64, scratch: i64,
    f: vec[float], d: i64, m: i64, scale: i64, total: i64
) -> None:  # fmt: skip
    """Takes the sums of one block of one tile into its totals."""
    if minimum == 0:
        add_scaled(k, acc, f, d, scale, total)
        return
    for r in range(rows):
        minimum_sums(h, mins + r * 16, k, sums, scratch)
        add_with_minimum(k, acc + r * 32, scratch, f, d + r, m + r, scale, total + r * 32)


def eight_rows_k(
    h: vec[i16], hs: i64, blocks: i64, rows: i64, minimum: i64, x: i64, n: i64, k: vec[i32], sums: i64, ks: i64,
    f: vec[float], scale: i64, fs: i64
) -> None:  # fmt: skip
    """f[fs + T * 256 + r * 32 + t] = unpacked row r times token t of tile T, n <= 32 * TILES tokens in all."""
    tiles: i64 = (n + 31) >> 5
    mins: i64 = hs + blocks * 2048
    fill(f, fs, tiles * 256, 0.0)
    for b in range(blocks):
        for half in range(i64(2)):
            for i in range(i64(4)):
                part: i64 = half * 4 + i
                multiply(
                    h, hs + b * 2048 + part * 32, 256, mins + blocks * 128, x + b * 8192 + part * 1024, blocks * 8192,
                    n, k, ks + i * 256,
                )  # fmt: skip
            for tile in range(tiles):
                add_parts(k, ks + tile * 1024, ks + TILES * 1024 + tile * 256, half)
        d: i64 = fs + FACTORS + b * 8
        for tile in range(tiles):
            add_block(
                h, mins + b * 128, rows, minimum, k, ks + TILES * 1024 + tile * 256, sums + (tile * blocks + b) * 512,
                ks + TILES * 1280, f, d, d + blocks * 8, scale + (tile * blocks + b) * 32, fs + tile * 256,
            )  # fmt: skip
