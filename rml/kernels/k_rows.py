"""Rows of the K types, made of the integers that k_quants.py and k_quants_low.py take out of blocks of 256 weights."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.k_quants import block_q4_k, block_q5_k, block_q6_k
from rml.kernels.k_quants_low import block_q2_k, block_q3_k


def block(kind: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], out: i64, mins: i64, k: vec[i32], ks: i64) -> None:
    """h[out : out + 256] = the block at byte p in integers; with a minimum, h[mins : mins + 16] the integer minima."""
    if kind == 12:
        block_q4_k(w, wb, p, h, out, mins, k, ks)
    elif kind == 14:
        block_q6_k(w, p, h, out)
    elif kind == 13:
        block_q5_k(w, wb, p, h, out, mins, k, ks)
    elif kind == 11:
        block_q3_k(w, wb, p, h, out, k, ks)
    else:
        block_q2_k(w, p, h, out, mins)


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
    """1 for the types with a minimum beside the scale."""
    if kind == 11 or kind == 14:
        return i64(0)
    return i64(1)


def dot_block(h: vec[i16], a: i64, b: i64) -> i32:
    """Sum of h[a + j] * h[b + j] over 256 positions."""
    total: i32 = 0
    for j in range(i64(256)):
        total += i32(h[a + j]) * i32(h[b + j])
    return total


def dot_minima(h: vec[i16], mins: i64, k: vec[i32], sums: i64) -> i32:
    """Sum of h[mins + s] * k[sums + s] over the 16 parts of a block."""
    total: i32 = 0
    for s in range(i64(16)):
        total += i32(h[mins + s]) * k[sums + s]
    return total


def matvec_k(
    kind: i64, w: vec[u8], wb: bytes, start: i64, first: i64, last: i64, blocks: i64, h: vec[i16], hx: i64,
    k: vec[i32], sums: i64, f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64, hs: i64, ks: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations; layouts in matmul.matvec. h[hs : hs + 272] is scratch."""
    size: i64 = block_bytes(kind)
    at: i64 = factor_at(kind)
    minimum: i64 = has_minimum(kind)
    for r in range(first, last):
        p: i64 = start + r * blocks * size
        total: float = 0.0
        for b in range(blocks):
            block(kind, w, wb, p, h, hs, hs + 256, k, ks)
            acc: i32 = dot_block(h, hs, hx + b * 256)
            d: float = f[half + (i64(w[p + at]) | (i64(w[p + at + 1]) << 8))]
            if minimum != 0:
                low: i32 = dot_minima(h, hs + 256, k, sums + b * 16)
                m: float = f[half + (i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8))]
                total += (float(acc) * d - float(low) * m) * f[scale + b]
            else:
                total += float(acc) * d * f[scale + b]
            p += size
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def unpack_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, mins: i64, k: vec[i32], ks: i64,
    f: vec[float], d: i64, m: i64, half: i64
) -> None:  # fmt: skip
    """For k_tile.py: block b to h[out + 2048 b], its minima h[mins + 128 b], f[d + 8 b] d, f[m + 8 b] -dmin."""
    size: i64 = block_bytes(kind)
    at: i64 = factor_at(kind)
    minimum: i64 = has_minimum(kind)
    for b in range(blocks):
        block(kind, w, wb, p, h, out + b * 2048, mins + b * 128, k, ks)
        f[d + b * 8] = f[half + (i64(w[p + at]) | (i64(w[p + at + 1]) << 8))]
        if minimum != 0:
            f[m + b * 8] = -f[half + (i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8))]
        p += size


def widen_k(
    kind: i64, w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], hs: i64, k: vec[i32], ks: i64,
    f: vec[float], half: i64, out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64, exactly. h[hs : hs + 272] is scratch."""
    size: i64 = block_bytes(kind)
    at: i64 = factor_at(kind)
    minimum: i64 = has_minimum(kind)
    for b in range(blocks):
        block(kind, w, wb, p, h, hs, hs + 256, k, ks)
        d: float = f[half + (i64(w[p + at]) | (i64(w[p + at + 1]) << 8))]
        for j in range(i64(256)):
            f[out + j] = float(i32(h[hs + j])) * d
        if minimum != 0:
            m: float = f[half + (i64(w[p + at + 2]) | (i64(w[p + at + 3]) << 8))]
            for s in range(i64(16)):
                low: float = float(i32(h[hs + 256 + s])) * m
                for j in range(i64(16)):
                    f[out + s * 16 + j] -= low
        out += 256
        p += size
