"""Reads rows of the KV cache as float64: sixteen rows of one kv head at a time, into a ring of scratch.

What was measured: rows read head by head arrive at a third of the memory's speed. So the loops of attention ask for
the rows that come next, some lines at a time (asking for many at once is no faster than waiting for them); and where
that was not done, all heads' bytes are first touched in memory order. A ring that does not fit the nearest cache
beside the queries doubles the time.
"""

from __future__ import annotations

from librt.strings import read_f32_le, read_f64_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.cache_rows import F16, F32, F64
from rml.kernels.half import TWO_112


def touch(cb: bytes, start: i64, words: i64) -> i64:
    """Reads 8-byte words from byte `start` on, in order: at the memory's speed. Returns them or-ed, so all are read."""
    seen: i64 = 0
    for i in range(words):
        seen |= read_i64_le(cb, start + i * 8)
    return seen


def widen_f64(f: vec[float], cb: bytes, source: i64, step: i64, rows: i64, out: i64, stride: i64, dim: i64) -> None:
    """f[out + j * stride + d] = the value at byte source + j * step + d * 8, for `rows` rows j of `dim` values."""
    for j in range(rows):
        s: i64 = source + j * step
        o: i64 = out + j * stride
        for d in range(dim):
            f[o + d] = read_f64_le(cb, s + d * 8)


def widen_f32(f: vec[float], cb: bytes, source: i64, step: i64, rows: i64, out: i64, stride: i64, dim: i64) -> None:
    """The same for f32."""
    for j in range(rows):
        s: i64 = source + j * step
        o: i64 = out + j * stride
        for d in range(dim):
            f[o + d] = read_f32_le(cb, s + d * 4)


def f16_to_words(fw: vec[i32], ch: vec[i16], source: i64, step: i64, rows: i64, out: i64, dim: i64) -> None:
    """fw = f32 bits of the f16 values times 2^-112: exponent and mantissa as they are, right for subnormals too."""
    for j in range(rows):
        s: i64 = source + j * step
        o: i64 = out + j * dim
        for d in range(dim):
            h: i32 = i32(ch[s + d])
            fw[o + d] = ((h & 32767) << 13) | ((h >> 15) & -2147483648)


def widen_words(f: vec[float], fb: bytes, source: i64, rows: i64, out: i64, stride: i64, dim: i64) -> None:
    """f = the f32 values at byte `source` on, times 2^112."""
    for j in range(rows):
        s: i64 = source + j * dim * 4
        o: i64 = out + j * stride
        for d in range(dim):
            f[o + d] = read_f32_le(fb, s + d * 4) * TWO_112


def widen_int8_32(f: vec[float], cu: vec[u8], cb: bytes, scales: i64, source: i64, out: i64, groups: i64) -> None:
    """Groups of 32 values at byte `source`, their scales at byte `scales`."""
    for g in range(groups):
        scale: float = read_f32_le(cb, scales + g * 4)
        s: i64 = source + g * 32
        o: i64 = out + g * 32
        for d in range(i64(32)):
            f[o + d] = float((i32(cu[s + d]) ^ 128) - 128) * scale


def widen_int8(
    f: vec[float], cu: vec[u8], cb: bytes, scales: i64, source: i64, out: i64, groups: i64, size: i64
) -> None:
    """The same for groups of `size` values."""
    for g in range(groups):
        scale: float = read_f32_le(cb, scales + g * 4)
        for d in range(size):
            f[out + g * size + d] = float((i32(cu[source + g * size + d]) ^ 128) - 128) * scale


def widen_int8_rows(
    f: vec[float], cu: vec[u8], cb: bytes, scales: i64, values: i64, step: i64, rows: i64, out: i64, stride: i64,
    dim: i64, size: i64,
) -> None:  # fmt: skip
    """Rows of int8: the first one's scales and values at these bytes, the next one's `step` further; `size` a group."""
    for j in range(rows):
        if size == 32:
            widen_int8_32(f, cu, cb, scales + j * step, values + j * step, out + j * stride, dim >> 5)
        else:
            widen_int8(f, cu, cb, scales + j * step, values + j * step, out + j * stride, dim // size, size)


def widen_rows(
    f: vec[float], fb: bytes, fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, row: i64, rows: i64, row_bytes: i64,
    head: i64, kv_heads: i64, dim: i64, padded: i64, dtype: i64, group: i64, out: i64, stride: i64, words: i64,
) -> None:  # fmt: skip
    """Kv head `head` of rows row .. row + rows - 1 to f[out:], `stride` apart; zeros from dim to padded.

    group: channels that share an int8 scale. words: scratch of rows * dim i32.
    """
    start: i64 = row * row_bytes
    if dtype == F32:
        widen_f32(f, cb, start + head * dim * 4, row_bytes, rows, out, stride, dim)
    elif dtype == F64:
        widen_f64(f, cb, start + head * dim * 8, row_bytes, rows, out, stride, dim)
    elif dtype == F16:
        f16_to_words(fw, ch, (start >> 1) + head * dim, row_bytes >> 1, rows, words * 2, dim)
        widen_words(f, fb, words * 8, rows, out, stride, dim)
    else:
        values: i64 = start + kv_heads * dim // group * 4 + head * dim
        widen_int8_rows(
            f, cu, cb, start + head * dim // group * 4, values, row_bytes, rows, out, stride, dim, group
        )  # fmt: skip
    for j in range(rows):
        for d in range(dim, padded):
            f[out + j * stride + d] = 0.0
