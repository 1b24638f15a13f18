"""Rows of unquantised weights (F32, F16, BF16) and of float64 times float64 activations.

Every dot product adds in one order: 16 partial sums, `lane[t] += w[16b + t] * x[16b + t]` for b upwards, then the
lanes 0..15 one after another. All paths (one token, many tokens, widened rows of quantised formats) use this order,
so they give the same bits.

The lanes are variables, written out: those the compiler keeps in two vector registers. Lanes in memory would have to be
read and written again for each block, since for all it knows they could be weights or activations.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le, read_i16_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64

from rml.kernels.cache_read import prefetch

# an f16 exponent stands 112 below the f32 one of the same value
TWO_112: Final = 5192296858534827628530496329220096.0
NARROW: Final = 2048  # up to here the activations of a row stay in the first cache, and single rows are read fastest
AHEAD: Final = 8192  # bytes by which one row is asked for before it is read; of four rows at once
AHEAD_OF_FOUR: Final = 2048


def sum_lanes(f: vec[float], lane: i64) -> float:
    """f[lane] to f[lane + 15], one after another."""
    total: float = 0.0
    for t in range(i64(16)):
        total += f[lane + t]
    return total


def dot(f: vec[float], w: i64, x: i64, count: i64, lane: i64) -> float:
    """Sum of f[w + j] * f[x + j] for j < count, in the module's order; f[lane : lane + 16] is scratch."""
    l0: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    l3: float = 0.0
    l4: float = 0.0
    l5: float = 0.0
    l6: float = 0.0
    l7: float = 0.0
    l8: float = 0.0
    l9: float = 0.0
    l10: float = 0.0
    l11: float = 0.0
    l12: float = 0.0
    l13: float = 0.0
    l14: float = 0.0
    l15: float = 0.0
    for b in range(count >> 4):
        i: i64 = w + b * 16
        j: i64 = x + b * 16
        l0 += f[i] * f[j]
        l1 += f[i + 1] * f[j + 1]
        l2 += f[i + 2] * f[j + 2]
        l3 += f[i + 3] * f[j + 3]
        l4 += f[i + 4] * f[j + 4]
        l5 += f[i + 5] * f[j + 5]
        l6 += f[i + 6] * f[j + 6]
        l7 += f[i + 7] * f[j + 7]
        l8 += f[i + 8] * f[j + 8]
        l9 += f[i + 9] * f[j + 9]
        l10 += f[i + 10] * f[j + 10]
        l11 += f[i + 11] * f[j + 11]
        l12 += f[i + 12] * f[j + 12]
        l13 += f[i + 13] * f[j + 13]
        l14 += f[i + 14] * f[j + 14]
        l15 += f[i + 15] * f[j + 15]
    f[lane] = l0
    f[lane + 1] = l1
    f[lane + 2] = l2
    f[lane + 3] = l3
    f[lane + 4] = l4
    f[lane + 5] = l5
    f[lane + 6] = l6
    f[lane + 7] = l7
    f[lane + 8] = l8
    f[lane + 9] = l9
    f[lane + 10] = l10
    f[lane + 11] = l11
    f[lane + 12] = l12
    f[lane + 13] = l13
    f[lane + 14] = l14
    f[lane + 15] = l15
    done: i64 = (count >> 4) * 16
    for t in range(count - done):
        f[lane + t] += f[w + done + t] * f[x + done + t]
    return sum_lanes(f, lane)


