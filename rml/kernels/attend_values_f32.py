"""Sums of weighted f32 value rows where they lie, for four queries, as in attend_values.

For values that are used once: widening them into the ring first costs more than widening them on the way.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma
from rml.kernels.prefetch import prefetch, prefetch_second


def add_values_4_f32(
    f: vec[float], cb: bytes, near: i64, step: i64, far: i64, far_step: i64,
    vb: bytes, value: i64, stride: i64, rows: i64, p: i64, dim: i64, out: i64,
) -> None:  # fmt: skip
    """As add_values_1, for four queries, weights 16 apart; the first row at byte `value` of vb, others `stride` on."""
    for c in range(dim >> 4):
        v: i64 = value + c * 64
        o: i64 = out + c * 16
        o1: i64 = o + dim
        o2: i64 = o1 + dim
        o3: i64 = o2 + dim
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
            prefetch(cb, near + (c * 16 + j) * step)
            prefetch_second(cb, far + (c * 16 + j) * far_step)
            x: i64 = v + j * stride
            p0: float = f[p + j]
            p1: float = f[p + 16 + j]
            p2: float = f[p + 32 + j]
            p3: float = f[p + 48 + j]
            x0: float = read_f32_le(vb, x)
            x1: float = read_f32_le(vb, x + 4)
            x2: float = read_f32_le(vb, x + 8)
            x3: float = read_f32_le(vb, x + 12)
            x4: float = read_f32_le(vb, x + 16)
            x5: float = read_f32_le(vb, x + 20)
            x6: float = read_f32_le(vb, x + 24)
            x7: float = read_f32_le(vb, x + 28)
            x8: float = read_f32_le(vb, x + 32)
            x9: float = read_f32_le(vb, x + 36)
            x10: float = read_f32_le(vb, x + 40)
            x11: float = read_f32_le(vb, x + 44)
            x12: float = read_f32_le(vb, x + 48)
            x13: float = read_f32_le(vb, x + 52)
            x14: float = read_f32_le(vb, x + 56)
            x15: float = read_f32_le(vb, x + 60)
            a0 = fma(p0, x0, a0)
            a1 = fma(p0, x1, a1)
            a2 = fma(p0, x2, a2)
            a3 = fma(p0, x3, a3)
            a4 = fma(p0, x4, a4)
            a5 = fma(p0, x5, a5)
            a6 = fma(p0, x6, a6)
            a7 = fma(p0, x7, a7)
            a8 = fma(p0, x8, a8)
            a9 = fma(p0, x9, a9)
            a10 = fma(p0, x10, a10)
            a11 = fma(p0, x11, a11)
            a12 = fma(p0, x12, a12)
            a13 = fma(p0, x13, a13)
            a14 = fma(p0, x14, a14)
            a15 = fma(p0, x15, a15)
            b0 = fma(p1, x0, b0)
            b1 = fma(p1, x1, b1)
            b2 = fma(p1, x2, b2)
            b3 = fma(p1, x3, b3)
            b4 = fma(p1, x4, b4)
            b5 = fma(p1, x5, b5)
            b6 = fma(p1, x6, b6)
            b7 = fma(p1, x7, b7)
            b8 = fma(p1, x8, b8)
            b9 = fma(p1, x9, b9)
            b10 = fma(p1, x10, b10)
            b11 = fma(p1, x11, b11)
            b12 = fma(p1, x12, b12)
            b13 = fma(p1, x13, b13)
            b14 = fma(p1, x14, b14)
            b15 = fma(p1, x15, b15)
            c0 = fma(p2, x0, c0)
            c1 = fma(p2, x1, c1)
            c2 = fma(p2, x2, c2)
            c3 = fma(p2, x3, c3)
            c4 = fma(p2, x4, c4)
            c5 = fma(p2, x5, c5)
            c6 = fma(p2, x6, c6)
            c7 = fma(p2, x7, c7)
            c8 = fma(p2, x8, c8)
            c9 = fma(p2, x9, c9)
            c10 = fma(p2, x10, c10)
            c11 = fma(p2, x11, c11)
            c12 = fma(p2, x12, c12)
            c13 = fma(p2, x13, c13)
            c14 = fma(p2, x14, c14)
            c15 = fma(p2, x15, c15)
            d0 = fma(p3, x0, d0)
            d1 = fma(p3, x1, d1)
            d2 = fma(p3, x2, d2)
            d3 = fma(p3, x3, d3)
            d4 = fma(p3, x4, d4)
            d5 = fma(p3, x5, d5)
            d6 = fma(p3, x6, d6)
            d7 = fma(p3, x7, d7)
            d8 = fma(p3, x8, d8)
            d9 = fma(p3, x9, d9)
            d10 = fma(p3, x10, d10)
            d11 = fma(p3, x11, d11)
            d12 = fma(p3, x12, d12)
            d13 = fma(p3, x13, d13)
            d14 = fma(p3, x14, d14)
            d15 = fma(p3, x15, d15)
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


def add_values_3_f32(
    f: vec[float], cb: bytes, near: i64, step: i64, far: i64, far_step: i64,
    vb: bytes, value: i64, stride: i64, rows: i64, p: i64, dim: i64, out: i64,
) -> None:  # fmt: skip
    """The same for three queries."""
    for c in range(dim >> 4):
        v: i64 = value + c * 64
        o: i64 = out + c * 16
        o1: i64 = o + dim
        o2: i64 = o1 + dim
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
        for j in range(rows):
            prefetch(cb, near + (c * 16 + j) * step)
            prefetch_second(cb, far + (c * 16 + j) * far_step)
            x: i64 = v + j * stride
            p0: float = f[p + j]
            p1: float = f[p + 16 + j]
            p2: float = f[p + 32 + j]
            x0: float = read_f32_le(vb, x)
            x1: float = read_f32_le(vb, x + 4)
            x2: float = read_f32_le(vb, x + 8)
            x3: float = read_f32_le(vb, x + 12)
            x4: float = read_f32_le(vb, x + 16)
            x5: float = read_f32_le(vb, x + 20)
            x6: float = read_f32_le(vb, x + 24)
            x7: float = read_f32_le(vb, x + 28)
            x8: float = read_f32_le(vb, x + 32)
            x9: float = read_f32_le(vb, x + 36)
            x10: float = read_f32_le(vb, x + 40)
            x11: float = read_f32_le(vb, x + 44)
            x12: float = read_f32_le(vb, x + 48)
            x13: float = read_f32_le(vb, x + 52)
            x14: float = read_f32_le(vb, x + 56)
            x15: float = read_f32_le(vb, x + 60)
            a0 = fma(p0, x0, a0)
            a1 = fma(p0, x1, a1)
            a2 = fma(p0, x2, a2)
            a3 = fma(p0, x3, a3)
            a4 = fma(p0, x4, a4)
            a5 = fma(p0, x5, a5)
            a6 = fma(p0, x6, a6)
            a7 = fma(p0, x7, a7)
            a8 = fma(p0, x8, a8)
            a9 = fma(p0, x9, a9)
            a10 = fma(p0, x10, a10)
            a11 = fma(p0, x11, a11)
            a12 = fma(p0, x12, a12)
            a13 = fma(p0, x13, a13)
            a14 = fma(p0, x14, a14)
            a15 = fma(p0, x15, a15)
            b0 = fma(p1, x0, b0)
            b1 = fma(p1, x1, b1)
            b2 = fma(p1, x2, b2)
            b3 = fma(p1, x3, b3)
            b4 = fma(p1, x4, b4)
            b5 = fma(p1, x5, b5)
            b6 = fma(p1, x6, b6)
            b7 = fma(p1, x7, b7)
            b8 = fma(p1, x8, b8)
            b9 = fma(p1, x9, b9)
            b10 = fma(p1, x10, b10)
            b11 = fma(p1, x11, b11)
            b12 = fma(p1, x12, b12)
            b13 = fma(p1, x13, b13)
            b14 = fma(p1, x14, b14)
            b15 = fma(p1, x15, b15)
            c0 = fma(p2, x0, c0)
            c1 = fma(p2, x1, c1)
            c2 = fma(p2, x2, c2)
            c3 = fma(p2, x3, c3)
            c4 = fma(p2, x4, c4)
            c5 = fma(p2, x5, c5)
            c6 = fma(p2, x6, c6)
            c7 = fma(p2, x7, c7)
            c8 = fma(p2, x8, c8)
            c9 = fma(p2, x9, c9)
            c10 = fma(p2, x10, c10)
            c11 = fma(p2, x11, c11)
            c12 = fma(p2, x12, c12)
            c13 = fma(p2, x13, c13)
            c14 = fma(p2, x14, c14)
            c15 = fma(p2, x15, c15)
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
