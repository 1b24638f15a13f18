"""The inner loops of attention: scores of queries and sixteen keys.

What was measured: eight scalars that start as zeros (or loaded side by side), collect a sum and are stored side by side
become one vector register; stores inside the loop need tests for overlap that cost more than the loop.

A score is the sum of eight partial sums, dimension i belonging to sum i mod 8. Each order of addition is written here;
the functions give the same bits.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma


def partial_scores_1(f: vec[float], key: i64, stride: i64, q: i64, dim: i64, out: i64) -> None:
    """out[j * 8 + t] = sum over d = t mod 8 of key[j * stride + d] * q[d], for the 16 rows j of the ring."""
    for j in range(i64(8)):
        k: i64 = key + j * 2 * stride
        w: i64 = out + j * 16
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        for b in range(dim >> 3):
            x: i64 = k + b * 8
            x1: i64 = x + stride
            s: i64 = q + b * 8
            a0 = fma(f[x], f[s], a0)
            a1 = fma(f[x + 1], f[s + 1], a1)
            a2 = fma(f[x + 2], f[s + 2], a2)
            a3 = fma(f[x + 3], f[s + 3], a3)
            a4 = fma(f[x + 4], f[s + 4], a4)
            a5 = fma(f[x + 5], f[s + 5], a5)
            a6 = fma(f[x + 6], f[s + 6], a6)
            a7 = fma(f[x + 7], f[s + 7], a7)
            b0 = fma(f[x1], f[s], b0)
            b1 = fma(f[x1 + 1], f[s + 1], b1)
            b2 = fma(f[x1 + 2], f[s + 2], b2)
            b3 = fma(f[x1 + 3], f[s + 3], b3)
            b4 = fma(f[x1 + 4], f[s + 4], b4)
            b5 = fma(f[x1 + 5], f[s + 5], b5)
            b6 = fma(f[x1 + 6], f[s + 6], b6)
            b7 = fma(f[x1 + 7], f[s + 7], b7)
        f[w], f[w + 1], f[w + 2], f[w + 3] = a0, a1, a2, a3
        f[w + 4], f[w + 5], f[w + 6], f[w + 7] = a4, a5, a6, a7
        f[w + 8], f[w + 9], f[w + 10], f[w + 11] = b0, b1, b2, b3
        f[w + 12], f[w + 13], f[w + 14], f[w + 15] = b4, b5, b6, b7


def partial_scores_4(f: vec[float], key: i64, stride: i64, q: i64, dim: i64, out: i64) -> None:
    """The same for queries q, q + dim, q + 2 dim, q + 3 dim; their results are 128 entries apart."""
    for j in range(i64(8)):
        k: i64 = key + j * 2 * stride
        w: i64 = out + j * 16
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = 0.0
        d0 = d1 = d2 = d3 = d4 = d5 = d6 = d7 = 0.0
        e0 = e1 = e2 = e3 = e4 = e5 = e6 = e7 = 0.0
        f0 = f1 = f2 = f3 = f4 = f5 = f6 = f7 = 0.0
        g0 = g1 = g2 = g3 = g4 = g5 = g6 = g7 = 0.0
        h0 = h1 = h2 = h3 = h4 = h5 = h6 = h7 = 0.0
        for b in range(dim >> 3):
            x: i64 = k + b * 8
            x1: i64 = x + stride
            s: i64 = q + b * 8
            s1: i64 = s + dim
            s2: i64 = s1 + dim
            s3: i64 = s2 + dim
            a0 = fma(f[x], f[s], a0)
            a1 = fma(f[x + 1], f[s + 1], a1)
            a2 = fma(f[x + 2], f[s + 2], a2)
            a3 = fma(f[x + 3], f[s + 3], a3)
            a4 = fma(f[x + 4], f[s + 4], a4)
            a5 = fma(f[x + 5], f[s + 5], a5)
            a6 = fma(f[x + 6], f[s + 6], a6)
            a7 = fma(f[x + 7], f[s + 7], a7)
            b0 = fma(f[x1], f[s], b0)
            b1 = fma(f[x1 + 1], f[s + 1], b1)
            b2 = fma(f[x1 + 2], f[s + 2], b2)
            b3 = fma(f[x1 + 3], f[s + 3], b3)
            b4 = fma(f[x1 + 4], f[s + 4], b4)
            b5 = fma(f[x1 + 5], f[s + 5], b5)
            b6 = fma(f[x1 + 6], f[s + 6], b6)
            b7 = fma(f[x1 + 7], f[s + 7], b7)
            c0 = fma(f[x], f[s1], c0)
            c1 = fma(f[x + 1], f[s1 + 1], c1)
            c2 = fma(f[x + 2], f[s1 + 2], c2)
            c3 = fma(f[x + 3], f[s1 + 3], c3)
            c4 = fma(f[x + 4], f[s1 + 4], c4)
            c5 = fma(f[x + 5], f[s1 + 5], c5)
            c6 = fma(f[x + 6], f[s1 + 6], c6)
            c7 = fma(f[x + 7], f[s1 + 7], c7)
            d0 = fma(f[x1], f[s1], d0)
            d1 = fma(f[x1 + 1], f[s1 + 1], d1)
            d2 = fma(f[x1 + 2], f[s1 + 2], d2)
            d3 = fma(f[x1 + 3], f[s1 + 3], d3)
            d4 = fma(f[x1 + 4], f[s1 + 4], d4)
            d5 = fma(f[x1 + 5], f[s1 + 5], d5)
            d6 = fma(f[x1 + 6], f[s1 + 6], d6)
            d7 = fma(f[x1 + 7], f[s1 + 7], d7)
            e0 = fma(f[x], f[s2], e0)
            e1 = fma(f[x + 1], f[s2 + 1], e1)
            e2 = fma(f[x + 2], f[s2 + 2], e2)
            e3 = fma(f[x + 3], f[s2 + 3], e3)
            e4 = fma(f[x + 4], f[s2 + 4], e4)
            e5 = fma(f[x + 5], f[s2 + 5], e5)
            e6 = fma(f[x + 6], f[s2 + 6], e6)
            e7 = fma(f[x + 7], f[s2 + 7], e7)
            f0 = fma(f[x1], f[s2], f0)
            f1 = fma(f[x1 + 1], f[s2 + 1], f1)
            f2 = fma(f[x1 + 2], f[s2 + 2], f2)
            f3 = fma(f[x1 + 3], f[s2 + 3], f3)
            f4 = fma(f[x1 + 4], f[s2 + 4], f4)
            f5 = fma(f[x1 + 5], f[s2 + 5], f5)
            f6 = fma(f[x1 + 6], f[s2 + 6], f6)
            f7 = fma(f[x1 + 7], f[s2 + 7], f7)
            g0 = fma(f[x], f[s3], g0)
            g1 = fma(f[x + 1], f[s3 + 1], g1)
            g2 = fma(f[x + 2], f[s3 + 2], g2)
            g3 = fma(f[x + 3], f[s3 + 3], g3)
            g4 = fma(f[x + 4], f[s3 + 4], g4)
            g5 = fma(f[x + 5], f[s3 + 5], g5)
            g6 = fma(f[x + 6], f[s3 + 6], g6)
            g7 = fma(f[x + 7], f[s3 + 7], g7)
            h0 = fma(f[x1], f[s3], h0)
            h1 = fma(f[x1 + 1], f[s3 + 1], h1)
            h2 = fma(f[x1 + 2], f[s3 + 2], h2)
            h3 = fma(f[x1 + 3], f[s3 + 3], h3)
            h4 = fma(f[x1 + 4], f[s3 + 4], h4)
            h5 = fma(f[x1 + 5], f[s3 + 5], h5)
            h6 = fma(f[x1 + 6], f[s3 + 6], h6)
            h7 = fma(f[x1 + 7], f[s3 + 7], h7)
        f[w], f[w + 1], f[w + 2], f[w + 3] = a0, a1, a2, a3
        f[w + 4], f[w + 5], f[w + 6], f[w + 7] = a4, a5, a6, a7
        f[w + 8], f[w + 9], f[w + 10], f[w + 11] = b0, b1, b2, b3
        f[w + 12], f[w + 13], f[w + 14], f[w + 15] = b4, b5, b6, b7
        f[w + 128], f[w + 129], f[w + 130], f[w + 131] = c0, c1, c2, c3
        f[w + 132], f[w + 133], f[w + 134], f[w + 135] = c4, c5, c6, c7
        f[w + 136], f[w + 137], f[w + 138], f[w + 139] = d0, d1, d2, d3
        f[w + 140], f[w + 141], f[w + 142], f[w + 143] = d4, d5, d6, d7
        f[w + 256], f[w + 257], f[w + 258], f[w + 259] = e0, e1, e2, e3
        f[w + 260], f[w + 261], f[w + 262], f[w + 263] = e4, e5, e6, e7
        f[w + 264], f[w + 265], f[w + 266], f[w + 267] = f0, f1, f2, f3
        f[w + 268], f[w + 269], f[w + 270], f[w + 271] = f4, f5, f6, f7
        f[w + 384], f[w + 385], f[w + 386], f[w + 387] = g0, g1, g2, g3
        f[w + 388], f[w + 389], f[w + 390], f[w + 391] = g4, g5, g6, g7
        f[w + 392], f[w + 393], f[w + 394], f[w + 395] = h0, h1, h2, h3
        f[w + 396], f[w + 397], f[w + 398], f[w + 399] = h4, h5, h6, h7


def sum_partials(f: vec[float], x: i64, out: i64, count: i64, scale: float) -> None:
    """out[i] = (the sum of the eight partial sums x[8i:]) * scale, in one written order."""
    for i in range(count):
        p: i64 = x + i * 8
        low: float = (f[p] + f[p + 4]) + (f[p + 2] + f[p + 6])
        f[out + i] = (low + ((f[p + 1] + f[p + 5]) + (f[p + 3] + f[p + 7]))) * scale
