"""Four long rows of f32 weights times one token at once, their lanes written out: see dense.py for the order."""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma
from rml.kernels.prefetch import prefetch


def four_dots_f32(
    wb: bytes, p: i64, step: i64, factor: float, f: vec[float], x: i64, count: i64, lane: i64, ahead: i64
) -> None:  # fmt: skip
    """Adds to the lanes of four rows, `step` bytes apart, at f[lane], f[lane + 16] ...: zero before, summed up after.

    What lies `ahead` bytes further in each row is asked for on the way. Each activation is read once for the four: rows
    are longer than the first cache, and x would be read from the second one with every row.
    """
    a0, a1, a2, a3 = f[lane], f[lane + 1], f[lane + 2], f[lane + 3]
    a4, a5, a6, a7 = f[lane + 4], f[lane + 5], f[lane + 6], f[lane + 7]
    a8, a9, a10, a11 = f[lane + 8], f[lane + 9], f[lane + 10], f[lane + 11]
    a12, a13, a14, a15 = f[lane + 12], f[lane + 13], f[lane + 14], f[lane + 15]
    b0, b1, b2, b3 = f[lane + 16], f[lane + 17], f[lane + 18], f[lane + 19]
    b4, b5, b6, b7 = f[lane + 20], f[lane + 21], f[lane + 22], f[lane + 23]
    b8, b9, b10, b11 = f[lane + 24], f[lane + 25], f[lane + 26], f[lane + 27]
    b12, b13, b14, b15 = f[lane + 28], f[lane + 29], f[lane + 30], f[lane + 31]
    c0, c1, c2, c3 = f[lane + 32], f[lane + 33], f[lane + 34], f[lane + 35]
    c4, c5, c6, c7 = f[lane + 36], f[lane + 37], f[lane + 38], f[lane + 39]
    c8, c9, c10, c11 = f[lane + 40], f[lane + 41], f[lane + 42], f[lane + 43]
    c12, c13, c14, c15 = f[lane + 44], f[lane + 45], f[lane + 46], f[lane + 47]
    d0, d1, d2, d3 = f[lane + 48], f[lane + 49], f[lane + 50], f[lane + 51]
    d4, d5, d6, d7 = f[lane + 52], f[lane + 53], f[lane + 54], f[lane + 55]
    d8, d9, d10, d11 = f[lane + 56], f[lane + 57], f[lane + 58], f[lane + 59]
    d12, d13, d14, d15 = f[lane + 60], f[lane + 61], f[lane + 62], f[lane + 63]
    for b in range(count >> 4):
        i: i64 = p + b * 64
        j: i64 = i + step
        k: i64 = j + step
        m: i64 = k + step
        n: i64 = x + b * 16
        prefetch(wb, i + ahead)
        prefetch(wb, j + ahead)
        prefetch(wb, k + ahead)
        prefetch(wb, m + ahead)
        a0 = fma(read_f32_le(wb, i) * factor, f[n], a0)
        a1 = fma(read_f32_le(wb, i + 4) * factor, f[n + 1], a1)
        a2 = fma(read_f32_le(wb, i + 8) * factor, f[n + 2], a2)
        a3 = fma(read_f32_le(wb, i + 12) * factor, f[n + 3], a3)
        a4 = fma(read_f32_le(wb, i + 16) * factor, f[n + 4], a4)
        a5 = fma(read_f32_le(wb, i + 20) * factor, f[n + 5], a5)
        a6 = fma(read_f32_le(wb, i + 24) * factor, f[n + 6], a6)
        a7 = fma(read_f32_le(wb, i + 28) * factor, f[n + 7], a7)
        a8 = fma(read_f32_le(wb, i + 32) * factor, f[n + 8], a8)
        a9 = fma(read_f32_le(wb, i + 36) * factor, f[n + 9], a9)
        a10 = fma(read_f32_le(wb, i + 40) * factor, f[n + 10], a10)
        a11 = fma(read_f32_le(wb, i + 44) * factor, f[n + 11], a11)
        a12 = fma(read_f32_le(wb, i + 48) * factor, f[n + 12], a12)
        a13 = fma(read_f32_le(wb, i + 52) * factor, f[n + 13], a13)
        a14 = fma(read_f32_le(wb, i + 56) * factor, f[n + 14], a14)
        a15 = fma(read_f32_le(wb, i + 60) * factor, f[n + 15], a15)
        b0 = fma(read_f32_le(wb, j) * factor, f[n], b0)
        b1 = fma(read_f32_le(wb, j + 4) * factor, f[n + 1], b1)
        b2 = fma(read_f32_le(wb, j + 8) * factor, f[n + 2], b2)
        b3 = fma(read_f32_le(wb, j + 12) * factor, f[n + 3], b3)
        b4 = fma(read_f32_le(wb, j + 16) * factor, f[n + 4], b4)
        b5 = fma(read_f32_le(wb, j + 20) * factor, f[n + 5], b5)
        b6 = fma(read_f32_le(wb, j + 24) * factor, f[n + 6], b6)
        b7 = fma(read_f32_le(wb, j + 28) * factor, f[n + 7], b7)
        b8 = fma(read_f32_le(wb, j + 32) * factor, f[n + 8], b8)
        b9 = fma(read_f32_le(wb, j + 36) * factor, f[n + 9], b9)
        b10 = fma(read_f32_le(wb, j + 40) * factor, f[n + 10], b10)
        b11 = fma(read_f32_le(wb, j + 44) * factor, f[n + 11], b11)
        b12 = fma(read_f32_le(wb, j + 48) * factor, f[n + 12], b12)
        b13 = fma(read_f32_le(wb, j + 52) * factor, f[n + 13], b13)
        b14 = fma(read_f32_le(wb, j + 56) * factor, f[n + 14], b14)
        b15 = fma(read_f32_le(wb, j + 60) * factor, f[n + 15], b15)
        c0 = fma(read_f32_le(wb, k) * factor, f[n], c0)
        c1 = fma(read_f32_le(wb, k + 4) * factor, f[n + 1], c1)
        c2 = fma(read_f32_le(wb, k + 8) * factor, f[n + 2], c2)
        c3 = fma(read_f32_le(wb, k + 12) * factor, f[n + 3], c3)
        c4 = fma(read_f32_le(wb, k + 16) * factor, f[n + 4], c4)
        c5 = fma(read_f32_le(wb, k + 20) * factor, f[n + 5], c5)
        c6 = fma(read_f32_le(wb, k + 24) * factor, f[n + 6], c6)
        c7 = fma(read_f32_le(wb, k + 28) * factor, f[n + 7], c7)
        c8 = fma(read_f32_le(wb, k + 32) * factor, f[n + 8], c8)
        c9 = fma(read_f32_le(wb, k + 36) * factor, f[n + 9], c9)
        c10 = fma(read_f32_le(wb, k + 40) * factor, f[n + 10], c10)
        c11 = fma(read_f32_le(wb, k + 44) * factor, f[n + 11], c11)
        c12 = fma(read_f32_le(wb, k + 48) * factor, f[n + 12], c12)
        c13 = fma(read_f32_le(wb, k + 52) * factor, f[n + 13], c13)
        c14 = fma(read_f32_le(wb, k + 56) * factor, f[n + 14], c14)
        c15 = fma(read_f32_le(wb, k + 60) * factor, f[n + 15], c15)
        d0 = fma(read_f32_le(wb, m) * factor, f[n], d0)
        d1 = fma(read_f32_le(wb, m + 4) * factor, f[n + 1], d1)
        d2 = fma(read_f32_le(wb, m + 8) * factor, f[n + 2], d2)
        d3 = fma(read_f32_le(wb, m + 12) * factor, f[n + 3], d3)
        d4 = fma(read_f32_le(wb, m + 16) * factor, f[n + 4], d4)
        d5 = fma(read_f32_le(wb, m + 20) * factor, f[n + 5], d5)
        d6 = fma(read_f32_le(wb, m + 24) * factor, f[n + 6], d6)
        d7 = fma(read_f32_le(wb, m + 28) * factor, f[n + 7], d7)
        d8 = fma(read_f32_le(wb, m + 32) * factor, f[n + 8], d8)
        d9 = fma(read_f32_le(wb, m + 36) * factor, f[n + 9], d9)
        d10 = fma(read_f32_le(wb, m + 40) * factor, f[n + 10], d10)
        d11 = fma(read_f32_le(wb, m + 44) * factor, f[n + 11], d11)
        d12 = fma(read_f32_le(wb, m + 48) * factor, f[n + 12], d12)
        d13 = fma(read_f32_le(wb, m + 52) * factor, f[n + 13], d13)
        d14 = fma(read_f32_le(wb, m + 56) * factor, f[n + 14], d14)
        d15 = fma(read_f32_le(wb, m + 60) * factor, f[n + 15], d15)
    f[lane], f[lane + 1], f[lane + 2], f[lane + 3] = a0, a1, a2, a3
    f[lane + 4], f[lane + 5], f[lane + 6], f[lane + 7] = a4, a5, a6, a7
    f[lane + 8], f[lane + 9], f[lane + 10], f[lane + 11] = a8, a9, a10, a11
    f[lane + 12], f[lane + 13], f[lane + 14], f[lane + 15] = a12, a13, a14, a15
    f[lane + 16], f[lane + 17], f[lane + 18], f[lane + 19] = b0, b1, b2, b3
    f[lane + 20], f[lane + 21], f[lane + 22], f[lane + 23] = b4, b5, b6, b7
    f[lane + 24], f[lane + 25], f[lane + 26], f[lane + 27] = b8, b9, b10, b11
    f[lane + 28], f[lane + 29], f[lane + 30], f[lane + 31] = b12, b13, b14, b15
    f[lane + 32], f[lane + 33], f[lane + 34], f[lane + 35] = c0, c1, c2, c3
    f[lane + 36], f[lane + 37], f[lane + 38], f[lane + 39] = c4, c5, c6, c7
    f[lane + 40], f[lane + 41], f[lane + 42], f[lane + 43] = c8, c9, c10, c11
    f[lane + 44], f[lane + 45], f[lane + 46], f[lane + 47] = c12, c13, c14, c15
    f[lane + 48], f[lane + 49], f[lane + 50], f[lane + 51] = d0, d1, d2, d3
    f[lane + 52], f[lane + 53], f[lane + 54], f[lane + 55] = d4, d5, d6, d7
    f[lane + 56], f[lane + 57], f[lane + 58], f[lane + 59] = d8, d9, d10, d11
    f[lane + 60], f[lane + 61], f[lane + 62], f[lane + 63] = d12, d13, d14, d15
    done: i64 = (count >> 4) * 16
    for r in range(i64(4)):
        for t in range(count - done):
            w: float = read_f32_le(wb, p + r * step + (done + t) * 4) * factor
            f[lane + r * 16 + t] = fma(w, f[x + done + t], f[lane + r * 16 + t])
