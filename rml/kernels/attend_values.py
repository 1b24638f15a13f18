"""The inner loops of attention: sums of weighted rows. Sixteen sums at a time stay in registers over all rows."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma


def add_values_1(f: vec[float], value: i64, stride: i64, rows: i64, p: i64, dim: i64, out: i64) -> None:
    """out[d] += p[j] * value[j * stride + d], for `rows` rows j in order; dim is a multiple of 16."""
    for c in range(dim >> 4):
        v: i64 = value + c * 16
        o: i64 = out + c * 16
        a0, a1, a2, a3 = f[o], f[o + 1], f[o + 2], f[o + 3]
        a4, a5, a6, a7 = f[o + 4], f[o + 5], f[o + 6], f[o + 7]
        a8, a9, a10, a11 = f[o + 8], f[o + 9], f[o + 10], f[o + 11]
        a12, a13, a14, a15 = f[o + 12], f[o + 13], f[o + 14], f[o + 15]
        for j in range(rows):
            x: i64 = v + j * stride
            p0: float = f[p + j]
            a0 = fma(p0, f[x], a0)
            a1 = fma(p0, f[x + 1], a1)
            a2 = fma(p0, f[x + 2], a2)
            a3 = fma(p0, f[x + 3], a3)
            a4 = fma(p0, f[x + 4], a4)
            a5 = fma(p0, f[x + 5], a5)
            a6 = fma(p0, f[x + 6], a6)
            a7 = fma(p0, f[x + 7], a7)
            a8 = fma(p0, f[x + 8], a8)
            a9 = fma(p0, f[x + 9], a9)
            a10 = fma(p0, f[x + 10], a10)
            a11 = fma(p0, f[x + 11], a11)
            a12 = fma(p0, f[x + 12], a12)
            a13 = fma(p0, f[x + 13], a13)
            a14 = fma(p0, f[x + 14], a14)
            a15 = fma(p0, f[x + 15], a15)
        f[o], f[o + 1], f[o + 2], f[o + 3] = a0, a1, a2, a3
        f[o + 4], f[o + 5], f[o + 6], f[o + 7] = a4, a5, a6, a7
        f[o + 8], f[o + 9], f[o + 10], f[o + 11] = a8, a9, a10, a11
        f[o + 12], f[o + 13], f[o + 14], f[o + 15] = a12, a13, a14, a15


def add_products_4(
    f: vec[float], value: i64, stride: i64, rows: i64, p: i64, p_query: i64, p_step: i64, p_move: i64,
    count: i64, out: i64, out_query: i64, out_move: i64,
) -> None:  # fmt: skip
    """Sixteen columns i, four queries v: f[out + v * out_query + i] += sum over rows j, in order, of

        f[p + v * p_query + j * p_step] * f[value + j * stride + i]

    and so on for `count` times sixteen columns, with p_move and out_move between their factors and sums.
    Weighted values, or scores of keys that have been turned.
    """
    for c in range(count):
        v: i64 = value + c * 16
        w: i64 = p + c * p_move
        o: i64 = out + c * out_move
        o1: i64 = o + out_query
        o2: i64 = o1 + out_query
        o3: i64 = o2 + out_query
        a0, a1, a2, a3 = f[o], f[o + 1], f[o + 2], f[o + 3]
        a4, a5, a6, a7 = f[o + 4], f[o + 5], f[o + 6], f[o + 7]
        a8, a9, a10, a11 = f[o + 8], f[o + 9], f[o + 10], f[o + 11]
        a12, a13, a14, a15 = f[o + 12], f[o + 13], f[o + 14], f[o + 15]
        b0, b1, b2, b3 = f[o1], f[o1 + 1], f[o1 + 2], f[o1 + 3]
        b4, b5, b6, b7 = f[o1 + 4], f[o1 + 5], f[o1 + 6], f[o1 + 7]
        b8, b9, b10, b11 = f[o1 + 8], f[o1 + 9], f[o1 + 10], f[o1 + 11]
        b12, b13, b14, b15 = f[o1 + 12], f[o1 + 13], f[o1 + 14], f[o1 + 15]
        c0, c1, c2, c3 = f[o2], f[o2 + 1], f[o2 + 2], f[o2 + 3]
        c4, c5, c6, c7 = f[o2 + 4], f[o2 + 5], f[o2 + 6], f[o2 + 7]
        c8, c9, c10, c11 = f[o2 + 8], f[o2 + 9], f[o2 + 10], f[o2 + 11]
        c12, c13, c14, c15 = f[o2 + 12], f[o2 + 13], f[o2 + 14], f[o2 + 15]
        d0, d1, d2, d3 = f[o3], f[o3 + 1], f[o3 + 2], f[o3 + 3]
        d4, d5, d6, d7 = f[o3 + 4], f[o3 + 5], f[o3 + 6], f[o3 + 7]
        d8, d9, d10, d11 = f[o3 + 8], f[o3 + 9], f[o3 + 10], f[o3 + 11]
        d12, d13, d14, d15 = f[o3 + 12], f[o3 + 13], f[o3 + 14], f[o3 + 15]
        for j in range(rows):
            x: i64 = v + j * stride
            p0: float = f[w]
            p1: float = f[w + p_query]
            p2: float = f[w + 2 * p_query]
            p3: float = f[w + 3 * p_query]
            w += p_step
            a0 = fma(p0, f[x], a0)
            a1 = fma(p0, f[x + 1], a1)
            a2 = fma(p0, f[x + 2], a2)
            a3 = fma(p0, f[x + 3], a3)
            a4 = fma(p0, f[x + 4], a4)
            a5 = fma(p0, f[x + 5], a5)
            a6 = fma(p0, f[x + 6], a6)
            a7 = fma(p0, f[x + 7], a7)
            a8 = fma(p0, f[x + 8], a8)
            a9 = fma(p0, f[x + 9], a9)
            a10 = fma(p0, f[x + 10], a10)
            a11 = fma(p0, f[x + 11], a11)
            a12 = fma(p0, f[x + 12], a12)
            a13 = fma(p0, f[x + 13], a13)
            a14 = fma(p0, f[x + 14], a14)
            a15 = fma(p0, f[x + 15], a15)
            b0 = fma(p1, f[x], b0)
            b1 = fma(p1, f[x + 1], b1)
            b2 = fma(p1, f[x + 2], b2)
            b3 = fma(p1, f[x + 3], b3)
            b4 = fma(p1, f[x + 4], b4)
            b5 = fma(p1, f[x + 5], b5)
            b6 = fma(p1, f[x + 6], b6)
            b7 = fma(p1, f[x + 7], b7)
            b8 = fma(p1, f[x + 8], b8)
            b9 = fma(p1, f[x + 9], b9)
            b10 = fma(p1, f[x + 10], b10)
            b11 = fma(p1, f[x + 11], b11)
            b12 = fma(p1, f[x + 12], b12)
            b13 = fma(p1, f[x + 13], b13)
            b14 = fma(p1, f[x + 14], b14)
            b15 = fma(p1, f[x + 15], b15)
            c0 = fma(p2, f[x], c0)
            c1 = fma(p2, f[x + 1], c1)
            c2 = fma(p2, f[x + 2], c2)
            c3 = fma(p2, f[x + 3], c3)
            c4 = fma(p2, f[x + 4], c4)
            c5 = fma(p2, f[x + 5], c5)
            c6 = fma(p2, f[x + 6], c6)
            c7 = fma(p2, f[x + 7], c7)
            c8 = fma(p2, f[x + 8], c8)
            c9 = fma(p2, f[x + 9], c9)
            c10 = fma(p2, f[x + 10], c10)
            c11 = fma(p2, f[x + 11], c11)
            c12 = fma(p2, f[x + 12], c12)
            c13 = fma(p2, f[x + 13], c13)
            c14 = fma(p2, f[x + 14], c14)
            c15 = fma(p2, f[x + 15], c15)
            d0 = fma(p3, f[x], d0)
            d1 = fma(p3, f[x + 1], d1)
            d2 = fma(p3, f[x + 2], d2)
            d3 = fma(p3, f[x + 3], d3)
            d4 = fma(p3, f[x + 4], d4)
            d5 = fma(p3, f[x + 5], d5)
            d6 = fma(p3, f[x + 6], d6)
            d7 = fma(p3, f[x + 7], d7)
            d8 = fma(p3, f[x + 8], d8)
            d9 = fma(p3, f[x + 9], d9)
            d10 = fma(p3, f[x + 10], d10)
            d11 = fma(p3, f[x + 11], d11)
            d12 = fma(p3, f[x + 12], d12)
            d13 = fma(p3, f[x + 13], d13)
            d14 = fma(p3, f[x + 14], d14)
            d15 = fma(p3, f[x + 15], d15)
        f[o], f[o + 1], f[o + 2], f[o + 3] = a0, a1, a2, a3
        f[o + 4], f[o + 5], f[o + 6], f[o + 7] = a4, a5, a6, a7
        f[o + 8], f[o + 9], f[o + 10], f[o + 11] = a8, a9, a10, a11
        f[o + 12], f[o + 13], f[o + 14], f[o + 15] = a12, a13, a14, a15
        f[o1], f[o1 + 1], f[o1 + 2], f[o1 + 3] = b0, b1, b2, b3
        f[o1 + 4], f[o1 + 5], f[o1 + 6], f[o1 + 7] = b4, b5, b6, b7
        f[o1 + 8], f[o1 + 9], f[o1 + 10], f[o1 + 11] = b8, b9, b10, b11
        f[o1 + 12], f[o1 + 13], f[o1 + 14], f[o1 + 15] = b12, b13, b14, b15
        f[o2], f[o2 + 1], f[o2 + 2], f[o2 + 3] = c0, c1, c2, c3
        f[o2 + 4], f[o2 + 5], f[o2 + 6], f[o2 + 7] = c4, c5, c6, c7
        f[o2 + 8], f[o2 + 9], f[o2 + 10], f[o2 + 11] = c8, c9, c10, c11
        f[o2 + 12], f[o2 + 13], f[o2 + 14], f[o2 + 15] = c12, c13, c14, c15
        f[o3], f[o3 + 1], f[o3 + 2], f[o3 + 3] = d0, d1, d2, d3
        f[o3 + 4], f[o3 + 5], f[o3 + 6], f[o3 + 7] = d4, d5, d6, d7
        f[o3 + 8], f[o3 + 9], f[o3 + 10], f[o3 + 11] = d8, d9, d10, d11
        f[o3 + 12], f[o3 + 13], f[o3 + 14], f[o3 + 15] = d12, d13, d14, d15
