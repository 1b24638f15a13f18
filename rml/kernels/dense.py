"""Rows of unquantised weights (F32, F16, BF16) times one token of float64 activations. The order: see lanes.py.

The lanes are variables, written out: those the compiler keeps in two vector registers. Lanes in memory would have to be
read and written again for each block, since for all it knows they could be weights or activations.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64

from rml.kernels.dense_four import four_dots_f32
from rml.kernels.fma import fma
from rml.kernels.half import TWO_112, bits_bf16, bits_f16
from rml.kernels.lanes import add_up, halve
from rml.kernels.norms import fill
from rml.kernels.prefetch import prefetch

AHEAD: Final = 8192  # bytes by which a row is asked for before it is read, where that is of use (caches.py)
NARROW: Final = 2048  # up to here the activations of a row stay in the first cache, and single rows are read fastest


def dot_f32(wb: bytes, p: i64, factor: float, f: vec[float], x: i64, count: i64, lane: i64, ahead: i64) -> None:
    """f[lane + t] = sum of weight j * f[x + j] for j = t mod 16 below `count`: f32 from byte p of wb, times `factor`.

    factor: a power of two. What lies `ahead` bytes further is asked for on the way.
    """
    l0 = l1 = l2 = l3 = l4 = l5 = l6 = l7 = 0.0
    l8 = l9 = l10 = l11 = l12 = l13 = l14 = l15 = 0.0
    for b in range(count >> 4):
        i: i64 = p + b * 64
        j: i64 = x + b * 16
        prefetch(wb, i + ahead)
        l0 = fma(read_f32_le(wb, i) * factor, f[j], l0)
        l1 = fma(read_f32_le(wb, i + 4) * factor, f[j + 1], l1)
        l2 = fma(read_f32_le(wb, i + 8) * factor, f[j + 2], l2)
        l3 = fma(read_f32_le(wb, i + 12) * factor, f[j + 3], l3)
        l4 = fma(read_f32_le(wb, i + 16) * factor, f[j + 4], l4)
        l5 = fma(read_f32_le(wb, i + 20) * factor, f[j + 5], l5)
        l6 = fma(read_f32_le(wb, i + 24) * factor, f[j + 6], l6)
        l7 = fma(read_f32_le(wb, i + 28) * factor, f[j + 7], l7)
        l8 = fma(read_f32_le(wb, i + 32) * factor, f[j + 8], l8)
        l9 = fma(read_f32_le(wb, i + 36) * factor, f[j + 9], l9)
        l10 = fma(read_f32_le(wb, i + 40) * factor, f[j + 10], l10)
        l11 = fma(read_f32_le(wb, i + 44) * factor, f[j + 11], l11)
        l12 = fma(read_f32_le(wb, i + 48) * factor, f[j + 12], l12)
        l13 = fma(read_f32_le(wb, i + 52) * factor, f[j + 13], l13)
        l14 = fma(read_f32_le(wb, i + 56) * factor, f[j + 14], l14)
        l15 = fma(read_f32_le(wb, i + 60) * factor, f[j + 15], l15)
    f[lane], f[lane + 1], f[lane + 2], f[lane + 3] = l0, l1, l2, l3
    f[lane + 4], f[lane + 5], f[lane + 6], f[lane + 7] = l4, l5, l6, l7
    f[lane + 8], f[lane + 9], f[lane + 10], f[lane + 11] = l8, l9, l10, l11
    f[lane + 12], f[lane + 13], f[lane + 14], f[lane + 15] = l12, l13, l14, l15
    done: i64 = (count >> 4) * 16
    for t in range(count - done):
        f[lane + t] = fma(read_f32_le(wb, p + (done + t) * 4) * factor, f[x + done + t], f[lane + t])


def widen_float(
    kind: i64, wb: bytes, start: i64, count: i64, k: vec[i32], kb: bytes, ks: i64, f: vec[float], out: i64
) -> None:
    """f[out + j] = weight j, F32 (kind 0), F16 (1) or BF16 (30). k[ks : ks + count] is scratch, kb the same memory."""
    if kind == 0:
        for j in range(count):
            f[out + j] = read_f32_le(wb, start + j * 4)
    elif kind == 1:
        bits_f16(wb, start, count, k, ks, 0)
        for j in range(count):
            f[out + j] = read_f32_le(kb, (ks + j) * 4) * TWO_112
    else:
        bits_bf16(wb, start, count, k, ks, 0)
        for j in range(count):
            f[out + j] = read_f32_le(kb, (ks + j) * 4)


def four_rows(
    kind: i64, wb: bytes, start: i64, cols: i64, k: vec[i32], kb: bytes, f: vec[float], x: i64, ks: i64, fs: i64,
    ahead: i64
) -> None:  # fmt: skip
    """The lanes of the four rows from byte `start`. F16 and BF16 are widened in k."""
    fill(f, fs, 64, 0.0)
    if kind == 0:
        four_dots_f32(wb, start, cols * 4, 1.0, f, x, cols, fs, ahead >> 2)
        return
    factor: float = 1.0
    if kind == 1:
        factor = TWO_112
    for i in range(i64(4)):
        if kind == 1:
            bits_f16(wb, start + i * cols * 2, cols, k, ks + i * cols, ahead)
        else:
            bits_bf16(wb, start + i * cols * 2, cols, k, ks + i * cols, ahead)
    four_dots_f32(kb, ks * 4, cols * 4, factor, f, x, cols, fs, 0)


def one_row(
    kind: i64, wb: bytes, start: i64, cols: i64, k: vec[i32], kb: bytes, f: vec[float], x: i64, ks: i64, fs: i64,
    ahead: i64
) -> None:  # fmt: skip
    """The lanes of the row from byte `start`. F16 and BF16 are widened in k."""
    if kind == 0:
        dot_f32(wb, start, 1.0, f, x, cols, fs, ahead)
    elif kind == 1:
        bits_f16(wb, start, cols, k, ks, ahead)
        dot_f32(kb, ks * 4, TWO_112, f, x, cols, fs, 0)
    else:
        bits_bf16(wb, start, cols, k, ks, ahead)
        dot_f32(kb, ks * 4, 1.0, f, x, cols, fs, 0)


def matvec_float(
    kind: i64, wb: bytes, start: i64, first: i64, last: i64, cols: i64, k: vec[i32], kb: bytes,
    f: vec[float], x: i64, y: i64, accumulate: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r of an F32 (kind 0), F16 (1) or BF16 (30) matrix times f[x : x + cols], rows first..last-1.

    Scratch: f[fs : fs + 64], and for the 16-bit types k[ks : ks + 4 * cols]; kb is the same memory as k.
    ahead: as in matmul.product; where it is not 0, rows are asked for AHEAD.
    """
    if ahead > 0:
        ahead = AHEAD
    size: i64 = 2
    narrow: i64 = 2 * NARROW  # measured
    if kind == 0:
        size = 4
        narrow = NARROW
    r: i64 = first
    while r < last:
        rows: i64 = 4
        if r + 4 > last:
            rows = last - r
        if cols > narrow and rows == 4:
            four_rows(kind, wb, start + r * cols * size, cols, k, kb, f, x, ks, fs, ahead)
        else:
            for i in range(rows):
                one_row(kind, wb, start + (r + i) * cols * size, cols, k, kb, f, x, ks, fs + i * 16, ahead)
        halve(f, fs, rows, 16)
        add_up(f, fs, 16, y + r, rows, accumulate)
        r += rows


def read_words(wb: bytes, start: i64, count: i64) -> i64:
    """The sum of `count` i64 from byte `start`: nothing but reading, the yardstick of the benchmarks."""
    total: i64 = 0
    for j in range(count):
        total += read_i64_le(wb, start + j * 8) & 65535  # no sum that overflows, also where CPython adds
    return total
