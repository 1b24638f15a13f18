"""Cache rows of f32 or f16 used where they lie, by few queries: the way of a lone token.

Widening them into the ring first costs more than widening them on the way, once for every three or four queries. While
they are used, what comes next is asked for, a cache line at each turn: into the nearest cache if that holds a block's
keys and values, else into the second one (with 32 KB, SmolLM2 after 2048 tokens: 65 to 83 tokens a second).
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.attend_scores import sum_partials
from rml.kernels.attend_scores_f32 import partial_scores_3_f32, partial_scores_4_f32
from rml.kernels.attend_state import (
    DIM,
    DTYPE,
    FAR_STEP,
    HEAD,
    HEADS,
    KV_HEADS,
    PADDED,
    PARTIALS,
    ROOMY,
    ROW_BYTES,
    SCALE,
    SHARE,
    STEP,
    WORDS,
)
from rml.kernels.attend_values_f32 import add_values_3_f32, add_values_4_f32
from rml.kernels.cache_read import f16_to_words
from rml.kernels.cache_rows import F16, F32
from rml.kernels.half import TWO_112


def values_in_place(fi: vec[i64], a: i64, count: i64) -> i64:
    """1: values are used where they lie: f32, by three, four or eight queries."""
    if fi[a + DIM] != fi[a + PADDED] or fi[a + DTYPE] != F32:
        return 0
    return i64(count == 3 or count == 4 or count == 8)


def keys_in_place(fi: vec[i64], a: i64, count: i64) -> i64:
    """1: a whole half's keys are: the same, and f16 by four or eight."""
    if fi[a + DTYPE] == F16 and fi[a + DIM] == fi[a + PADDED]:
        return i64(count == 4 or count == 8)
    return values_in_place(fi, a, count)


def plan_requests(fi: vec[i64], a: i64) -> None:
    """How much of what comes next each turn asks for, into which cache.

    Loops over rows where they lie ask for whole rows. A rank that has only some of the kv heads would ask for the
    others' bytes: then these loops ask for nothing.
    """
    step: i64 = 0
    if fi[a + HEADS] == fi[a + KV_HEADS]:
        step = fi[a + SHARE] // fi[a + DIM]
    fi[a + STEP] = step * fi[a + ROOMY]
    fi[a + FAR_STEP] = step - fi[a + STEP]


def begin_of(here: i64, ahead: i64, step: i64) -> i64:
    """Where requests begin that go on by `step`: at `ahead`, or without step at what is being read."""
    if step == 0:
        return here
    return ahead


def score_rows(
    f: vec[float], cb: bytes, near: i64, step: i64, far: i64, far_step: i64,
    kb: bytes, key: i64, stride: i64, q: i64, dim: i64, count: i64, partials: i64, s: i64, scale: float,
) -> None:  # fmt: skip
    """s [count][16] = scaled scores of queries q and 16 f32 keys, from byte `key` of kb on, `stride` apart."""
    if count == 3:
        partial_scores_3_f32(f, cb, near, step, far, far_step, kb, key, stride, q, dim, partials)
        sum_partials(f, partials, s, 48, scale)
        return
    partial_scores_4_f32(f, cb, near, step, far, far_step, kb, key, stride, q, dim, partials)
    sum_partials(f, partials, s, 64, scale)
    if count == 8:  # what comes next has been asked for
        partial_scores_4_f32(f, cb, near, 0, far, 0, kb, key, stride, q + 4 * dim, dim, partials)
        sum_partials(f, partials, s + 64, 64, scale)


def score_in_place(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cb: bytes,
    a: i64, h: i64, row: i64, ahead: i64, q: i64, count: i64, s: i64,
) -> None:  # fmt: skip
    """s [count][16] = scaled scores of kv head h's queries q and the keys of 16 cache rows from `row` on.

    ahead: where the values lie that are used next.
    """
    dim: i64 = fi[a + DIM]
    stride: i64 = fi[a + ROW_BYTES]
    step: i64 = fi[a + STEP]
    far_step: i64 = fi[a + FAR_STEP]
    key: i64 = row * stride
    near: i64 = begin_of(key, ahead, step)
    far: i64 = begin_of(key, ahead, far_step)
    partials: i64 = fi[a + PARTIALS]
    scale: float = f[a + SCALE]
    if fi[a + DTYPE] == F32:
        key += (fi[a + HEAD] + h) * dim * 4
        score_rows(f, cb, near, step, far, far_step, cb, key, stride, q, dim, count, partials, s, scale)
        return
    words: i64 = fi[a + WORDS]
    f16_to_words(fw, ch, (key >> 1) + (fi[a + HEAD] + h) * dim, stride >> 1, 16, words * 2, dim)
    scale *= TWO_112
    score_rows(f, cb, near, step, far, far_step, fb, words * 8, dim * 4, q, dim, count, partials, s, scale)


def add_in_place(
    f: vec[float], fi: vec[i64], cb: bytes, a: i64, h: i64, row: i64, rows: i64, ahead: i64, count: i64, p: i64,
    out: i64,
) -> None:  # fmt: skip
    """out [count][dim] += kv head h's values of `rows` cache rows from `row` on, weighted by p, 16 apart.

    ahead: where the keys lie that are used next.
    """
    dim: i64 = fi[a + DIM]
    stride: i64 = fi[a + ROW_BYTES]
    step: i64 = fi[a + STEP]
    far_step: i64 = fi[a + FAR_STEP]
    value: i64 = row * stride + (fi[a + HEAD] + h) * dim * 4
    near: i64 = begin_of(value, ahead, step)
    far: i64 = begin_of(value, ahead, far_step)
    if count == 3:
        add_values_3_f32(f, cb, near, step, far, far_step, cb, value, stride, rows, p, dim, out)
        return
    add_values_4_f32(f, cb, near, step, far, far_step, cb, value, stride, rows, p, dim, out)
    if count == 8:
        add_values_4_f32(f, cb, near, 0, far, 0, cb, value, stride, rows, p + 64, dim, out + 4 * dim)
