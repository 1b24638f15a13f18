"""A few rows of weights times tiles of 32 tokens, tokens in lanes: what every quantised format shares in a prefill.

A format only unpacks: rows become i16 integers (the K types' sub-scales multiplied in) with one or two float64 factors
per group. Four rows at a time meet one tile: each activation is widened once for the four. Activations are stored as
q + 128, unsigned: multiplying a zero-extended value lets the compiler use the pairwise i16 product with accumulation
(vpmaddwd, vpdpwssd) where signed ones end in the slower i32 product. 128 times the sum of the weights is taken off
again: all of it exact in integers. Two tokens share an i16 because C's byte may alias every other type: accumulators
would go through memory.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64


def weight_sums(h: vec[i16], weights: i64, count: i64, group: i64, k: vec[i32], out: i64) -> None:
    """k[out + g] = -128 * the sum of group g of h[weights:], for `count` groups."""
    for g in range(count):
        total: i32 = 0
        for j in range(group):
            total += i32(h[weights + g * group + j])
        k[out + g] = total * -128


def start_rows(k: vec[i32], sums: i64, stride: i64, acc: i64) -> None:
    """k[acc + r * 32 + t] = k[sums + r * stride] for four rows r."""
    for r in range(i64(4)):
        value: i32 = k[sums + r * stride]
        for t in range(i64(32)):
            k[acc + r * 32 + t] = value


def dot_rows(h: vec[i16], weights: i64, stride: i64, x: i64, count: i64, k: vec[i32], acc: i64) -> None:
    """k[acc + r * 32 + t] += sum over j < count of h[weights + r * stride + j] * lane t of position j, four rows r.

    h[x + j * 16 + i] holds lanes i (low byte) and i + 16 (high byte) of position j, unsigned.
    """
    second: i64 = weights + stride
    third: i64 = second + stride
    fourth: i64 = third + stride
    for j in range(count):
        w0: i32 = i32(h[weights + j])
        w1: i32 = i32(h[second + j])
        w2: i32 = i32(h[third + j])
        w3: i32 = i32(h[fourth + j])
        for t in range(i64(16)):
            both: i32 = i32(h[x + j * 16 + t])
            low: i32 = both & 255
            high: i32 = (both >> 8) & 255
            k[acc + t] += w0 * low
            k[acc + 16 + t] += w0 * high
            k[acc + 32 + t] += w1 * low
            k[acc + 48 + t] += w1 * high
            k[acc + 64 + t] += w2 * low
            k[acc + 80 + t] += w2 * high
            k[acc + 96 + t] += w3 * low
            k[acc + 112 + t] += w3 * high


def minimum_sums(h: vec[i16], mins: i64, stride: i64, k: vec[i32], sums: i64, out: i64) -> None:
    """k[out + r * 32 + t] = sum over 16 parts s of h[mins + r * stride + s] * k[sums + s * 32 + t], four rows r."""
    for r in range(i64(4)):
        for t in range(i64(32)):
            k[out + r * 32 + t] = 0
        for s in range(i64(16)):
            m: i32 = i32(h[mins + r * stride + s])
            for t in range(i64(32)):
                k[out + r * 32 + t] += m * k[sums + s * 32 + t]


def add_scaled(k: vec[i32], acc: i64, f: vec[float], d: i64, stride: i64, scale: i64, total: i64) -> None:
    """f[total + r * 32 + t] += k[acc + r * 32 + t] * f[d + r * stride] * f[scale + t], four rows r."""
    for r in range(i64(4)):
        factor: float = f[d + r * stride]
        for t in range(i64(32)):
            f[total + r * 32 + t] += float(k[acc + r * 32 + t]) * factor * f[scale + t]


def add_with_minimum(
    k: vec[i32], acc: i64, minimum: i64, step: i64, f: vec[float], d: i64, m: i64, stride: i64, scale: i64, total: i64
) -> None:
    """f[total + r * 32 + t] += (acc * d + minimum * m) * scale, four rows r; minima are k[minimum + r * step + t]."""
    for r in range(i64(4)):
        factor: float = f[d + r * stride]
        lowest: float = f[m + r * stride]
        for t in range(i64(32)):
            f[total + r * 32 + t] += (
                float(k[acc + r * 32 + t]) * factor + float(k[minimum + r * step + t]) * lowest
            ) * f[scale + t]


def store_rows(f: vec[float], total: i64, rows: i64, tokens: i64, y: i64, ystride: i64, accumulate: i64) -> None:
    """f[y + t * ystride + r] (+)= f[total + r * 32 + t] for r < rows, t < tokens."""
    for r in range(rows):
        for t in range(tokens):
            if accumulate != 0:
                f[y + t * ystride + r] += f[total + r * 32 + t]
            else:
                f[y + t * ystride + r] = f[total + r * 32 + t]


def four_rows(
    h: vec[i16], hs: i64, cols: i64, group: i64, minima: i64, x: i64, k: vec[i32], sums: i64, ks: i64,
    f: vec[float], scale: i64, fs: i64
) -> None:  # fmt: skip
    """f[fs + r * 32 + t] = unpacked row r times token t of one tile, four rows.

    minima: 0 = none, 1 = one per group, 2 = sixteen integers per group as well. Scratch as matmul.unpack_rows left it:
    h[hs + r * cols + j] weights, then h[hs + 4 * cols + (r * groups + g) * 16 + s] integer minima; f[fs + 128:]
    factors d [4][groups], then m [4][groups]; k[ks + 256:] weight sums [4][groups]; k[ks:ks+256] accumulators.
    """
    groups: i64 = cols // group
    d: i64 = fs + 128
    m: i64 = d + 4 * groups
    for t in range(i64(128)):
        f[fs + t] = 0.0
    for g in range(groups):
        start_rows(k, ks + 256 + g, groups, ks)
        dot_rows(h, hs + g * group, cols, x + g * group * 16, group, k, ks)
        if minima == 0:
            add_scaled(k, ks, f, d + g, groups, scale + g * 32, fs)
        elif minima == 1:
            add_with_minimum(k, ks, sums + g * 32, 0, f, d + g, m + g, groups, scale + g * 32, fs)
        else:
            minimum_sums(h, hs + 4 * cols + g * 16, groups * 16, k, sums + g * 512, ks + 128)
            add_with_minimum(k, ks, ks + 128, 32, f, d + g, m + g, groups, scale + g * 32, fs)
