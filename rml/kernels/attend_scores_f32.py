"""Scores of four queries and sixteen f32 keys where they lie, as in attend_scores.

For keys that are used once: widening them into the ring first costs more than widening them on the way.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma
from rml.kernels.prefetch import prefetch, prefetch_second


def partial_scores_4_f32(
    f: vec[float], cb: bytes, near: i64, step: i64, far: i64, far_step: i64,
    kb: bytes, key: i64, stride: i64, q: i64, dim: i64, out: i64,
) -> None:  # fmt: skip
    """As partial_scores_4, the first key at byte `key` of kb and each next one `stride` bytes further."""
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
            prefetch(cb, near + (j * (dim >> 3) + b) * step)
            prefetch_second(cb, far + (j * (dim >> 3) + b) * far_step)
            x: i64 = k + b * 32
            x1: i64 = x + stride
            s: i64 = q + b * 8
            s1: i64 = s + dim
            s2: i64 = s1 + dim
            s3: i64 = s2 + dim
            a0 = fma(read_f32_le(kb, x), f[s], a0)
            a1 = fma(read_f32_le(kb, x + 4), f[s + 1], a1)
            a2 = fma(read_f32_le(kb, x + 8), f[s + 2], a2)
            a3 = fma(read_f32_le(kb, x + 12), f[s + 3], a3)
            a4 = fma(read_f32_le(kb, x + 16), f[s + 4], a4)
            a5 = fma(read_f32_le(kb, x + 20), f[s + 5], a5)
            a6 = fma(read_f32_le(kb, x + 24), f[s + 6], a6)
            a7 = fma(read_f32_le(kb, x + 28), f[s + 7], a7)
            b0 = fma(read_f32_le(kb, x1), f[s], b0)
            b1 = fma(read_f32_le(kb, x1 + 4), f[s + 1], b1)
            b2 = fma(read_f32_le(kb, x1 + 8), f[s + 2], b2)
            b3 = fma(read_f32_le(kb, x1 + 12), f[s + 3], b3)
            b4 = fma(read_f32_le(kb, x1 + 16), f[s + 4], b4)
            b5 = fma(read_f32_le(kb, x1 + 20), f[s + 5], b5)
            b6 = fma(read_f32_le(kb, x1 + 24), f[s + 6], b6)
            b7 = fma(read_f32_le(kb, x1 + 28), f[s + 7], b7)
            c0 = fma(read_f32_le(kb, x), f[s1], c0)
            c1 = fma(read_f32_le(kb, x + 4), f[s1 + 1], c1)
            c2 = fma(read_f32_le(kb, x + 8), f[s1 + 2], c2)
            c3 = fma(read_f32_le(kb, x + 12), f[s1 + 3], c3)
            c4 = fma(read_f32_le(kb, x + 16), f[s1 + 4], c4)
            c5 = fma(read_f32_le(kb, x + 20), f[s1 + 5], c5)
            c6 = fma(read_f32_le(kb, x + 24), f[s1 + 6], c6)
            c7 = fma(read_f32_le(kb, x + 28), f[s1 + 7], c7)
            d0 = fma(read_f32_le(kb, x1), f[s1], d0)
            d1 = fma(read_f32_le(kb, x1 + 4), f[s1 + 1], d1)
            d2 = fma(read_f32_le(kb, x1 + 8), f[s1 + 2], d2)
            d3 = fma(read_f32_le(kb, x1 + 12), f[s1 + 3], d3)
            d4 = fma(read_f32_le(kb, x1 + 16), f[s1 + 4], d4)
            d5 = fma(read_f32_le(kb, x1 + 20), f[s1 + 5], d5)
            d6 = fma(read_f32_le(kb, x1 + 24), f[s1 + 6], d6)
            d7 = fma(read_f32_le(kb, x1 + 28), f[s1 + 7], d7)
            e0 = fma(read_f32_le(kb, x), f[s2], e0)
            e1 = fma(read_f32_le(kb, x + 4), f[s2 + 1], e1)
            e2 = fma(read_f32_le(kb, x + 8), f[s2 + 2], e2)
            e3 = fma(read_f32_le(kb, x + 12), f[s2 + 3], e3)
            e4 = fma(read_f32_le(kb, x + 16), f[s2 + 4], e4)
            e5 = fma(read_f32_le(kb, x + 20), f[s2 + 5], e5)
            e6 = fma(read_f32_le(kb, x + 24), f[s2 + 6], e6)
            e7 = fma(read_f32_le(kb, x + 28), f[s2 + 7], e7)
            f0 = fma(read_f32_le(kb, x1), f[s2], f0)
            f1 = fma(read_f32_le(kb, x1 + 4), f[s2 + 1], f1)
            f2 = fma(read_f32_le(kb, x1 + 8), f[s2 + 2], f2)
            f3 = fma(read_f32_le(kb, x1 + 12), f[s2 + 3], f3)
            f4 = fma(read_f32_le(kb, x1 + 16), f[s2 + 4], f4)
            f5 = fma(read_f32_le(kb, x1 + 20), f[s2 + 5], f5)
            f6 = fma(read_f32_le(kb, x1 + 24), f[s2 + 6], f6)
            f7 = fma(read_f32_le(kb, x1 + 28), f[s2 + 7], f7)
            g0 = fma(read_f32_le(kb, x), f[s3], g0)
            g1 = fma(read_f32_le(kb, x + 4), f[s3 + 1], g1)
            g2 = fma(read_f32_le(kb, x + 8), f[s3 + 2], g2)
            g3 = fma(read_f32_le(kb, x + 12), f[s3 + 3], g3)
            g4 = fma(read_f32_le(kb, x + 16), f[s3 + 4], g4)
            g5 = fma(read_f32_le(kb, x + 20), f[s3 + 5], g5)
            g6 = fma(read_f32_le(kb, x + 24), f[s3 + 6], g6)
            g7 = fma(read_f32_le(kb, x + 28), f[s3 + 7], g7)
            h0 = fma(read_f32_le(kb, x1), f[s3], h0)
            h1 = fma(read_f32_le(kb, x1 + 4), f[s3 + 1], h1)
            h2 = fma(read_f32_le(kb, x1 + 8), f[s3 + 2], h2)
            h3 = fma(read_f32_le(kb, x1 + 12), f[s3 + 3], h3)
            h4 = fma(read_f32_le(kb, x1 + 16), f[s3 + 4], h4)
            h5 = fma(read_f32_le(kb, x1 + 20), f[s3 + 5], h5)
            h6 = fma(read_f32_le(kb, x1 + 24), f[s3 + 6], h6)
            h7 = fma(read_f32_le(kb, x1 + 28), f[s3 + 7], h7)
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


def partial_scores_3_f32(
    f: vec[float], cb: bytes, near: i64, step: i64, far: i64, far_step: i64,
    kb: bytes, key: i64, stride: i64, q: i64, dim: i64, out: i64,
) -> None:  # fmt: skip
    """The same for three queries."""
    for j in range(i64(8)):
        k: i64 = key + j * 2 * stride
        w: i64 = out + j * 16
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        c0 = c1 = c2 = c3 = c4 = c5 = c6 = c7 = 0.0
        d0 = d1 = d2 = d3 = d4 = d5 = d6 = d7 = 0.0
        e0 = e1 = e2 = e3 = e4 = e5 = e6 = e7 = 0.0
        f0 = f1 = f2 = f3 = f4 = f5 = f6 = f7 = 0.0
        for b in range(dim >> 3):
            prefetch(cb, near + (j * (dim >> 3) + b) * step)
            prefetch_second(cb, far + (j * (dim >> 3) + b) * far_step)
            x: i64 = k + b * 32
            x1: i64 = x + stride
            s: i64 = q + b * 8
            s1: i64 = s + dim
            s2: i64 = s1 + dim
            a0 = fma(read_f32_le(kb, x), f[s], a0)
            a1 = fma(read_f32_le(kb, x + 4), f[s + 1], a1)
            a2 = fma(read_f32_le(kb, x + 8), f[s + 2], a2)
            a3 = fma(read_f32_le(kb, x + 12), f[s + 3], a3)
            a4 = fma(read_f32_le(kb, x + 16), f[s + 4], a4)
            a5 = fma(read_f32_le(kb, x + 20), f[s + 5], a5)
            a6 = fma(read_f32_le(kb, x + 24), f[s + 6], a6)
            a7 = fma(read_f32_le(kb, x + 28), f[s + 7], a7)
            b0 = fma(read_f32_le(kb, x1), f[s], b0)
            b1 = fma(read_f32_le(kb, x1 + 4), f[s + 1], b1)
            b2 = fma(read_f32_le(kb, x1 + 8), f[s + 2], b2)
            b3 = fma(read_f32_le(kb, x1 + 12), f[s + 3], b3)
            b4 = fma(read_f32_le(kb, x1 + 16), f[s + 4], b4)
            b5 = fma(read_f32_le(kb, x1 + 20), f[s + 5], b5)
            b6 = fma(read_f32_le(kb, x1 + 24), f[s + 6], b6)
            b7 = fma(read_f32_le(kb, x1 + 28), f[s + 7], b7)
            c0 = fma(read_f32_le(kb, x), f[s1], c0)
            c1 = fma(read_f32_le(kb, x + 4), f[s1 + 1], c1)
            c2 = fma(read_f32_le(kb, x + 8), f[s1 + 2], c2)
            c3 = fma(read_f32_le(kb, x + 12), f[s1 + 3], c3)
            c4 = fma(read_f32_le(kb, x + 16), f[s1 + 4], c4)
            c5 = fma(read_f32_le(kb, x + 20), f[s1 + 5], c5)
            c6 = fma(read_f32_le(kb, x + 24), f[s1 + 6], c6)
            c7 = fma(read_f32_le(kb, x + 28), f[s1 + 7], c7)
            d0 = fma(read_f32_le(kb, x1), f[s1], d0)
            d1 = fma(read_f32_le(kb, x1 + 4), f[s1 + 1], d1)
            d2 = fma(read_f32_le(kb, x1 + 8), f[s1 + 2], d2)
            d3 = fma(read_f32_le(kb, x1 + 12), f[s1 + 3], d3)
            d4 = fma(read_f32_le(kb, x1 + 16), f[s1 + 4], d4)
            d5 = fma(read_f32_le(kb, x1 + 20), f[s1 + 5], d5)
            d6 = fma(read_f32_le(kb, x1 + 24), f[s1 + 6], d6)
            d7 = fma(read_f32_le(kb, x1 + 28), f[s1 + 7], d7)
            e0 = fma(read_f32_le(kb, x), f[s2], e0)
            e1 = fma(read_f32_le(kb, x + 4), f[s2 + 1], e1)
            e2 = fma(read_f32_le(kb, x + 8), f[s2 + 2], e2)
            e3 = fma(read_f32_le(kb, x + 12), f[s2 + 3], e3)
            e4 = fma(read_f32_le(kb, x + 16), f[s2 + 4], e4)
            e5 = fma(read_f32_le(kb, x + 20), f[s2 + 5], e5)
            e6 = fma(read_f32_le(kb, x + 24), f[s2 + 6], e6)
            e7 = fma(read_f32_le(kb, x + 28), f[s2 + 7], e7)
            f0 = fma(read_f32_le(kb, x1), f[s2], f0)
            f1 = fma(read_f32_le(kb, x1 + 4), f[s2 + 1], f1)
            f2 = fma(read_f32_le(kb, x1 + 8), f[s2 + 2], f2)
            f3 = fma(read_f32_le(kb, x1 + 12), f[s2 + 3], f3)
            f4 = fma(read_f32_le(kb, x1 + 16), f[s2 + 4], f4)
            f5 = fma(read_f32_le(kb, x1 + 20), f[s2 + 5], f5)
            f6 = fma(read_f32_le(kb, x1 + 24), f[s2 + 6], f6)
            f7 = fma(read_f32_le(kb, x1 + 28), f[s2 + 7], f7)
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
