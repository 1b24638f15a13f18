"""Scores of many queries and sixteen keys: a key in each lane, so that no lanes are added up. The same bits as others.

The ring's rows are turned once, [dim][16 keys]. With few queries that costs more than it saves: attend_scores.py.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


def turn_rows(f: vec[float], ring: i64, stride: i64, dim: i64, out: i64) -> None:
    """f[out + d * 16 + j] = f[ring + j * stride + d]: 16 rows of `dim` values as columns."""
    for d in range(dim):
        r: i64 = ring + d
        o: i64 = out + d * 16
        f[o] = f[r]
        f[o + 1] = f[r + stride]
        f[o + 2] = f[r + 2 * stride]
        f[o + 3] = f[r + 3 * stride]
        f[o + 4] = f[r + 4 * stride]
        f[o + 5] = f[r + 5 * stride]
        f[o + 6] = f[r + 6 * stride]
        f[o + 7] = f[r + 7 * stride]
        f[o + 8] = f[r + 8 * stride]
        f[o + 9] = f[r + 9 * stride]
        f[o + 10] = f[r + 10 * stride]
        f[o + 11] = f[r + 11 * stride]
        f[o + 12] = f[r + 12 * stride]
        f[o + 13] = f[r + 13 * stride]
        f[o + 14] = f[r + 14 * stride]
        f[o + 15] = f[r + 15 * stride]


def turned_scores_4(f: vec[float], keys: i64, q: i64, dim: i64, out: i64) -> None:
    """f[out + t * 64 + v * 16 + j] = the sum of partial sums t and t + 4, for t < 4, of query v of four and key j.

    keys: the turned rows. Partial sums as in attend_scores; queries are `dim` apart.
    """
    for t in range(i64(4)):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        a8 = a9 = a10 = a11 = a12 = a13 = a14 = a15 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        b8 = b9 = b10 = b11 = b12 = b13 = b14 = b15 = 0.0
        c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = 0.0
        c8 = c9 = c10 = c11 = c12 = c13 = c14 = c15 = 0.0
        d0 = d1 = d2 = d3 = d4 = d5 = d6 = d7 = 0.0
        d8 = d9 = d10 = d11 = d12 = d13 = d14 = d15 = 0.0
        e0 = e1 = e2 = e3 = e4 = e5 = e6 = e7 = 0.0
        e8 = e9 = e10 = e11 = e12 = e13 = e14 = e15 = 0.0
        f0 = f1 = f2 = f3 = f4 = f5 = f6 = f7 = 0.0
        f8 = f9 = f10 = f11 = f12 = f13 = f14 = f15 = 0.0
        g0 = g1 = g2 = g3 = g4 = g5 = g6 = g7 = 0.0
        g8 = g9 = g10 = g11 = g12 = g13 = g14 = g15 = 0.0
        h0 = h1 = h2 = h3 = h4 = h5 = h6 = h7 = 0.0
        h8 = h9 = h10 = h11 = h12 = h13 = h14 = h15 = 0.0
        for b in range(dim >> 3):
            x: i64 = keys + (b * 8 + t) * 16
            s: i64 = q + b * 8 + t
            s1: i64 = s + dim
            s2: i64 = s1 + dim
            s3: i64 = s2 + dim
            p0: float = f[s]
            p1: float = f[s1]
            p2: float = f[s2]
            p3: float = f[s3]
            a0 += p0 * f[x]
            a1 += p0 * f[x + 1]
            a2 += p0 * f[x + 2]
            a3 += p0 * f[x + 3]
            a4 += p0 * f[x + 4]
            a5 += p0 * f[x + 5]
            a6 += p0 * f[x + 6]
            a7 += p0 * f[x + 7]
            a8 += p0 * f[x + 8]
            a9 += p0 * f[x + 9]
            a10 += p0 * f[x + 10]
            a11 += p0 * f[x + 11]
            a12 += p0 * f[x + 12]
            a13 += p0 * f[x + 13]
            a14 += p0 * f[x + 14]
            a15 += p0 * f[x + 15]
            b0 += p1 * f[x]
            b1 += p1 * f[x + 1]
            b2 += p1 * f[x + 2]
            b3 += p1 * f[x + 3]
            b4 += p1 * f[x + 4]
            b5 += p1 * f[x + 5]
            b6 += p1 * f[x + 6]
            b7 += p1 * f[x + 7]
            b8 += p1 * f[x + 8]
            b9 += p1 * f[x + 9]
            b10 += p1 * f[x + 10]
            b11 += p1 * f[x + 11]
            b12 += p1 * f[x + 12]
            b13 += p1 * f[x + 13]
            b14 += p1 * f[x + 14]
            b15 += p1 * f[x + 15]
            c0 += p2 * f[x]
            c1 += p2 * f[x + 1]
            c2 += p2 * f[x + 2]
            c3 += p2 * f[x + 3]
            c4 += p2 * f[x + 4]
            c5 += p2 * f[x + 5]
            c6 += p2 * f[x + 6]
            c7 += p2 * f[x + 7]
            c8 += p2 * f[x + 8]
            c9 += p2 * f[x + 9]
            c10 += p2 * f[x + 10]
            c11 += p2 * f[x + 11]
            c12 += p2 * f[x + 12]
            c13 += p2 * f[x + 13]
            c14 += p2 * f[x + 14]
            c15 += p2 * f[x + 15]
            d0 += p3 * f[x]
            d1 += p3 * f[x + 1]
            d2 += p3 * f[x + 2]
            d3 += p3 * f[x + 3]
            d4 += p3 * f[x + 4]
            d5 += p3 * f[x + 5]
            d6 += p3 * f[x + 6]
            d7 += p3 * f[x + 7]
            d8 += p3 * f[x + 8]
            d9 += p3 * f[x + 9]
            d10 += p3 * f[x + 10]
            d11 += p3 * f[x + 11]
            d12 += p3 * f[x + 12]
            d13 += p3 * f[x + 13]
            d14 += p3 * f[x + 14]
            d15 += p3 * f[x + 15]
            x += 64
            p0 = f[s + 4]
            p1 = f[s1 + 4]
            p2 = f[s2 + 4]
            p3 = f[s3 + 4]
            e0 += p0 * f[x]
            e1 += p0 * f[x + 1]
            e2 += p0 * f[x + 2]
            e3 += p0 * f[x + 3]
            e4 += p0 * f[x + 4]
            e5 += p0 * f[x + 5]
            e6 += p0 * f[x + 6]
            e7 += p0 * f[x + 7]
            e8 += p0 * f[x + 8]
            e9 += p0 * f[x + 9]
            e10 += p0 * f[x + 10]
            e11 += p0 * f[x + 11]
            e12 += p0 * f[x + 12]
            e13 += p0 * f[x + 13]
            e14 += p0 * f[x + 14]
            e15 += p0 * f[x + 15]
            f0 += p1 * f[x]
            f1 += p1 * f[x + 1]
            f2 += p1 * f[x + 2]
            f3 += p1 * f[x + 3]
            f4 += p1 * f[x + 4]
            f5 += p1 * f[x + 5]
            f6 += p1 * f[x + 6]
            f7 += p1 * f[x + 7]
            f8 += p1 * f[x + 8]
            f9 += p1 * f[x + 9]
            f10 += p1 * f[x + 10]
            f11 += p1 * f[x + 11]
            f12 += p1 * f[x + 12]
            f13 += p1 * f[x + 13]
            f14 += p1 * f[x + 14]
            f15 += p1 * f[x + 15]
            g0 += p2 * f[x]
            g1 += p2 * f[x + 1]
            g2 += p2 * f[x + 2]
            g3 += p2 * f[x + 3]
            g4 += p2 * f[x + 4]
            g5 += p2 * f[x + 5]
            g6 += p2 * f[x + 6]
            g7 += p2 * f[x + 7]
            g8 += p2 * f[x + 8]
            g9 += p2 * f[x + 9]
            g10 += p2 * f[x + 10]
            g11 += p2 * f[x + 11]
            g12 += p2 * f[x + 12]
            g13 += p2 * f[x + 13]
            g14 += p2 * f[x + 14]
            g15 += p2 * f[x + 15]
            h0 += p3 * f[x]
            h1 += p3 * f[x + 1]
            h2 += p3 * f[x + 2]
            h3 += p3 * f[x + 3]
            h4 += p3 * f[x + 4]
            h5 += p3 * f[x + 5]
            h6 += p3 * f[x + 6]
            h7 += p3 * f[x + 7]
            h8 += p3 * f[x + 8]
            h9 += p3 * f[x + 9]
            h10 += p3 * f[x + 10]
            h11 += p3 * f[x + 11]
            h12 += p3 * f[x + 12]
            h13 += p3 * f[x + 13]
            h14 += p3 * f[x + 14]
            h15 += p3 * f[x + 15]
        y: i64 = out + t * 64
        f[y] = a0 + e0
        f[y + 1] = a1 + e1
        f[y + 2] = a2 + e2
        f[y + 3] = a3 + e3
        f[y + 4] = a4 + e4
        f[y + 5] = a5 + e5
        f[y + 6] = a6 + e6
        f[y + 7] = a7 + e7
        f[y + 8] = a8 + e8
        f[y + 9] = a9 + e9
        f[y + 10] = a10 + e10
        f[y + 11] = a11 + e11
        f[y + 12] = a12 + e12
        f[y + 13] = a13 + e13
        f[y + 14] = a14 + e14
        f[y + 15] = a15 + e15
        f[y + 16] = b0 + f0
        f[y + 17] = b1 + f1
        f[y + 18] = b2 + f2
        f[y + 19] = b3 + f3
        f[y + 20] = b4 + f4
        f[y + 21] = b5 + f5
        f[y + 22] = b6 + f6
        f[y + 23] = b7 + f7
        f[y + 24] = b8 + f8
        f[y + 25] = b9 + f9
        f[y + 26] = b10 + f10
        f[y + 27] = b11 + f11
        f[y + 28] = b12 + f12
        f[y + 29] = b13 + f13
        f[y + 30] = b14 + f14
        f[y + 31] = b15 + f15
        f[y + 32] = c0 + g0
        f[y + 33] = c1 + g1
        f[y + 34] = c2 + g2
        f[y + 35] = c3 + g3
        f[y + 36] = c4 + g4
        f[y + 37] = c5 + g5
        f[y + 38] = c6 + g6
        f[y + 39] = c7 + g7
        f[y + 40] = c8 + g8
        f[y + 41] = c9 + g9
        f[y + 42] = c10 + g10
        f[y + 43] = c11 + g11
        f[y + 44] = c12 + g12
        f[y + 45] = c13 + g13
        f[y + 46] = c14 + g14
        f[y + 47] = c15 + g15
        f[y + 48] = d0 + h0
        f[y + 49] = d1 + h1
        f[y + 50] = d2 + h2
        f[y + 51] = d3 + h3
        f[y + 52] = d4 + h4
        f[y + 53] = d5 + h5
        f[y + 54] = d6 + h6
        f[y + 55] = d7 + h7
        f[y + 56] = d8 + h8
        f[y + 57] = d9 + h9
        f[y + 58] = d10 + h10
        f[y + 59] = d11 + h11
        f[y + 60] = d12 + h12
        f[y + 61] = d13 + h13
        f[y + 62] = d14 + h14
        f[y + 63] = d15 + h15


def add_partials(f: vec[float], x: i64, out: i64, scale: float) -> None:
    """out[i] = (the sum of the partial sums x[t * 64 + i]) * scale, for i < 64."""
    for i in range(i64(64)):
        p: i64 = x + i
        f[out + i] = ((f[p] + f[p + 128]) + (f[p + 64] + f[p + 192])) * scale
