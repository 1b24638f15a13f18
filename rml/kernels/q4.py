"""Q4_0 and Q4_1: blocks of 32 weights, two to a byte; byte j holds weight j (low bits) and j + 16 (high bits).

Q4_0, 18 bytes: f16 d, 16 bytes; weight = d * (q - 8). Q4_1, 20 bytes: f16 d, f16 m, 16 bytes; weight = d * q + m.

Products are of unsigned q and int8 bytes, in two loops of 16 (see q8.py); rows.py takes the 8 off.
"""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.prefetch import AHEAD, prefetch


def sums_q4_0(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], out: i64,
    fi: vec[i64], d: i64
) -> None:  # fmt: skip
    """Row r of the rows from byte p: k[out + 8 b + r] = sum of q * x[at + 32 b :], fi[d + 8 b + r] = bits of d."""
    for r in range(rows):
        for b in range(blocks):
            prefetch(wb, p + AHEAD)
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] & 15) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] >> 4) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            k[out + b * 8 + r] = acc
            fi[d + b * 8 + r] = fi[i64(read_i32_le(wb, p) & 65535)]
            p += 18


def sums_q4_1(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], out: i64,
    fi: vec[i64], d: i64, m: i64
) -> None:  # fmt: skip
    """As sums_q4_0, and fi[m + 8 b + r] = the bits of m."""
    for r in range(rows):
        for b in range(blocks):
            prefetch(wb, p + AHEAD)
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 4 + j] & 15) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 4 + j] >> 4) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            k[out + b * 8 + r] = acc
            both: i32 = read_i32_le(wb, p)
            fi[d + b * 8 + r] = fi[i64(both & 65535)]
            fi[m + b * 8 + r] = fi[i64((both >> 16) & 65535)]
            p += 20


def unpack_q4_0(w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64) -> None:
    """h[out + b * 256 + j] = q - 8 of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        prefetch(wb, p + AHEAD)
        f[d + b * 8] = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(16)):
            h[out + b * 256 + j] = i16(i32(w[p + 2 + j] & 15) - 8)
        for j in range(i64(16)):
            h[out + b * 256 + 16 + j] = i16(i32(w[p + 2 + j] >> 4) - 8)
        p += 18


def unpack_q4_1(
    w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, m: i64
) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8], f[m + b * 8] = its scale, minimum; from byte p."""
    for b in range(blocks):
        prefetch(wb, p + AHEAD)
        f[d + b * 8] = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        f[m + b * 8] = f[i64(w[p + 2]) | (i64(w[p + 3]) << 8)]
        for j in range(i64(16)):
            h[out + b * 256 + j] = i16(w[p + 4 + j] & 15)
        for j in range(i64(16)):
            h[out + b * 256 + 16 + j] = i16(w[p + 4 + j] >> 4)
        p += 20


def widen_q4_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 2 + j] & 15) - 8)
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 2 + j] >> 4) - 8)
        p += 18


def widen_q4_1(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        m: float = f[i64(w[p + 2]) | (i64(w[p + 3]) << 8)]
        for j in range(i64(16)):
            f[out + b * 32 + j] = d * float(i32(w[p + 4 + j] & 15)) + m
        for j in range(i64(16)):
            f[out + b * 32 + 16 + j] = d * float(i32(w[p + 4 + j] >> 4)) + m
        p += 20
