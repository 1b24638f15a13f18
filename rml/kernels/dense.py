"""Rows of unquantised weights (F32, F16, BF16) and of float64 times float64 activations.

Every dot product adds in one order: 32 partial sums, `lane[t] += w[32b + t] * x[32b + t]` for b upwards, then the
lanes 0..31 one after another. All paths (one token, many tokens, widened rows of quantised formats) use this order,
so they give the same bits.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le, read_i16_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64

# an f16 exponent stands 112 below the f32 one of the same value
TWO_112: Final = 5192296858534827628530496329220096.0
CHUNK: Final = 1024  # columns taken at once, a multiple of 32: 8 KB of activations


def add_lanes(f: vec[float], w: i64, x: i64, count: i64, lane: i64) -> None:
    """f[lane + j % 32] += f[w + j] * f[x + j], j < count.

    The lanes are 32 variables because the compiler keeps those in four vector registers; lanes in memory would have
    to be read and written again for each block.
    """
    l0: float = f[lane]
    l1: float = f[lane + 1]
    l2: float = f[lane + 2]
    l3: float = f[lane + 3]
    l4: float = f[lane + 4]
    l5: float = f[lane + 5]
    l6: float = f[lane + 6]
    l7: float = f[lane + 7]
    l8: float = f[lane + 8]
    l9: float = f[lane + 9]
    l10: float = f[lane + 10]
    l11: float = f[lane + 11]
    l12: float = f[lane + 12]
    l13: float = f[lane + 13]
    l14: float = f[lane + 14]
    l15: float = f[lane + 15]
    l16: float = f[lane + 16]
    l17: float = f[lane + 17]
    l18: float = f[lane + 18]
    l19: float = f[lane + 19]
    l20: float = f[lane + 20]
    l21: float = f[lane + 21]
    l22: float = f[lane + 22]
    l23: float = f[lane + 23]
    l24: float = f[lane + 24]
    l25: float = f[lane + 25]
    l26: float = f[lane + 26]
    l27: float = f[lane + 27]
    l28: float = f[lane + 28]
    l29: float = f[lane + 29]
    l30: float = f[lane + 30]
    l31: float = f[lane + 31]
    for b in range(count >> 5):
        i: i64 = w + b * 32
        j: i64 = x + b * 32
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
        l16 += f[i + 16] * f[j + 16]
        l17 += f[i + 17] * f[j + 17]
        l18 += f[i + 18] * f[j + 18]
        l19 += f[i + 19] * f[j + 19]
        l20 += f[i + 20] * f[j + 20]
        l21 += f[i + 21] * f[j + 21]
        l22 += f[i + 22] * f[j + 22]
        l23 += f[i + 23] * f[j + 23]
        l24 += f[i + 24] * f[j + 24]
        l25 += f[i + 25] * f[j + 25]
        l26 += f[i + 26] * f[j + 26]
        l27 += f[i + 27] * f[j + 27]
        l28 += f[i + 28] * f[j + 28]
        l29 += f[i + 29] * f[j + 29]
        l30 += f[i + 30] * f[j + 30]
        l31 += f[i + 31] * f[j + 31]
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
    f[lane + 16] = l16
    f[lane + 17] = l17
    f[lane + 18] = l18
    f[lane + 19] = l19
    f[lane + 20] = l20
    f[lane + 21] = l21
    f[lane + 22] = l22
    f[lane + 23] = l23
    f[lane + 24] = l24
    f[lane + 25] = l25
    f[lane + 26] = l26
    f[lane + 27] = l27
    f[lane + 28] = l28
    f[lane + 29] = l29
    f[lane + 30] = l30
    f[lane + 31] = l31
    done: i64 = (count >> 5) * 32
    for t in range(count - done):
        f[lane + t] += f[w + done + t] * f[x + done + t]


def add_lanes_f32(wb: bytes, p: i64, factor: float, f: vec[float], x: i64, count: i64, lane: i64) -> None:
    """The same for `count` little-endian f32 weights from byte p of wb, each times `factor`, a power of two."""
    l0: float = f[lane]
    l1: float = f[lane + 1]
    l2: float = f[lane + 2]
    l3: float = f[lane + 3]
    l4: float = f[lane + 4]
    l5: float = f[lane + 5]
    l6: float = f[lane + 6]
    l7: float = f[lane + 7]
    l8: float = f[lane + 8]
    l9: float = f[lane + 9]
    l10: float = f[lane + 10]
    l11: float = f[lane + 11]
    l12: float = f[lane + 12]
    l13: float = f[lane + 13]
    l14: float = f[lane + 14]
    l15: float = f[lane + 15]
    l16: float = f[lane + 16]
    l17: float = f[lane + 17]
    l18: float = f[lane + 18]
    l19: float = f[lane + 19]
    l20: float = f[lane + 20]
    l21: float = f[lane + 21]
    l22: float = f[lane + 22]
    l23: float = f[lane + 23]
    l24: float = f[lane + 24]
    l25: float = f[lane + 25]
    l26: float = f[lane + 26]
    l27: float = f[lane + 27]
    l28: float = f[lane + 28]
    l29: float = f[lane + 29]
    l30: float = f[lane + 30]
    l31: float = f[lane + 31]
    for b in range(count >> 5):
        i: i64 = p + b * 128
        j: i64 = x + b * 32
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
        l16 += read_f32_le(wb, i + 64) * factor * f[j + 16]
        l17 += read_f32_le(wb, i + 68) * factor * f[j + 17]
        l18 += read_f32_le(wb, i + 72) * factor * f[j + 18]
        l19 += read_f32_le(wb, i + 76) * factor * f[j + 19]
        l20 += read_f32_le(wb, i + 80) * factor * f[j + 20]
        l21 += read_f32_le(wb, i + 84) * factor * f[j + 21]
        l22 += read_f32_le(wb, i + 88) * factor * f[j + 22]
        l23 += read_f32_le(wb, i + 92) * factor * f[j + 23]
        l24 += read_f32_le(wb, i + 96) * factor * f[j + 24]
        l25 += read_f32_le(wb, i + 100) * factor * f[j + 25]
        l26 += read_f32_le(wb, i + 104) * factor * f[j + 26]
        l27 += read_f32_le(wb, i + 108) * factor * f[j + 27]
        l28 += read_f32_le(wb, i + 112) * factor * f[j + 28]
        l29 += read_f32_le(wb, i + 116) * factor * f[j + 29]
        l30 += read_f32_le(wb, i + 120) * factor * f[j + 30]
        l31 += read_f32_le(wb, i + 124) * factor * f[j + 31]
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
    f[lane + 16] = l16
    f[lane + 17] = l17
    f[lane + 18] = l18
    f[lane + 19] = l19
    f[lane + 20] = l20
    f[lane + 21] = l21
    f[lane + 22] = l22
    f[lane + 23] = l23
    f[lane + 24] = l24
    f[lane + 25] = l25
    f[lane + 26] = l26
    f[lane + 27] = l27
    f[lane + 28] = l28
    f[lane + 29] = l29
    f[lane + 30] = l30
    f[lane + 31] = l31
    done: i64 = (count >> 5) * 32
    for t in range(count - done):
        f[lane + t] += read_f32_le(wb, p + (done + t) * 4) * factor * f[x + done + t]


def clear_lanes(f: vec[float], lane: i64, rows: i64) -> None:
    """Zeroes the lanes of `rows` products, 32 each."""
    for t in range(rows * 32):
        f[lane + t] = 0.0


def sum_lanes(f: vec[float], lane: i64) -> float:
    """f[lane] to f[lane + 31], one after another."""
    total: float = 0.0
    for t in range(i64(32)):
        total += f[lane + t]
    return total


def dot(f: vec[float], w: i64, x: i64, count: i64, lane: i64) -> float:
    """Sum of f[w + j] * f[x + j] for j < count, in the module's order; f[lane : lane + 32] is scratch."""
    clear_lanes(f, lane, 1)
    add_lanes(f, w, x, count, lane)
    return sum_lanes(f, lane)


