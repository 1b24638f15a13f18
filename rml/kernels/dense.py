"""Rows of unquantised weights (F32, F16, BF16) and of float64 times float64 activations.

Every dot product adds in one order: 32 partial sums, `lane[t] += w[32b + t] * x[32b + t]` for b upwards, then the
lanes 0..31 one after another. All paths (one token, many tokens, widened rows of quantised formats) use this order,
so they give the same bits.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le, read_i16_le
from librt.vecs import vec
from mypy_extensions import i32, i64

# an f16 exponent stands 112 below the f32 one of the same value
TWO_112: Final = 5192296858534827628530496329220096.0


def dot(f: vec[float], w: i64, x: i64, count: i64, lane: i64) -> float:
    """Sum of f[w + j] * f[x + j] for j < count, in the module's order; f[lane:lane+32] is scratch."""
    for t in range(i64(32)):
        f[lane + t] = 0.0
    blocks: i64 = count >> 5
    for b in range(blocks):
        for t in range(i64(32)):
            f[lane + t] += f[w + b * 32 + t] * f[x + b * 32 + t]
    tail: i64 = blocks * 32
    for t in range(count - tail):
        f[lane + t] += f[w + tail + t] * f[x + tail + t]
    total: float = 0.0
    for t in range(i64(32)):
        total += f[lane + t]
    return total


def dot_f32(wb: bytes, p: i64, f: vec[float], x: i64, count: i64, lane: i64) -> float:
    """The same for `count` little-endian f32 weights from byte p of wb."""
    for t in range(i64(32)):
        f[lane + t] = 0.0
    blocks: i64 = count >> 5
    for b in range(blocks):
        for t in range(i64(32)):
            f[lane + t] += read_f32_le(wb, p + (b * 32 + t) * 4) * f[x + b * 32 + t]
    tail: i64 = blocks * 32
    for t in range(count - tail):
        f[lane + t] += read_f32_le(wb, p + (tail + t) * 4) * f[x + tail + t]
    total: float = 0.0
    for t in range(i64(32)):
        total += f[lane + t]
    return total


def dot_f16(kb: bytes, p: i64, f: vec[float], x: i64, count: i64, lane: i64) -> float:
    """The same for `count` f16 weights, given as what bits_f16 wrote (byte p of kb)."""
    for t in range(i64(32)):
        f[lane + t] = 0.0
    blocks: i64 = count >> 5
    for b in range(blocks):
        for t in range(i64(32)):
            f[lane + t] += read_f32_le(kb, p + (b * 32 + t) * 4) * TWO_112 * f[x + b * 32 + t]
    tail: i64 = blocks * 32
    for t in range(count - tail):
        f[lane + t] += read_f32_le(kb, p + (tail + t) * 4) * TWO_112 * f[x + tail + t]
    total: float = 0.0
    for t in range(i64(32)):
        total += f[lane + t]
    return total


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


def matvec_f32(
    wb: bytes, start: i64, first: i64, last: i64, cols: i64, f: vec[float], x: i64, y: i64, accumulate: i64, fs: i64
) -> None:
    """f[y + r] (+)= row r of an f32 matrix times f[x:x+cols], rows first..last-1; f[fs:fs+32] is scratch."""
    for r in range(first, last):
        put(f, y + r, dot_f32(wb, start + r * cols * 4, f, x, cols, fs), accumulate)


def matvec_f16(
    wb: bytes, start: i64, first: i64, last: i64, cols: i64, k: vec[i32], kb: bytes,
    f: vec[float], x: i64, y: i64, accumulate: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """The same for f16; k[ks:ks+cols] is scratch too, kb the same memory as k."""
    for r in range(first, last):
        bits_f16(wb, start + r * cols * 2, cols, k, ks)
        put(f, y + r, dot_f16(kb, ks * 4, f, x, cols, fs), accumulate)


def matvec_bf16(
    wb: bytes, start: i64, first: i64, last: i64, cols: i64, k: vec[i32], kb: bytes,
    f: vec[float], x: i64, y: i64, accumulate: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """The same for bf16."""
    for r in range(first, last):
        bits_bf16(wb, start + r * cols * 2, cols, k, ks)
        put(f, y + r, dot_f32(kb, ks * 4, f, x, cols, fs), accumulate)
