"""Eight rows of weights times tiles of 32 tokens, tokens in lanes: the quantised products of a prefill.

A format only unpacks: rows become i16 integers with one or two float64 factors per block. Two neighbouring positions
of a row are spread over sixteen lanes, once for up to four tiles: one instruction (vpdpwssd) then multiplies them by
the same two positions of sixteen tokens and adds both products to sixteen sums. All of it is exact in integers. Of a
tile with at most 16 tokens only the lower half is multiplied.

This file takes blocks of 32 positions; k_tile.py blocks of 256, eight times 32 positions one after another.

Scratch of eight rows and up to TILES tiles T, block after block as it is read:
    h[hs + b * 256 + r * 32 + j]   the integers of block b of row r; behind them SPREAD entries for spread()
    f[fs + T * 256 + r * 32 + t]   totals
    f[fs + FACTORS + b * 8 + r]    factors d; f[fs + FACTORS + (blocks + b) * 8 + r] factors m
    f[fs + FACTORS + 16 * blocks + i * 32 + t]   the activations' sums of four blocks, where there is a minimum
    k[ks + T * 1024 + i * 256 + r * 32 + t]   sums of four blocks
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.norms import fill

TILES: Final = 4  # tiles for which a block is spread once
FACTORS: Final = 1024  # where the factors stand: behind the totals of all tiles
SPREAD: Final = 4096  # entries of a spread block


def spread(h: vec[i16], block: i64, stride: i64, out: i64) -> None:
    """h[out + (p * 8 + r) * 32 + 2 t :] = the pair of positions 2 p, 2 p + 1 of row r, for sixteen lanes t.

    Row r's 32 integers are h[block + r * stride :].
    """
    for r in range(i64(8)):
        for p in range(i64(16)):
            a: i16 = h[block + r * stride + p * 2]
            b: i16 = h[block + r * stride + p * 2 + 1]
            for t in range(i64(16)):
                h[out + (p * 8 + r) * 32 + t * 2] = a
                h[out + (p * 8 + r) * 32 + t * 2 + 1] = b


def dot_rows(h: vec[i16], spread_rows: i64, x: i64, k: vec[i32], acc: i64) -> None:
    """k[acc + r * 32 + t] = sum over 32 positions of row r, spread at h[spread_rows:], times token t of the tile at x.

    h[x + 64 p + 2 t], h[x + 64 p + 2 t + 1] = positions 2 p and 2 p + 1 of token t. That all weights are read before
    the first sum is what makes the compiler see pairs.
    """
    for e in range(i64(256)):
        k[acc + e] = 0
    for j in range(i64(16)):
        w: i64 = spread_rows + j * 256
        y: i64 = x + j * 64
        for t in range(i64(16)):
            a: i32 = i32(h[y + t * 2])
            b: i32 = i32(h[y + t * 2 + 1])
            c: i32 = i32(h[y + 32 + t * 2])
            d: i32 = i32(h[y + 32 + t * 2 + 1])
            w0: i32 = i32(h[w + t * 2])
            v0: i32 = i32(h[w + t * 2 + 1])
            w1: i32 = i32(h[w + 32 + t * 2])
            v1: i32 = i32(h[w + 32 + t * 2 + 1])
            w2: i32 = i32(h[w + 64 + t * 2])
            v2: i32 = i32(h[w + 64 + t * 2 + 1])
            w3: i32 = i32(h[w + 96 + t * 2])
            v3: i32 = i32(h[w + 96 + t * 2 + 1])
            w4: i32 = i32(h[w + 128 + t * 2])
            v4: i32 = i32(h[w + 128 + t * 2 + 1])
            w5: i32 = i32(h[w + 160 + t * 2])
            v5: i32 = i32(h[w + 160 + t * 2 + 1])
            w6: i32 = i32(h[w + 192 + t * 2])
            v6: i32 = i32(h[w + 192 + t * 2 + 1])
            w7: i32 = i32(h[w + 224 + t * 2])
            v7: i32 = i32(h[w + 224 + t * 2 + 1])
            k[acc + t] += w0 * a + v0 * b
            k[acc + 16 + t] += w0 * c + v0 * d
            k[acc + 32 + t] += w1 * a + v1 * b
            k[acc + 48 + t] += w1 * c + v1 * d
            k[acc + 64 + t] += w2 * a + v2 * b
            k[acc + 80 + t] += w2 * c + v2 * d
            k[acc + 96 + t] += w3 * a + v3 * b
            k[acc + 112 + t] += w3 * c + v3 * d
            k[acc + 128 + t] += w4 * a + v4 * b
            k[acc + 144 + t] += w4 * c + v4 * d
            k[acc + 160 + t] += w5 * a + v5 * b
            k[acc + 176 + t] += w5 * c + v5 * d
            k[acc + 192 + t] += w6 * a + v6 * b
            k[acc + 208 + t] += w6 * c + v6 * d
            k[acc + 224 + t] += w7 * a + v7 * b
            k[acc + 240 + t] += w7 * c + v7 * d


def dot_rows_low(h: vec[i16], spread_rows: i64, x: i64, k: vec[i32], acc: i64) -> None:
    """dot_rows for lanes 0 to 15 alone; the others become 0."""
    for e in range(i64(256)):
        k[acc + e] = 0
    for j in range(i64(16)):
        w: i64 = spread_rows + j * 256
        y: i64 = x + j * 64
        for t in range(i64(16)):
            a: i32 = i32(h[y + t * 2])
            b: i32 = i32(h[y + t * 2 + 1])
            w0: i32 = i32(h[w + t * 2])
            v0: i32 = i32(h[w + t * 2 + 1])
            w1: i32 = i32(h[w + 32 + t * 2])
            v1: i32 = i32(h[w + 32 + t * 2 + 1])
            w2: i32 = i32(h[w + 64 + t * 2])
            v2: i32 = i32(h[w + 64 + t * 2 + 1])
            w3: i32 = i32(h[w + 96 + t * 2])
            v3: i32 = i32(h[w + 96 + t * 2 + 1])
            w4: i32 = i32(h[w + 128 + t * 2])
            v4: i32 = i32(h[w + 128 + t * 2 + 1])
            w5: i32 = i32(h[w + 160 + t * 2])
            v5: i32 = i32(h[w + 160 + t * 2 + 1])
            w6: i32 = i32(h[w + 192 + t * 2])
            v6: i32 = i32(h[w + 192 + t * 2 + 1])
            w7: i32 = i32(h[w + 224 + t * 2])
            v7: i32 = i32(h[w + 224 + t * 2 + 1])
            k[acc + t] += w0 * a + v0 * b
            k[acc + 32 + t] += w1 * a + v1 * b
            k[acc + 64 + t] += w2 * a + v2 * b
            k[acc + 96 + t] += w3 * a + v3 * b
            k[acc + 128 + t] += w4 * a + v4 * b
            k[acc + 160 + t] += w5 * a + v5 * b
            k[acc + 192 + t] += w6 * a + v6 * b
            k[acc + 224 + t] += w7 * a + v7 * b


def add_scaled(k: vec[i32], acc: i64, f: vec[float], d: i64, scale: i64, total: i64) -> None:
    """f[total + r * 32 + t] += k[acc + r * 32 + t] * f[d + r] * f[scale + t], eight rows r."""
    for r in range(i64(8)):
        factor: float = f[d + r]
        for t in range(i64(32)):
            f[total + r * 32 + t] += float(k[acc + r * 32 + t]) * factor * f[scale + t]


def add_scaled_4(k: vec[i32], acc: i64, f: vec[float], d: i64, scale: i64, total: i64, parts: i64) -> None:
    """add_scaled for four blocks in a row, their accumulators 256 apart, factors 8, scales 32: totals in registers.

    parts: 1 for lanes 0 to 15 alone, 2 for all 32.
    """
    for r in range(i64(8)):
        d0: float = f[d + r]
        d1: float = f[d + 8 + r]
        d2: float = f[d + 16 + r]
        d3: float = f[d + 24 + r]
        for part in range(parts):
            a: i64 = acc + r * 32 + part * 16
            x: i64 = scale + part * 16
            to: i64 = total + r * 32 + part * 16
            for t in range(i64(16)):
                value: float = f[to + t] + float(k[a + t]) * d0 * f[x + t]
                value += float(k[a + 256 + t]) * d1 * f[x + 32 + t]
                value += float(k[a + 512 + t]) * d2 * f[x + 64 + t]
                f[to + t] = value + float(k[a + 768 + t]) * d3 * f[x + 96 + t]


def add_with_minimum(k: vec[i32], acc: i64, sums: i64, f: vec[float], d: i64, m: i64, scale: i64, total: i64) -> None:
    """f[total + r * 32 + t] += (k[acc + r * 32 + t] * f[d + r] + k[sums + t] * f[m + r]) * f[scale + t], eight rows."""
    for r in range(i64(8)):
        factor: float = f[d + r]
        lowest: float = f[m + r]
        for t in range(i64(32)):
            value: float = float(k[acc + r * 32 + t]) * factor + float(k[sums + t]) * lowest
            f[total + r * 32 + t] += value * f[scale + t]


def widen_sums(k: vec[i32], sums: i64, f: vec[float], low: i64) -> None:
    """f[low + t] = k[sums + t] for four blocks of 32 tokens: once for the eight rows that multiply them."""
    for t in range(i64(128)):
        f[low + t] = float(k[sums + t])


def add_with_minimum_4(
    k: vec[i32], acc: i64, f: vec[float], low: i64, d: i64, m: i64, scale: i64, total: i64, parts: i64
) -> None:
    """add_with_minimum for four blocks, laid out as in add_scaled_4; f[low:] their sums, as widen_sums wrote them.

    parts: as in add_scaled_4.
    """
    for r in range(i64(8)):
        d0: float = f[d + r]
        d1: float = f[d + 8 + r]
        d2: float = f[d + 16 + r]
        d3: float = f[d + 24 + r]
        m0: float = f[m + r]
        m1: float = f[m + 8 + r]
        m2: float = f[m + 16 + r]
        m3: float = f[m + 24 + r]
        for part in range(parts):
            a: i64 = acc + r * 32 + part * 16
            x: i64 = scale + part * 16
            o: i64 = low + part * 16
            to: i64 = total + r * 32 + part * 16
            for t in range(i64(16)):
                value: float = f[to + t] + (float(k[a + t]) * d0 + f[o + t] * m0) * f[x + t]
                value += (float(k[a + 256 + t]) * d1 + f[o + 32 + t] * m1) * f[x + 32 + t]
                value += (float(k[a + 512 + t]) * d2 + f[o + 64 + t] * m2) * f[x + 64 + t]
                f[to + t] = value + (float(k[a + 768 + t]) * d3 + f[o + 96 + t] * m3) * f[x + 96 + t]


def multiply(
    h: vec[i16], block: i64, stride: i64, spread_rows: i64, x: i64, size: i64, n: i64, k: vec[i32], acc: i64
) -> None:
    """k[acc + T * 1024 :] = 32 positions of eight rows times n tokens, in tiles of `size` entries from h[x] on."""
    spread(h, block, stride, spread_rows)
    for tile in range((n + 31) >> 5):
        if n - tile * 32 <= 16:
            dot_rows_low(h, spread_rows, x + tile * size, k, acc + tile * 1024)
        else:
            dot_rows(h, spread_rows, x + tile * size, k, acc + tile * 1024)


def add_blocks(
    k: vec[i32], acc: i64, sums: i64, f: vec[float], d: i64, blocks: i64, low: i64, count: i64, minimum: i64,
    scale: i64, total: i64, parts: i64
) -> None:  # fmt: skip
    """Takes the sums of `count` blocks, 1 to 4, of one tile into its totals. parts: 1 for lanes 0 to 15 alone, or 2."""
    m: i64 = d + blocks * 8
    if count == 4 and minimum == 0:
        add_scaled_4(k, acc, f, d, scale, total, parts)
    elif count == 4:
        widen_sums(k, sums, f, low)
        add_with_minimum_4(k, acc, f, low, d, m, scale, total, parts)
    else:
        for i in range(count):
            at: i64 = acc + i * 256
            if minimum == 0:
                add_scaled(k, at, f, d + i * 8, scale + i * 32, total)
            else:
                add_with_minimum(k, at, sums + i * 32, f, d + i * 8, m + i * 8, scale + i * 32, total)


def eight_rows(
    h: vec[i16], hs: i64, blocks: i64, minimum: i64, x: i64, n: i64, k: vec[i32], sums: i64, ks: i64,
    f: vec[float], scale: i64, fs: i64
) -> None:  # fmt: skip
    """f[fs + T * 256 + r * 32 + t] = unpacked row r times token t of tile T, n <= 32 * TILES tokens in all.

    The tiles lie one after another from h[x], f[scale] and k[sums].
    """
    tiles: i64 = (n + 31) >> 5
    fill(f, fs, tiles * 256, 0.0)
    b: i64 = 0
    while b < blocks:
        count: i64 = blocks - b
        if count > 4:
            count = 4
        for i in range(count):
            multiply(
                h, hs + (b + i) * 256, 32, hs + blocks * 256, x + (b + i) * 1024, blocks * 1024, n, k, ks + i * 256
            )
        for tile in range(tiles):
            at: i64 = (tile * blocks + b) * 32
            parts: i64 = 2
            if n - tile * 32 <= 16:
                parts = 1
            add_blocks(
                k, ks + tile * 1024, sums + at, f, fs + FACTORS + b * 8, blocks, fs + FACTORS + blocks * 16, count,
                minimum, scale + at, fs + tile * 256, parts
            )  # fmt: skip
        b += 4


def store_rows(f: vec[float], total: i64, rows: i64, tokens: i64, y: i64, ystride: i64, accumulate: i64) -> None:
    """f[y + t * ystride + r] (+)= f[total + r * 32 + t] for r < rows, t < tokens."""
    for t in range(tokens):
        to: i64 = y + t * ystride
        if accumulate != 0:
            for r in range(rows):
                f[to + r] += f[total + r * 32 + t]
        else:
            for r in range(rows):
                f[to + r] = f[total + r * 32 + t]