def dot_f32(wb: bytes, p: i64, factor: float, f: vec[float], x: i64, count: i64, lane: i64) -> float:
    """The same for `count` little-endian f32 weights from byte p of wb, each times `factor`, a power of two."""
    l0: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    l3: float = 0.0
    l4: float = 0.0
    l5: float = 0.0
    l6: float = 0.0
    l7: float = 0.0
    l8: float = 0.0
    l9: float = 0.0
    l10: float = 0.0
    l11: float = 0.0
    l12: float = 0.0
    l13: float = 0.0
    l14: float = 0.0
    l15: float = 0.0
    for b in range(count >> 4):
        i: i64 = p + b * 64
        j: i64 = x + b * 16
        prefetch(wb, i + AHEAD)
        l0 += read_f32_le(wb, i) * factor * f[j]
        l1 += read_f32_le(wb, i + 4) * factor * f[j + 1]
        l2 += read_f32_le(wb, i + 8) * factor * f[j + 2]
        l3 += read_f32_le(wb, i + 12) * factor * f[j + 3]
        l4 += read_f32_le(wb, i + 16) * factor * f[j + 4]
        l5 += read_f32_le(wb, i + 20) * factor * f[j + 5]
        l6 += read_f32_le(wb, i + 24) * factor * f[j + 6]
        l7 += read_f32_le(wb, i + 28) * factor * f[j + 7]
        l8 += read_f32_le(wb, i + 32) * factor * f[j + 8]
        l9 += read_f32_le(wb, i + 36) * factor * f[j + 9]
        l10 += read_f32_le(wb, i + 40) * factor * f[j + 10]
        l11 += read_f32_le(wb, i + 44) * factor * f[j + 11]
        l12 += read_f32_le(wb, i + 48) * factor * f[j + 12]
        l13 += read_f32_le(wb, i + 52) * factor * f[j + 13]
        l14 += read_f32_le(wb, i + 56) * factor * f[j + 14]
        l15 += read_f32_le(wb, i + 60) * factor * f[j + 15]
    f[lane] = l0
    f[lane + 1] = l1
    f[lane + 2] = l2
    f[lane + 3] = l3
    f[lane + 4] = l4
    f[lane + 5] = l5
    f[lane + 6] = l6
    f[lane + 7] = l7
    f[lane + 8] = l8
    f[lane + 9] = l9
    f[lane + 10] = l10
    f[lane + 11] = l11
    f[lane + 12] = l12
    f[lane + 13] = l13
    f[lane + 14] = l14
    f[lane + 15] = l15
    done: i64 = (count >> 4) * 16
    for t in range(count - done):
        f[lane + t] += read_f32_le(wb, p + (done + t) * 4) * factor * f[x + done + t]
    return sum_lanes(f, lane)


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


def f32_of_f16(v: i32) -> i32:
    """The bits of an f32 that is 2^-112 times the f16 with bits v, exactly, subnormals included.

    Exponent 31 (infinity, NaN) becomes exponent 255, which no power of two changes.
    """
    high: i32 = ((v & 31744) + 1024) & 32768  # not zero where all exponent bits are set
    return (((v & 32767) << 13) + (high << 13) * 7) | (v & -2147483648)


def bits_f16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64) -> None:
    """k[out + j] = f32_of_f16 of weight j of `count`."""
    blocks: i64 = count >> 5
    for b in range(blocks):
        prefetch(wb, start + b * 64 + AHEAD)
        for t in range(i64(32)):
            k[out + b * 32 + t] = f32_of_f16(i32(read_i16_le(wb, start + (b * 32 + t) * 2)))
    for j in range(blocks * 32, count):
        k[out + j] = f32_of_f16(i32(read_i16_le(wb, start + j * 2)))


def bits_bf16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64) -> None:
    """k[out + j] = the bits of the f32 that bf16 weight j is the upper half of."""
    blocks: i64 = count >> 5
    for b in range(blocks):
        prefetch(wb, start + b * 64 + AHEAD)
        for t in range(i64(32)):
            k[out + b * 32 + t] = i32(read_i16_le(wb, start + (b * 32 + t) * 2)) << 16
    for j in range(blocks * 32, count):
        k[out + j] = i32(read_i16_le(wb, start + j * 2)) << 16


