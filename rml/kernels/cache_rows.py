"""Writes keys and values into the KV cache, rounded to its type: float64, float32, float16, or int8 in groups.

The cache is one arena, seen as float64 (`cf`), i32 (`cw`), i16 (`ch`), u8 (`cu`) and bytes (`cb`). A row is one
position's keys, or values, of one layer: all kv heads. Rows are ordered page, layer, key/value, slot.

Rounding is to nearest, ties to even, done on the bits: a double's exponent and the upper part of its mantissa are
those of the smaller type, up to the exponent's bias. Numbers too small for a normal one are rounded by adding a power
of two whose last mantissa bit is the smallest subnormal.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

F64: Final = 0  # the cache's types, as kernels know them
F32: Final = 1
F16: Final = 2
INT8: Final = 3

STORE_SCRATCH: Final = 64  # float64 of scratch, beside one row


def cache_row(ids: vec[i64], pages: i64, position: i64, page_size: i64, layer: i64, layers: i64, which: i64) -> i64:
    """A row's index: ((page * layers + layer) * 2 + which) * page_size + slot; which = 0 for keys, 1 for values."""
    page: i64 = ids[pages + position // page_size]
    return ((page * layers + layer) * 2 + which) * page_size + position % page_size


def int8_group(dim: i64) -> i64:
    """The largest power of two that divides head_dim, at most 32: so groups never straddle heads."""
    size: i64 = 32
    while dim & (size - 1) != 0:
        size = size >> 1
    return size


def int8_row_bytes(kv_heads: i64, dim: i64) -> i64:
    """Bytes of an int8 row: one f32 scale per group, then the values, padded to a multiple of 4."""
    count: i64 = kv_heads * dim
    return count // int8_group(dim) * 4 + ((count + 3) & -4)


def row_bytes(kv_heads: i64, dim: i64, dtype: i64) -> i64:
    """Bytes of a row of the cache."""
    if dtype == F64:
        return kv_heads * dim * 8
    if dtype == F32:
        return kv_heads * dim * 4
    if dtype == F16:
        return kv_heads * dim * 2
    return int8_row_bytes(kv_heads, dim)


def magnitude(bits: i64) -> i64:
    """A double's bits without the sign. (Literals of more than 62 bits would be objects.)"""
    return (((bits >> 1) & 0x3FFFFFFFFFFFFFFF) << 1) | (bits & 1)


def absolute_plus(f: vec[float], x: i64, count: i64, constant: float, out: i64) -> None:
    """out = |x| + constant."""
    for t in range(count):
        v: float = f[x + t]
        if v < 0.0:
            v = -v
        f[out + t] = v + constant


def store_f64(f: vec[float], fb: bytes, x: i64, count: i64, cf: vec[float], at: i64) -> i64:
    """cf[at:] = x. Returns a negative number if one of them is infinite or NaN."""
    worst: i64 = 0
    for t in range(count):
        cf[at + t] = f[x + t]
        worst |= 0x3FF7FFFFFFFFFFFF - (magnitude(read_i64_le(fb, (x + t) * 8)) >> 1)
    return worst


def store_f32(f: vec[float], fb: bytes, x: i64, count: i64, cw: vec[i32], at: i64, scratch: i64) -> i64:
    """cw[at:] = the f32 bits of x. Returns a negative number if one of them rounds to infinity or is NaN.

    scratch: `count` float64. The largest double that rounds to a finite f32 is the one below 2^128 - 2^103.
    """
    absolute_plus(f, x, count, 6.310887241768095e-30, scratch)  # 2^-97: its last bit is 2^-149
    worst: i64 = 0
    for t in range(count):
        bits: i64 = read_i64_le(fb, (x + t) * 8)
        a: i64 = magnitude(bits)
        room: i64 = 0x23F7FFFFF7FFFFFF - (a >> 1)
        worst |= room
        if room < 0:
            a = 0
        w: i64 = ((a + 0x0FFFFFFF + ((a >> 29) & 1)) >> 29) - 0x1C0000000
        if a < 0x3810000000000000:
            w = read_i64_le(fb, (scratch + t) * 8) & 0xFFFFFF
        cw[at + t] = i32(w + (bits >> 63) * 2147483648)
    return worst


def store_f16(f: vec[float], fb: bytes, x: i64, count: i64, ch: vec[i16], at: i64, scratch: i64) -> i64:
    """ch[at:] = the f16 bits of x. Returns a negative number if one rounds to infinity (from 65520 on) or is NaN."""
    absolute_plus(f, x, count, 268435456.0, scratch)  # 2^28: its last bit is 2^-24
    worst: i64 = 0
    for t in range(count):
        bits: i64 = read_i64_le(fb, (x + t) * 8)
        a: i64 = magnitude(bits)
        room: i64 = 0x2077FEFFFFFFFFFF - (a >> 1)
        worst |= room
        if room < 0:
            a = 0
        w: i64 = ((a + 0x1FFFFFFFFFF + ((a >> 42) & 1)) >> 42) - 0xFC000
        if a < 0x3F10000000000000:
            w = read_i64_le(fb, (scratch + t) * 8) & 0x7FF
        ch[at + t] = i16(w + (bits >> 63) * 32768)
    return worst


def round_group(f: vec[float], fb: bytes, x: i64, count: i64, scale: float, cu: vec[u8], at: i64, scratch: i64) -> None:
    """cu[at:] = round(x / scale), ties to even, at most 127; 1.5 * 2^52 puts the integer in the low bits."""
    for t in range(count):
        v: float = f[x + t] / scale
        if v > 127.0:
            v = 127.0
        if v < -127.0:
            v = -127.0
        f[scratch + t] = v + 6755399441055744.0
    for t in range(count):
        cu[at + t] = u8(read_i64_le(fb, (scratch + t) * 8) & 255)


def store_int8_group(
    f: vec[float],
    fb: bytes,
    x: i64,
    count: i64,
    cw: vec[i32],
    cu: vec[u8],
    cb: bytes,
    scale_at: i64,
    at: i64,
    scratch: i64,
) -> i64:
    """One group: its scale max|x| / 127 as f32 at byte scale_at, its values at byte `at`. Returns as store_f32 does."""
    highest: float = 0.0
    worst: i64 = 0
    for t in range(count):
        v: float = f[x + t]
        if v < 0.0:
            v = -v
        if v > highest:
            highest = v
        worst |= 0x3FF7FFFFFFFFFFFF - (magnitude(read_i64_le(fb, (x + t) * 8)) >> 1)
    f[scratch + 32] = highest / 127.0
    worst |= store_f32(f, fb, scratch + 32, 1, cw, scale_at >> 2, scratch + 40)
    scale: float = read_f32_le(cb, scale_at)
    if scale > 0.0:
        round_group(f, fb, x, count, scale, cu, at, scratch)
    else:
        for t in range(count):
            cu[at + t] = 0
    return worst


def store_heads(
    f: vec[float], fb: bytes, cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, x: i64, row: i64,
    first: i64, last: i64, kv_heads: i64, dim: i64, dtype: i64, scratch: i64,
) -> i64:  # fmt: skip
    """Heads [first, last) of the row whose values begin at f[x]. Returns a negative number if one does not fit."""
    begin: i64 = first * dim
    count: i64 = (last - first) * dim
    at: i64 = row * kv_heads * dim + begin
    if dtype == F64:
        return store_f64(f, fb, x + begin, count, cf, at)
    if dtype == F32:
        return store_f32(f, fb, x + begin, count, cw, at, scratch)
    if dtype == F16:
        return store_f16(f, fb, x + begin, count, ch, at, scratch)
    size: i64 = int8_group(dim)
    base: i64 = row * int8_row_bytes(kv_heads, dim)
    values: i64 = base + kv_heads * dim // size * 4
    worst: i64 = 0
    for g in range(begin // size, (begin + count) // size):
        worst |= store_int8_group(f, fb, x + g * size, size, cw, cu, cb, base + g * 4, values + g * size, scratch)
    return worst


def store(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes,
    cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64], pages: i64,
    k: i64, v: i64, scratch: i64, layer: i64, layers: i64, page_size: i64, kv_heads: i64, dim: i64, dtype: i64,
) -> i64:  # fmt: skip
    """Stores this rank's share of n tokens' keys f[k:] and values f[v:], [n][kv_heads * dim], at positions start on.

    ids[pages:] is the page table. scratch: of this rank, kv_heads * dim + STORE_SCRATCH float64.
    Returns -1, or position * 2 + (0 for a key, 1 for a value) of the first that the type cannot hold or is not finite.
    """
    items: i64 = n * kv_heads
    item: i64 = items * rank // ranks
    end: i64 = items * (rank + 1) // ranks
    failed: i64 = -1
    while item < end:
        t: i64 = item // kv_heads
        first: i64 = item - t * kv_heads
        last: i64 = kv_heads
        if item + kv_heads - first > end:
            last = first + end - item
        for which in range(i64(2)):
            x: i64 = k + t * kv_heads * dim
            if which == 1:
                x = v + t * kv_heads * dim
            row: i64 = cache_row(ids, pages, start + t, page_size, layer, layers, which)
            worst: i64 = store_heads(f, fb, cf, cw, ch, cu, cb, x, row, first, last, kv_heads, dim, dtype, scratch)
            if worst < 0 and failed < 0:
                failed = (start + t) * 2 + which
        item += last - first
    return failed
