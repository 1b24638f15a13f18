"""The inner loops of attention: sums of weighted rows. Sixteen sums at a time stay in registers over all rows."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


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
