"""Eight dot products of float64 rows at once, two rows with each of four, their lanes written out: see dense.py.

Two rows of weights meet four tokens, or two tokens four rows of weights. All eight dots' lanes stay in registers, 16
vectors of eight, so that six rows read give eight products: with fewer the loads would be what takes the time.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma
from rml.kernels.lanes import halve


def eight_dots(
    f: vec[float], pair: i64, pair_step: i64, four: i64, four_step: i64, count: i64, before: i64, after: i64,
    last: i64,
) -> None:  # fmt: skip
    """f[after:], [2][4][8]: eight sums of two rows, `pair_step` apart, times four, `four_step` apart.

    Of `count` values, added to the lanes at `before`. A long row may be taken in pieces, each a multiple of 16 but the
    last: until then (last = 0) the lanes are kept, [2][4][16].
    """
    a0, a1, a2, a3 = f[before], f[before + 1], f[before + 2], f[before + 3]
    a4, a5, a6, a7 = f[before + 4], f[before + 5], f[before + 6], f[before + 7]
    a8, a9, a10, a11 = f[before + 8], f[before + 9], f[before + 10], f[before + 11]
    a12, a13, a14, a15 = f[before + 12], f[before + 13], f[before + 14], f[before + 15]
    b0, b1, b2, b3 = f[before + 16], f[before + 17], f[before + 18], f[before + 19]
    b4, b5, b6, b7 = f[before + 20], f[before + 21], f[before + 22], f[before + 23]
    b8, b9, b10, b11 = f[before + 24], f[before + 25], f[before + 26], f[before + 27]
    b12, b13, b14, b15 = f[before + 28], f[before + 29], f[before + 30], f[before + 31]
    c0, c1, c2, c3 = f[before + 32], f[before + 33], f[before + 34], f[before + 35]
    c4, c5, c6, c7 = f[before + 36], f[before + 37], f[before + 38], f[before + 39]
    c8, c9, c10, c11 = f[before + 40], f[before + 41], f[before + 42], f[before + 43]
    c12, c13, c14, c15 = f[before + 44], f[before + 45], f[before + 46], f[before + 47]
    d0, d1, d2, d3 = f[before + 48], f[before + 49], f[before + 50], f[before + 51]
    d4, d5, d6, d7 = f[before + 52], f[before + 53], f[before + 54], f[before + 55]
    d8, d9, d10, d11 = f[before + 56], f[before + 57], f[before + 58], f[before + 59]
    d12, d13, d14, d15 = f[before + 60], f[before + 61], f[before + 62], f[before + 63]
    e0, e1, e2, e3 = f[before + 64], f[before + 65], f[before + 66], f[before + 67]
    e4, e5, e6, e7 = f[before + 68], f[before + 69], f[before + 70], f[before + 71]
    e8, e9, e10, e11 = f[before + 72], f[before + 73], f[before + 74], f[before + 75]
    e12, e13, e14, e15 = f[before + 76], f[before + 77], f[before + 78], f[before + 79]
    f0, f1, f2, f3 = f[before + 80], f[before + 81], f[before + 82], f[before + 83]
    f4, f5, f6, f7 = f[before + 84], f[before + 85], f[before + 86], f[before + 87]
    f8, f9, f10, f11 = f[before + 88], f[before + 89], f[before + 90], f[before + 91]
    f12, f13, f14, f15 = f[before + 92], f[before + 93], f[before + 94], f[before + 95]
    g0, g1, g2, g3 = f[before + 96], f[before + 97], f[before + 98], f[before + 99]
    g4, g5, g6, g7 = f[before + 100], f[before + 101], f[before + 102], f[before + 103]
    g8, g9, g10, g11 = f[before + 104], f[before + 105], f[before + 106], f[before + 107]
    g12, g13, g14, g15 = f[before + 108], f[before + 109], f[before + 110], f[before + 111]
    h0, h1, h2, h3 = f[before + 112], f[before + 113], f[before + 114], f[before + 115]
    h4, h5, h6, h7 = f[before + 116], f[before + 117], f[before + 118], f[before + 119]
    h8, h9, h10, h11 = f[before + 120], f[before + 121], f[before + 122], f[before + 123]
    h12, h13, h14, h15 = f[before + 124], f[before + 125], f[before + 126], f[before + 127]
    for b in range(count >> 4):
        p: i64 = pair + b * 16
        q: i64 = p + pair_step
        s: i64 = four + b * 16
        u: i64 = s + four_step
        v: i64 = u + four_step
        w: i64 = v + four_step
        a0 = fma(f[p], f[s], a0)
        a1 = fma(f[p + 1], f[s + 1], a1)
        a2 = fma(f[p + 2], f[s + 2], a2)
        a3 = fma(f[p + 3], f[s + 3], a3)
        a4 = fma(f[p + 4], f[s + 4], a4)
        a5 = fma(f[p + 5], f[s + 5], a5)
        a6 = fma(f[p + 6], f[s + 6], a6)
        a7 = fma(f[p + 7], f[s + 7], a7)
        a8 = fma(f[p + 8], f[s + 8], a8)
        a9 = fma(f[p + 9], f[s + 9], a9)
        a10 = fma(f[p + 10], f[s + 10], a10)
        a11 = fma(f[p + 11], f[s + 11], a11)
        a12 = fma(f[p + 12], f[s + 12], a12)
        a13 = fma(f[p + 13], f[s + 13], a13)
        a14 = fma(f[p + 14], f[s + 14], a14)
        a15 = fma(f[p + 15], f[s + 15], a15)
        b0 = fma(f[p], f[u], b0)
        b1 = fma(f[p + 1], f[u + 1], b1)
        b2 = fma(f[p + 2], f[u + 2], b2)
        b3 = fma(f[p + 3], f[u + 3], b3)
        b4 = fma(f[p + 4], f[u + 4], b4)
        b5 = fma(f[p + 5], f[u + 5], b5)
        b6 = fma(f[p + 6], f[u + 6], b6)
        b7 = fma(f[p + 7], f[u + 7], b7)
        b8 = fma(f[p + 8], f[u + 8], b8)
        b9 = fma(f[p + 9], f[u + 9], b9)
        b10 = fma(f[p + 10], f[u + 10], b10)
        b11 = fma(f[p + 11], f[u + 11], b11)
        b12 = fma(f[p + 12], f[u + 12], b12)
        b13 = fma(f[p + 13], f[u + 13], b13)
        b14 = fma(f[p + 14], f[u + 14], b14)
        b15 = fma(f[p + 15], f[u + 15], b15)
        c0 = fma(f[p], f[v], c0)
        c1 = fma(f[p + 1], f[v + 1], c1)
        c2 = fma(f[p + 2], f[v + 2], c2)
        c3 = fma(f[p + 3], f[v + 3], c3)
        c4 = fma(f[p + 4], f[v + 4], c4)
        c5 = fma(f[p + 5], f[v + 5], c5)
        c6 = fma(f[p + 6], f[v + 6], c6)
        c7 = fma(f[p + 7], f[v + 7], c7)
        c8 = fma(f[p + 8], f[v + 8], c8)
        c9 = fma(f[p + 9], f[v + 9], c9)
        c10 = fma(f[p + 10], f[v + 10], c10)
        c11 = fma(f[p + 11], f[v + 11], c11)
        c12 = fma(f[p + 12], f[v + 12], c12)
        c13 = fma(f[p + 13], f[v + 13], c13)
        c14 = fma(f[p + 14], f[v + 14], c14)
        c15 = fma(f[p + 15], f[v + 15], c15)
        d0 = fma(f[p], f[w], d0)
        d1 = fma(f[p + 1], f[w + 1], d1)
        d2 = fma(f[p + 2], f[w + 2], d2)
        d3 = fma(f[p + 3], f[w + 3], d3)
        d4 = fma(f[p + 4], f[w + 4], d4)
        d5 = fma(f[p + 5], f[w + 5], d5)
        d6 = fma(f[p + 6], f[w + 6], d6)
        d7 = fma(f[p + 7], f[w + 7], d7)
        d8 = fma(f[p + 8], f[w + 8], d8)
        d9 = fma(f[p + 9], f[w + 9], d9)
        d10 = fma(f[p + 10], f[w + 10], d10)
        d11 = fma(f[p + 11], f[w + 11], d11)
        d12 = fma(f[p + 12], f[w + 12], d12)
        d13 = fma(f[p + 13], f[w + 13], d13)
        d14 = fma(f[p + 14], f[w + 14], d14)
        d15 = fma(f[p + 15], f[w + 15], d15)
        e0 = fma(f[q], f[s], e0)
        e1 = fma(f[q + 1], f[s + 1], e1)
        e2 = fma(f[q + 2], f[s + 2], e2)
        e3 = fma(f[q + 3], f[s + 3], e3)
        e4 = fma(f[q + 4], f[s + 4], e4)
        e5 = fma(f[q + 5], f[s + 5], e5)
        e6 = fma(f[q + 6], f[s + 6], e6)
        e7 = fma(f[q + 7], f[s + 7], e7)
        e8 = fma(f[q + 8], f[s + 8], e8)
        e9 = fma(f[q + 9], f[s + 9], e9)
        e10 = fma(f[q + 10], f[s + 10], e10)
        e11 = fma(f[q + 11], f[s + 11], e11)
        e12 = fma(f[q + 12], f[s + 12], e12)
        e13 = fma(f[q + 13], f[s + 13], e13)
        e14 = fma(f[q + 14], f[s + 14], e14)
        e15 = fma(f[q + 15], f[s + 15], e15)
        f0 = fma(f[q], f[u], f0)
        f1 = fma(f[q + 1], f[u + 1], f1)
        f2 = fma(f[q + 2], f[u + 2], f2)
        f3 = fma(f[q + 3], f[u + 3], f3)
        f4 = fma(f[q + 4], f[u + 4], f4)
        f5 = fma(f[q + 5], f[u + 5], f5)
        f6 = fma(f[q + 6], f[u + 6], f6)
        f7 = fma(f[q + 7], f[u + 7], f7)
        f8 = fma(f[q + 8], f[u + 8], f8)
        f9 = fma(f[q + 9], f[u + 9], f9)
        f10 = fma(f[q + 10], f[u + 10], f10)
        f11 = fma(f[q + 11], f[u + 11], f11)
        f12 = fma(f[q + 12], f[u + 12], f12)
        f13 = fma(f[q + 13], f[u + 13], f13)
        f14 = fma(f[q + 14], f[u + 14], f14)
        f15 = fma(f[q + 15], f[u + 15], f15)
        g0 = fma(f[q], f[v], g0)
        g1 = fma(f[q + 1], f[v + 1], g1)
        g2 = fma(f[q + 2], f[v + 2], g2)
        g3 = fma(f[q + 3], f[v + 3], g3)
        g4 = fma(f[q + 4], f[v + 4], g4)
        g5 = fma(f[q + 5], f[v + 5], g5)
        g6 = fma(f[q + 6], f[v + 6], g6)
        g7 = fma(f[q + 7], f[v + 7], g7)
        g8 = fma(f[q + 8], f[v + 8], g8)
        g9 = fma(f[q + 9], f[v + 9], g9)
        g10 = fma(f[q + 10], f[v + 10], g10)
        g11 = fma(f[q + 11], f[v + 11], g11)
        g12 = fma(f[q + 12], f[v + 12], g12)
        g13 = fma(f[q + 13], f[v + 13], g13)
        g14 = fma(f[q + 14], f[v + 14], g14)
        g15 = fma(f[q + 15], f[v + 15], g15)
        h0 = fma(f[q], f[w], h0)
        h1 = fma(f[q + 1], f[w + 1], h1)
        h2 = fma(f[q + 2], f[w + 2], h2)
        h3 = fma(f[q + 3], f[w + 3], h3)
        h4 = fma(f[q + 4], f[w + 4], h4)
        h5 = fma(f[q + 5], f[w + 5], h5)
        h6 = fma(f[q + 6], f[w + 6], h6)
        h7 = fma(f[q + 7], f[w + 7], h7)
        h8 = fma(f[q + 8], f[w + 8], h8)
        h9 = fma(f[q + 9], f[w + 9], h9)
        h10 = fma(f[q + 10], f[w + 10], h10)
        h11 = fma(f[q + 11], f[w + 11], h11)
        h12 = fma(f[q + 12], f[w + 12], h12)
        h13 = fma(f[q + 13], f[w + 13], h13)
        h14 = fma(f[q + 14], f[w + 14], h14)
        h15 = fma(f[q + 15], f[w + 15], h15)
    if last == 1 and count & 15 == 0:
        f[after], f[after + 1], f[after + 2], f[after + 3] = a0 + a8, a1 + a9, a2 + a10, a3 + a11
        f[after + 4], f[after + 5], f[after + 6], f[after + 7] = a4 + a12, a5 + a13, a6 + a14, a7 + a15
        f[after + 8], f[after + 9], f[after + 10], f[after + 11] = b0 + b8, b1 + b9, b2 + b10, b3 + b11
        f[after + 12], f[after + 13], f[after + 14], f[after + 15] = b4 + b12, b5 + b13, b6 + b14, b7 + b15
        f[after + 16], f[after + 17], f[after + 18], f[after + 19] = c0 + c8, c1 + c9, c2 + c10, c3 + c11
        f[after + 20], f[after + 21], f[after + 22], f[after + 23] = c4 + c12, c5 + c13, c6 + c14, c7 + c15
        f[after + 24], f[after + 25], f[after + 26], f[after + 27] = d0 + d8, d1 + d9, d2 + d10, d3 + d11
        f[after + 28], f[after + 29], f[after + 30], f[after + 31] = d4 + d12, d5 + d13, d6 + d14, d7 + d15
        f[after + 32], f[after + 33], f[after + 34], f[after + 35] = e0 + e8, e1 + e9, e2 + e10, e3 + e11
        f[after + 36], f[after + 37], f[after + 38], f[after + 39] = e4 + e12, e5 + e13, e6 + e14, e7 + e15
        f[after + 40], f[after + 41], f[after + 42], f[after + 43] = f0 + f8, f1 + f9, f2 + f10, f3 + f11
        f[after + 44], f[after + 45], f[after + 46], f[after + 47] = f4 + f12, f5 + f13, f6 + f14, f7 + f15
        f[after + 48], f[after + 49], f[after + 50], f[after + 51] = g0 + g8, g1 + g9, g2 + g10, g3 + g11
        f[after + 52], f[after + 53], f[after + 54], f[after + 55] = g4 + g12, g5 + g13, g6 + g14, g7 + g15
        f[after + 56], f[after + 57], f[after + 58], f[after + 59] = h0 + h8, h1 + h9, h2 + h10, h3 + h11
        f[after + 60], f[after + 61], f[after + 62], f[after + 63] = h4 + h12, h5 + h13, h6 + h14, h7 + h15
        return
    f[after], f[after + 1], f[after + 2], f[after + 3] = a0, a1, a2, a3
    f[after + 4], f[after + 5], f[after + 6], f[after + 7] = a4, a5, a6, a7
    f[after + 8], f[after + 9], f[after + 10], f[after + 11] = a8, a9, a10, a11
    f[after + 12], f[after + 13], f[after + 14], f[after + 15] = a12, a13, a14, a15
    f[after + 16], f[after + 17], f[after + 18], f[after + 19] = b0, b1, b2, b3
    f[after + 20], f[after + 21], f[after + 22], f[after + 23] = b4, b5, b6, b7
    f[after + 24], f[after + 25], f[after + 26], f[after + 27] = b8, b9, b10, b11
    f[after + 28], f[after + 29], f[after + 30], f[after + 31] = b12, b13, b14, b15
    f[after + 32], f[after + 33], f[after + 34], f[after + 35] = c0, c1, c2, c3
    f[after + 36], f[after + 37], f[after + 38], f[after + 39] = c4, c5, c6, c7
    f[after + 40], f[after + 41], f[after + 42], f[after + 43] = c8, c9, c10, c11
    f[after + 44], f[after + 45], f[after + 46], f[after + 47] = c12, c13, c14, c15
    f[after + 48], f[after + 49], f[after + 50], f[after + 51] = d0, d1, d2, d3
    f[after + 52], f[after + 53], f[after + 54], f[after + 55] = d4, d5, d6, d7
    f[after + 56], f[after + 57], f[after + 58], f[after + 59] = d8, d9, d10, d11
    f[after + 60], f[after + 61], f[after + 62], f[after + 63] = d12, d13, d14, d15
    f[after + 64], f[after + 65], f[after + 66], f[after + 67] = e0, e1, e2, e3
    f[after + 68], f[after + 69], f[after + 70], f[after + 71] = e4, e5, e6, e7
    f[after + 72], f[after + 73], f[after + 74], f[after + 75] = e8, e9, e10, e11
    f[after + 76], f[after + 77], f[after + 78], f[after + 79] = e12, e13, e14, e15
    f[after + 80], f[after + 81], f[after + 82], f[after + 83] = f0, f1, f2, f3
    f[after + 84], f[after + 85], f[after + 86], f[after + 87] = f4, f5, f6, f7
    f[after + 88], f[after + 89], f[after + 90], f[after + 91] = f8, f9, f10, f11
    f[after + 92], f[after + 93], f[after + 94], f[after + 95] = f12, f13, f14, f15
    f[after + 96], f[after + 97], f[after + 98], f[after + 99] = g0, g1, g2, g3
    f[after + 100], f[after + 101], f[after + 102], f[after + 103] = g4, g5, g6, g7
    f[after + 104], f[after + 105], f[after + 106], f[after + 107] = g8, g9, g10, g11
    f[after + 108], f[after + 109], f[after + 110], f[after + 111] = g12, g13, g14, g15
    f[after + 112], f[after + 113], f[after + 114], f[after + 115] = h0, h1, h2, h3
    f[after + 116], f[after + 117], f[after + 118], f[after + 119] = h4, h5, h6, h7
    f[after + 120], f[after + 121], f[after + 122], f[after + 123] = h8, h9, h10, h11
    f[after + 124], f[after + 125], f[after + 126], f[after + 127] = h12, h13, h14, h15
    done: i64 = (count >> 4) * 16
    for i in range(i64(8)):
        y: i64 = pair + (i >> 2) * pair_step + done
        z: i64 = four + (i & 3) * four_step + done
        for t in range(count - done):
            f[after + i * 16 + t] = fma(f[y + t], f[z + t], f[after + i * 16 + t])
    if last == 1:
        halve(f, after, 8, 8)
