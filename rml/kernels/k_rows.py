"""Rows of the K types, unpacked and widened, and the choice among them by ggml's number."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.k_quants import (
    ask,
    block_q2_k,
    block_q3_k,
    block_q4_k,
    block_q5_k,
    block_q6_k,
    minima_k4,
    sums_q2_k,
    sums_q3_k,
    sums_q4_k,
    sums_q5_k,
    sums_q6_k,
)


def integers(kind: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out : out + 256] = the block at byte p in integers."""
    if kind == 10:
        block_q2_k(w, p, h, out)
    elif kind == 11:
        block_q3_k(w, wb, p, h, out)
    elif kind == 12:
        block_q4_k(w, wb, p, h, out)
    elif kind == 13:
        block_q5_k(w, wb, p, h, out)
    else:
        block_q6_k(w, p, h, out)


def minima(kind: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64) -> None:
    """h[out : out + 16] = the integer minima of the block at byte p, of a type that has them."""
    if kind == 10:
        for s in range(i64(16)):
            h[out + s] = i16(w[p + s] >> 4)
    else:
        packed: i64 = minima_k4(wb, p + 4)
        for s in range(i64(16)):
            h[out + s] = i16((packed >> ((s >> 1) * 8)) & 255)


def block_bytes(kind: i64) -> i64:
    """Bytes of a block."""
    if kind == 10:
        return i64(84)
    if kind == 11:
        return i64(110)
    if kind == 12:
        return i64(144)
    if kind == 13:
        return i64(176)
    return i64(210)


def factor_at(kind: i64) -> i64:
    """Where in a block the f16 d stands; where there is a minimum, dmin follows it."""
    if kind == 10:
        return i64(80)
    if kind == 11:
        return i64(108)
    if kind == 14:
        return i64(208)
    return i64(0)


def has_minimum(kind: i64) -> i64:
    """1 for the types with a minimum beside the scale, whatever their blocks: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K."""
    if kind == 3 or kind == 7 or kind == 10 or kind == 12 or kind == 13:
        return i64(1)
    return i64(0)


def sums_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64, x: vec[u8], at: i64,
    k: vec[i32], sums: i64, out: i64, low: i64, parts: i64, fi: vec[i64], d: i64, m: i64, hs: i64
) -> None:  # fmt: skip
    """The rows from byte p times int8 activations h[hx:], as bytes x[at:], for rows.py.

    k[out + 8 b + r] = sum of block b's integers of row r times the activations, fi[d + 8 b + r] = the bits of d; where
    there is a minimum, k[low + 8 b + r] = sum of the integer minima times the activations, fi[m + 8 b + r] = -dmin's.
    Scratch: h[hs : hs + 256 * blocks], k[parts : parts + 16 * blocks].
    """
    if kind == 12:
        sums_q4_k(w, wb, p, rows, blocks, x, at, k, sums, out, low, fi, d, m)
    elif kind == 14:
        sums_q6_k(w, wb, p, rows, blocks, x, at, k, sums, out, parts, fi, d)
    elif kind == 13:
        sums_q5_k(w, wb, p, rows, blocks, h, hx, k, sums, out, low, fi, d, m, hs)
    elif kind == 11:
        sums_q3_k(w, wb, p, rows, blocks, h, hx, k, out, fi, d, hs)
    else:
        sums_q2_k(w, wb, p, rows, blocks, h, hx, k, sums, out, low, fi, d, m, hs)


def unpack_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, mins: i64,
    f: vec[float], d: i64, m: i64
) -> None:  # fmt: skip
    """For k_tile.py: block b to h[out + 2048 b], its minima h[mins + 128 b], f[d + 8 b] d, f[m + 8 b] -dmin."""
    size: i64 = block_bytes(kind)
    at: i64 = factor_at(kind)
    minimum: i64 = has_minimum(kind)
    for b in range(blocks):
        ask(wb, p)
        integers(kind, w, wb, p, h, out + b * 2048)
        f[d + b * 8] = f[i64(w[p + at]) | (i64(w[p + at + 1]) << 8)]
        if minimum != 0:
            minima(kind, w, wb, p, h, mins + b * 128)
            f[m + b * 8] = -f[i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8)]
        p += size


def widen_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], hs: i64,
    f: vec[float], out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64, exactly. h[hs : hs + 272] is scratch."""
    size: i64 = block_bytes(kind)
    at: i64 = factor_at(kind)
    minimum: i64 = has_minimum(kind)
    for b in range(blocks):
        integers(kind, w, wb, p, h, hs)
        d: float = f[i64(w[p + at]) | (i64(w[p + at + 1]) << 8)]
        for j in range(i64(256)):
            f[out + j] = float(i32(h[hs + j])) * d
        if minimum != 0:
            minima(kind, w, wb, p, h, hs + 256)
            m: float = f[i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8)]
            for s in range(i64(16)):
                low: float = float(i32(h[hs + 256 + s])) * m
                for j in range(i64(16)):
                    f[out + s * 16 + j] -= low
        out += 256
        p += size
