"""Four long rows of f32 weights times one token at once, their lanes written out: see dense.py for the order."""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.prefetch import prefetch

AHEAD_OF_FOUR: Final = 2048  # bytes by which each of the four rows is asked for before it is read


def four_dots_f32(wb: bytes, p: i64, step: i64, factor: float, f: vec[float], x: i64, count: i64, lane: i64) -> None:
    """Adds to the lanes of four rows, `step` bytes apart, at f[lane], f[lane + 16] ...: zero before, summed up after.

    Each activation is read once for the four: rows are longer than the first cache, and x would be read from the
    second one with every row.
    """
    a0: float = f[lane]
    a1: float = f[lane + 1]
    a2: float = f[lane + 2]
    a3: float = f[lane + 3]
    a4: float = f[lane + 4]
    a5: float = f[lane + 5]
    a6: float = f[lane + 6]
    a7: float = f[lane + 7]
    a8: float = f[lane + 8]
    a9: float = f[lane + 9]
    a10: float = f[lane + 10]
    a11: float = f[lane + 11]
    a12: float = f[lane + 12]
    a13: float = f[lane + 13]
    a14: float = f[lane + 14]
    a15: float = f[lane + 15]
    b0: float = f[lane + 16]
    b1: float = f[lane + 17]
    b2: float = f[lane + 18]
    b3: float = f[lane + 19]
    b4: float = f[lane + 20]
    b5: float = f[lane + 21]
    b6: float = f[lane + 22]
    b7: float = f[lane + 23]
    b8: float = f[lane + 24]
    b9: float = f[lane + 25]
    b10: float = f[lane + 26]
    b11: float = f[lane + 27]
    b12: float = f[lane + 28]
    b13: float = f[lane + 29]
    b14: float = f[lane + 30]
    b15: float = f[lane + 31]
    c0: float = f[lane + 32]
    c1: float = f[lane + 33]
    c2: float = f[lane + 34]
    c3: float = f[lane + 35]
    c4: float = f[lane + 36]
    c5: float = f[lane + 37]
    c6: float = f[lane + 38]
    c7: float = f[lane + 39]
    c8: float = f[lane + 40]
    c9: float = f[lane + 41]
    c10: float = f[lane + 42]
    c11: float = f[lane + 43]
    c12: float = f[lane + 44]
    c13: float = f[lane + 45]
    c14: float = f[lane + 46]
    c15: float = f[lane + 47]
    d0: float = f[lane + 48]
    d1: float = f[lane + 49]
    d2: float = f[lane + 50]
    d3: float = f[lane + 51]
    d4: float = f[lane + 52]
    d5: float = f[lane + 53]
    d6: float = f[lane + 54]
    d7: float = f[lane + 55]
    d8: float = f[lane + 56]
    d9: float = f[lane + 57]
    d10: float = f[lane + 58]
    d11: float = f[lane + 59]
    d12: float = f[lane + 60]
    d13: float = f[lane + 61]
    d14: float = f[lane + 62]
    d15: float = f[lane + 63]
    for b in range(count >> 4):
        i: i64 = p + b * 64
        j: i64 = i + step
        k: i64 = j + step
        m: i64 = k + step
        n: i64 = x + b * 16
        prefetch(wb, i + AHEAD_OF_FOUR)
        prefetch(wb, j + AHEAD_OF_FOUR)
        prefetch(wb, k + AHEAD_OF_FOUR)
        prefetch(wb, m + AHEAD_OF_FOUR)
        a0 += read_f32_le(wb, i) * factor * f[n]
        a1 += read_f32_le(wb, i + 4) * factor * f[n + 1]
        a2 += read_f32_le(wb, i + 8) * factor * f[n + 2]
        a3 += read_f32_le(wb, i + 12) * factor * f[n + 3]
        a4 += read_f32_le(wb, i + 16) * factor * f[n + 4]
        a5 += read_f32_le(wb, i + 20) * factor * f[n + 5]
        a6 += read_f32_le(wb, i + 24) * factor * f[n + 6]
        a7 += read_f32_le(wb, i + 28) * factor * f[n + 7]
        a8 += read_f32_le(wb, i + 32) * factor * f[n + 8]
        a9 += read_f32_le(wb, i + 36) * factor * f[n + 9]
        a10 += read_f32_le(wb, i + 40) * factor * f[n + 10]
        a11 += read_f32_le(wb, i + 44) * factor * f[n + 11]
        a12 += read_f32_le(wb, i + 48) * factor * f[n + 12]
        a13 += read_f32_le(wb, i + 52) * factor * f[n + 13]
        a14 += read_f32_le(wb, i + 56) * factor * f[n + 14]
        a15 += read_f32_le(wb, i + 60) * factor * f[n + 15]
        b0 += read_f32_le(wb, j) * factor * f[n]
        b1 += read_f32_le(wb, j + 4) * factor * f[n + 1]
        b2 += read_f32_le(wb, j + 8) * factor * f[n + 2]
        b3 += read_f32_le(wb, j + 12) * factor * f[n + 3]
        b4 += read_f32_le(wb, j + 16) * factor * f[n + 4]
        b5 += read_f32_le(wb, j + 20) * factor * f[n + 5]
        b6 += read_f32_le(wb, j + 24) * factor * f[n + 6]
        b7 += read_f32_le(wb, j + 28) * factor * f[n + 7]
        b8 += read_f32_le(wb, j + 32) * factor * f[n + 8]
        b9 += read_f32_le(wb, j + 36) * factor * f[n + 9]
        b10 += read_f32_le(wb, j + 40) * factor * f[n + 10]
        b11 += read_f32_le(wb, j + 44) * factor * f[n + 11]
        b12 += read_f32_le(wb, j + 48) * factor * f[n + 12]
        b13 += read_f32_le(wb, j + 52) * factor * f[n + 13]
        b14 += read_f32_le(wb, j + 56) * factor * f[n + 14]
        b15 += read_f32_le(wb, j + 60) * factor * f[n + 15]
        c0 += read_f32_le(wb, k) * factor * f[n]
        c1 += read_f32_le(wb, k + 4) * factor * f[n + 1]
        c2 += read_f32_le(wb, k + 8) * factor * f[n + 2]
        c3 += read_f32_le(wb, k + 12) * factor * f[n + 3]
        c4 += read_f32_le(wb, k + 16) * factor * f[n + 4]
        c5 += read_f32_le(wb, k + 20) * factor * f[n + 5]
        c6 += read_f32_le(wb, k + 24) * factor * f[n + 6]
        c7 += read_f32_le(wb, k + 28) * factor * f[n + 7]
        c8 += read_f32_le(wb, k + 32) * factor * f[n + 8]
        c9 += read_f32_le(wb, k + 36) * factor * f[n + 9]
        c10 += read_f32_le(wb, k + 40) * factor * f[n + 10]
        c11 += read_f32_le(wb, k + 44) * factor * f[n + 11]
        c12 += read_f32_le(wb, k + 48) * factor * f[n + 12]
        c13 += read_f32_le(wb, k + 52) * factor * f[n + 13]
        c14 += read_f32_le(wb, k + 56) * factor * f[n + 14]
        c15 += read_f32_le(wb, k + 60) * factor * f[n + 15]
        d0 += read_f32_le(wb, m) * factor * f[n]
        d1 += read_f32_le(wb, m + 4) * factor * f[n + 1]
        d2 += read_f32_le(wb, m + 8) * factor * f[n + 2]
        d3 += read_f32_le(wb, m + 12) * factor * f[n + 3]
        d4 += read_f32_le(wb, m + 16) * factor * f[n + 4]
        d5 += read_f32_le(wb, m + 20) * factor * f[n + 5]
        d6 += read_f32_le(wb, m + 24) * factor * f[n + 6]
        d7 += read_f32_le(wb, m + 28) * factor * f[n + 7]
        d8 += read_f32_le(wb, m + 32) * factor * f[n + 8]
        d9 += read_f32_le(wb, m + 36) * factor * f[n + 9]
        d10 += read_f32_le(wb, m + 40) * factor * f[n + 10]
        d11 += read_f32_le(wb, m + 44) * factor * f[n + 11]
        d12 += read_f32_le(wb, m + 48) * factor * f[n + 12]
        d13 += read_f32_le(wb, m + 52) * factor * f[n + 13]
        d14 += read_f32_le(wb, m + 56) * factor * f[n + 14]
        d15 += read_f32_le(wb, m + 60) * factor * f[n + 15]
    f[lane] = a0
    f[lane + 1] = a1
    f[lane + 2] = a2
    f[lane + 3] = a3
    f[lane + 4] = a4
    f[lane + 5] = a5
    f[lane + 6] = a6
    f[lane + 7] = a7
    f[lane + 8] = a8
    f[lane + 9] = a9
    f[lane + 10] = a10
    f[lane + 11] = a11
    f[lane + 12] = a12
    f[lane + 13] = a13
    f[lane + 14] = a14
    f[lane + 15] = a15
    f[lane + 16] = b0
    f[lane + 17] = b1
    f[lane + 18] = b2
    f[lane + 19] = b3
    f[lane + 20] = b4
    f[lane + 21] = b5
    f[lane + 22] = b6
    f[lane + 23] = b7
    f[lane + 24] = b8
    f[lane + 25] = b9
    f[lane + 26] = b10
    f[lane + 27] = b11
    f[lane + 28] = b12
    f[lane + 29] = b13
    f[lane + 30] = b14
    f[lane + 31] = b15
    f[lane + 32] = c0
    f[lane + 33] = c1
    f[lane + 34] = c2
    f[lane + 35] = c3
    f[lane + 36] = c4
    f[lane + 37] = c5
    f[lane + 38] = c6
    f[lane + 39] = c7
    f[lane + 40] = c8
    f[lane + 41] = c9
    f[lane + 42] = c10
    f[lane + 43] = c11
    f[lane + 44] = c12
    f[lane + 45] = c13
    f[lane + 46] = c14
    f[lane + 47] = c15
    f[lane + 48] = d0
    f[lane + 49] = d1
    f[lane + 50] = d2
    f[lane + 51] = d3
    f[lane + 52] = d4
    f[lane + 53] = d5
    f[lane + 54] = d6
    f[lane + 55] = d7
    f[lane + 56] = d8
    f[lane + 57] = d9
    f[lane + 58] = d10
    f[lane + 59] = d11
    f[lane + 60] = d12
    f[lane + 61] = d13
    f[lane + 62] = d14
    f[lane + 63] = d15
    done: i64 = (count >> 4) * 16
    for r in range(i64(4)):
        for t in range(count - done):
            f[lane + r * 16 + t] += read_f32_le(wb, p + r * step + (done + t) * 4) * factor * f[x + done + t]