def widen_float(
    kind: i64, wb: bytes, start: i64, count: i64, k: vec[i32], kb: bytes, ks: i64, f: vec[float], out: i64
) -> None:
    """f[out + j] = weight j, F32 (kind 0), F16 (1) or BF16 (30). k[ks : ks + count] is scratch, kb the same memory."""
    if kind == 0:
        for j in range(count):
            f[out + j] = read_f32_le(wb, start + j * 4)
    elif kind == 1:
        bits_f16(wb, start, count, k, ks)
        for j in range(count):
            f[out + j] = read_f32_le(kb, (ks + j) * 4) * TWO_112
    else:
        bits_bf16(wb, start, count, k, ks)
        for j in range(count):
            f[out + j] = read_f32_le(kb, (ks + j) * 4)


def put(f: vec[float], y: i64, value: float, accumulate: i64) -> None:
    """f[y] = value, or f[y] += value."""
    if accumulate != 0:
        f[y] += value
    else:
        f[y] = value


def clear_lanes(f: vec[float], lane: i64) -> None:
    """Zeroes the lanes of four rows."""
    for t in range(i64(64)):
        f[lane + t] = 0.0


def four_rows(
    kind: i64, wb: bytes, start: i64, cols: i64, k: vec[i32], kb: bytes, f: vec[float], x: i64, ks: i64, fs: i64
) -> None:
    """The lanes of the four rows from byte `start`. F16 and BF16 are widened in k."""
    clear_lanes(f, fs)
    if kind == 0:
        four_dots_f32(wb, start, cols * 4, 1.0, f, x, cols, fs)
        return
    factor: float = 1.0
    if kind == 1:
        factor = TWO_112
    for i in range(i64(4)):
        if kind == 1:
            bits_f16(wb, start + i * cols * 2, cols, k, ks + i * cols)
        else:
            bits_bf16(wb, start + i * cols * 2, cols, k, ks + i * cols)
    four_dots_f32(kb, ks * 4, cols * 4, factor, f, x, cols, fs)


def one_row(
    kind: i64, wb: bytes, start: i64, cols: i64, k: vec[i32], kb: bytes, f: vec[float], x: i64, ks: i64, fs: i64
) -> float:
    """The row from byte `start` times f[x : x + cols]. F16 and BF16 are widened in k."""
    if kind == 0:
        return dot_f32(wb, start, 1.0, f, x, cols, fs)
    if kind == 1:
        bits_f16(wb, start, cols, k, ks)
        return dot_f32(kb, ks * 4, TWO_112, f, x, cols, fs)
    bits_bf16(wb, start, cols, k, ks)
    return dot_f32(kb, ks * 4, 1.0, f, x, cols, fs)


def matvec_float(
    kind: i64, wb: bytes, start: i64, first: i64, last: i64, cols: i64, k: vec[i32], kb: bytes,
    f: vec[float], x: i64, y: i64, accumulate: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r of an F32 (kind 0), F16 (1) or BF16 (30) matrix times f[x : x + cols], rows first..last-1.

    Scratch: f[fs : fs + 64], and for the 16-bit types k[ks : ks + 4 * cols]; kb is the same memory as k.
    """
    size: i64 = 2
    narrow: i64 = 2 * NARROW  # measured
    if kind == 0:
        size = 4
        narrow = NARROW
    r: i64 = first
    if cols > narrow:
        while r + 4 <= last:
            four_rows(kind, wb, start + r * cols * size, cols, k, kb, f, x, ks, fs)
            for i in range(i64(4)):
                put(f, y + r + i, sum_lanes(f, fs + i * 16), accumulate)
            r += 4
    while r < last:
        put(f, y + r, one_row(kind, wb, start + r * cols * size, cols, k, kb, f, x, ks, fs), accumulate)
        r += 1


def read_words(wb: bytes, start: i64, count: i64) -> i64:
    """The sum of `count` i64 from byte `start`: nothing but reading, the yardstick of the benchmarks."""
    total: i64 = 0
    for j in range(count):
        total += read_i64_le(wb, start + j * 8) & 65535  # no sum that overflows, also where CPython adds
    return total