def bits_f16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64) -> None:
    """k[out + j] = bits of an f32 that is 2^-112 times the f16 weight j, exactly, subnormals included.

    Exponent 31 (infinity, NaN) becomes exponent 255, which no power of two changes.
    """
    for j in range(count):
        v: i32 = i32(read_i16_le(wb, start + j * 2))
        high: i32 = ((v & 31744) + 1024) & 32768  # not zero where all exponent bits are set
        k[out + j] = (((v & 32767) << 13) + (high << 13) * 7) | (v & -2147483648)


def bits_bf16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64) -> None:
    """k[out + j] = bits of the f32 that bf16 weight j is the upper half of."""
    for j in range(count):
        k[out + j] = i32(read_i16_le(wb, start + j * 2)) << 16


def widen_f32(wb: bytes, start: i64, count: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = the f32 weight j."""
    for j in range(count):
        f[out + j] = read_f32_le(wb, start + j * 4)


def widen_f16(wb: bytes, start: i64, count: i64, k: vec[i32], kb: bytes, ks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = the f16 weight j; k[ks:ks+count] is scratch, kb the same memory."""
    bits_f16(wb, start, count, k, ks)
    for j in range(count):
        f[out + j] = read_f32_le(kb, (ks + j) * 4) * TWO_112


def widen_bf16(wb: bytes, start: i64, count: i64, k: vec[i32], kb: bytes, ks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = the bf16 weight j; k[ks:ks+count] is scratch, kb the same memory."""
    bits_bf16(wb, start, count, k, ks)
    for j in range(count):
        f[out + j] = read_f32_le(kb, (ks + j) * 4)


def put(f: vec[float], y: i64, value: float, accumulate: i64) -> None:
    """f[y] = value, or f[y] += value."""
    if accumulate != 0:
        f[y] += value
    else:
        f[y] = value


def store_sums(f: vec[float], lane: i64, rows: i64, y: i64, accumulate: i64) -> None:
    """f[y + r] (+)= the sum of row r's lanes."""
    for r in range(rows):
        put(f, y + r, sum_lanes(f, lane + r * 32), accumulate)


def matvec_float(
    kind: i64, wb: bytes, start: i64, first: i64, last: i64, cols: i64, k: vec[i32], kb: bytes,
    f: vec[float], x: i64, y: i64, accumulate: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r of an F32 (kind 0), F16 (1) or BF16 (30) matrix times f[x : x + cols], rows first..last-1.

    Eight rows at a time meet a piece of x that stays in the first-level cache. Scratch: f[fs : fs + 256],
    k[ks : ks + CHUNK]; kb is the same memory as k.
    """
    size: i64 = 2
    if kind == 0:
        size = 4
    r: i64 = first
    while r < last:
        rows: i64 = last - r
        if rows > 8:
            rows = 8
        clear_lanes(f, fs, rows)
        done: i64 = 0
        while done < cols:
            count: i64 = cols - done
            if count > CHUNK:
                count = CHUNK
            for i in range(rows):
                p: i64 = start + ((r + i) * cols + done) * size
                if kind == 0:
                    add_lanes_f32(wb, p, 1.0, f, x + done, count, fs + i * 32)
                elif kind == 1:
                    bits_f16(wb, p, count, k, ks)
                    add_lanes_f32(kb, ks * 4, TWO_112, f, x + done, count, fs + i * 32)
                else:
                    bits_bf16(wb, p, count, k, ks)
                    add_lanes_f32(kb, ks * 4, 1.0, f, x + done, count, fs + i * 32)
            done += CHUNK
        store_sums(f, fs, rows, y + r, accumulate)
        r += 8


def read_words(wb: bytes, start: i64, count: i64) -> i64:
    """The sum of `count` i64 from byte `start`: nothing but reading, the yardstick of the benchmarks."""
    total: i64 = 0
    for j in range(count):
        total += read_i64_le(wb, start + j * 8) & 65535  # no sum that overflows, also where CPython adds
    return total
