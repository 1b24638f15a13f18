"""Eight rows of weights times a tile of 32 tokens, tokens in lanes: the formats with blocks of 32 in a prefill.

Of a tile with at most 16 tokens only the lower half is multiplied.

A format only unpacks: rows become i16 integers with one or two float64 factors per block. Each activation of a tile is
widened once for the eight rows. Activations are stored as q + 128, unsigned: multiplying a zero-extended value lets
the compiler use the pairwise i16 product with accumulation (vpmaddwd, vpdpwssd) where signed ones end in the slower i32
product. 128 times the sum of the weights is taken off again: all of it exact in integers.

Scratch of eight rows, block after block as it is read:
    h[hs + b * 256 + r * 32 + j]   the integers of block b of row r
    f[fs + r * 32 + t]             totals; f[fs + 256 + b * 8 + r] factors d, f[fs + 256 + (blocks + b) * 8 + r] m
    f[fs + 256 + 16 * blocks + i * 32 + t]   the activations' sums of four blocks, where there is a minimum
    k[ks + i * 256 + r * 32 + t]   accumulators of four blocks; k[ks + 1024 + b * 8 + r] -128 * the sum of the integers
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64


def weight_sums(h: vec[i16], hs: i64, blocks: i64, k: vec[i32], out: i64) -> None:
    """k[out + g] = -128 * the sum of 32 integers h[hs + g * 32 :], for eight rows of each block."""
    for g in range(blocks * 8):
        total: i32 = 0
        for j in range(i64(32)):
            total += i32(h[hs + g * 32 + j])
        k[out + g] = total * -128


def dot_rows(h: vec[i16], weights: i64, x: i64, k: vec[i32], sums: i64, acc: i64) -> None:
    """k[acc + r * 32 + t] = k[sums + r] + sum over 32 positions j of h[weights + r * 32 + j] * lane t of position j.

    Eight rows r; h[x + j * 16 + i] holds lanes i (low byte) and i + 16 (high byte) of position j, unsigned.
    """
    s0: i32 = k[sums]
    s1: i32 = k[sums + 1]
    s2: i32 = k[sums + 2]
    s3: i32 = k[sums + 3]
    s4: i32 = k[sums + 4]
    s5: i32 = k[sums + 5]
    s6: i32 = k[sums + 6]
    s7: i32 = k[sums + 7]
    w0: i32 = i32(h[weights])
    w1: i32 = i32(h[weights + 32])
    w2: i32 = i32(h[weights + 64])
    w3: i32 = i32(h[weights + 96])
    w4: i32 = i32(h[weights + 128])
    w5: i32 = i32(h[weights + 160])
    w6: i32 = i32(h[weights + 192])
    w7: i32 = i32(h[weights + 224])
    for t in range(i64(16)):
        both: i32 = i32(h[x + t])
        low: i32 = both & 255
        high: i32 = (both >> 8) & 255
        k[acc + t] = s0 + w0 * low
        k[acc + 16 + t] = s0 + w0 * high
        k[acc + 32 + t] = s1 + w1 * low
        k[acc + 48 + t] = s1 + w1 * high
        k[acc + 64 + t] = s2 + w2 * low
        k[acc + 80 + t] = s2 + w2 * high
        k[acc + 96 + t] = s3 + w3 * low
        k[acc + 112 + t] = s3 + w3 * high
        k[acc + 128 + t] = s4 + w4 * low
        k[acc + 144 + t] = s4 + w4 * high
        k[acc + 160 + t] = s5 + w5 * low
        k[acc + 176 + t] = s5 + w5 * high
        k[acc + 192 + t] = s6 + w6 * low
        k[acc + 208 + t] = s6 + w6 * high
        k[acc + 224 + t] = s7 + w7 * low
        k[acc + 240 + t] = s7 + w7 * high
    for j in range(i64(1), i64(32)):
        w0 = i32(h[weights + j])
        w1 = i32(h[weights + 32 + j])
        w2 = i32(h[weights + 64 + j])
        w3 = i32(h[weights + 96 + j])
        w4 = i32(h[weights + 128 + j])
        w5 = i32(h[weights + 160 + j])
        w6 = i32(h[weights + 192 + j])
        w7 = i32(h[weights + 224 + j])
        for t in range(i64(16)):
            both = i32(h[x + j * 16 + t])
            low = both & 255
            high = (both >> 8) & 255
            k[acc + t] += w0 * low
            k[acc + 16 + t] += w0 * high
            k[acc + 32 + t] += w1 * low
            k[acc + 48 + t] += w1 * high
            k[acc + 64 + t] += w2 * low
            k[acc + 80 + t] += w2 * high
            k[acc + 96 + t] += w3 * low
            k[acc + 112 + t] += w3 * high
            k[acc + 128 + t] += w4 * low
            k[acc + 144 + t] += w4 * high
            k[acc + 160 + t] += w5 * low
            k[acc + 176 + t] += w5 * high
            k[acc + 192 + t] += w6 * low
            k[acc + 208 + t] += w6 * high
            k[acc + 224 + t] += w7 * low
            k[acc + 240 + t] += w7 * high


def dot_rows_low(h: vec[i16], weights: i64, x: i64, k: vec[i32], sums: i64, acc: i64) -> None:
    """dot_rows for lanes 0 to 15 alone; what the others hold is never stored."""
    s0: i32 = k[sums]
    s1: i32 = k[sums + 1]
    s2: i32 = k[sums + 2]
    s3: i32 = k[sums + 3]
    s4: i32 = k[sums + 4]
    s5: i32 = k[sums + 5]
    s6: i32 = k[sums + 6]
    s7: i32 = k[sums + 7]
    w0: i32 = i32(h[weights])
    w1: i32 = i32(h[weights + 32])
    w2: i32 = i32(h[weights + 64])
    w3: i32 = i32(h[weights + 96])
    w4: i32 = i32(h[weights + 128])
    w5: i32 = i32(h[weights + 160])
    w6: i32 = i32(h[weights + 192])
    w7: i32 = i32(h[weights + 224])
    for t in range(i64(16)):
        both: i32 = i32(h[x + t])
        low: i32 = both & 255
        k[acc + t] = s0 + w0 * low
        k[acc + 32 + t] = s1 + w1 * low
        k[acc + 64 + t] = s2 + w2 * low
        k[acc + 96 + t] = s3 + w3 * low
        k[acc + 128 + t] = s4 + w4 * low
        k[acc + 160 + t] = s5 + w5 * low
        k[acc + 192 + t] = s6 + w6 * low
        k[acc + 224 + t] = s7 + w7 * low
    for j in range(i64(1), i64(32)):
        w0 = i32(h[weights + j])
        w1 = i32(h[weights + 32 + j])
        w2 = i32(h[weights + 64 + j])
        w3 = i32(h[weights + 96 + j])
        w4 = i32(h[weights + 128 + j])
        w5 = i32(h[weights + 160 + j])
        w6 = i32(h[weights + 192 + j])
        w7 = i32(h[weights + 224 + j])
        for t in range(i64(16)):
            low = i32(h[x + j * 16 + t]) & 255
            k[acc + t] += w0 * low
            k[acc + 32 + t] += w1 * low
            k[acc + 64 + t] += w2 * low
            k[acc + 96 + t] += w3 * low
            k[acc + 128 + t] += w4 * low
            k[acc + 160 + t] += w5 * low
            k[acc + 192 + t] += w6 * low
            k[acc + 224 + t] += w7 * low


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


def eight_rows(
    h: vec[i16], hs: i64, blocks: i64, minimum: i64, x: i64, tokens: i64, k: vec[i32], sums: i64, ks: i64,
    f: vec[float], scale: i64, fs: i64
) -> None:  # fmt: skip
    """f[fs + r * 32 + t] = unpacked row r times token t < tokens of the tile at h[x], f[scale], k[sums]."""
    for t in range(i64(256)):
        f[fs + t] = 0.0
    b: i64 = 0
    while b < blocks:
        count: i64 = blocks - b
        if count > 4:
            count = 4
        for i in range(count):
            if tokens <= 16:
                dot_rows_low(h, hs + (b + i) * 256, x + (b + i) * 512, k, ks + 1024 + (b + i) * 8, ks + i * 256)
            else:
                dot_rows(h, hs + (b + i) * 256, x + (b + i) * 512, k, ks + 1024 + (b + i) * 8, ks + i * 256)
        d: i64 = fs + 256 + b * 8
        parts: i64 = (tokens + 15) >> 4
        if count == 4 and minimum == 0:
            add_scaled_4(k, ks, f, d, scale + b * 32, fs, parts)
        elif count == 4:
            widen_sums(k, sums + b * 32, f, fs + 256 + blocks * 16)
            add_with_minimum_4(k, ks, f, fs + 256 + blocks * 16, d, d + blocks * 8, scale + b * 32, fs, parts)
        else:
            for i in range(count):
                at: i64 = scale + (b + i) * 32
                if minimum == 0:
                    add_scaled(k, ks + i * 256, f, d + i * 8, at, fs)
                else:
                    m: i64 = d + (blocks + i) * 8
                    add_with_minimum(k, ks + i * 256, sums + (b + i) * 32, f, d + i * 8, m, at, fs)
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
