"""Causal attention in one pass of online softmax (Milakov and Gimelshein 2018; Rabe and Staats 2021).

Query i attends to the keys [max(0, i - window + 1), i]. Keys are taken 32 at a time, in blocks at multiples of 32. A
query keeps a running maximum m, a sum l of exp(score - m) in eight lanes, and the weighted sum of value rows; the
latter two shrink when the maximum grows. All query heads that share a kv head use each widened row at once.

So that several ranks can share one query's keys, the context is cut into at most 17 segments, whose length depends only
on the number of keys that the query sees; each has a state of its own, and the states are folded in order. Whoever
computes a segment, and in whatever company of other queries, the bits are the same.

States: for V queries of one kv head: m [V], l [V][8], sums [V][padded]; padded = head_dim rounded up to 8.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.attend_rows import add_row, add_rows_8, partial_scores_1, partial_scores_4, sum_partials, widen_rows
from rml.kernels.cache_rows import cache_row
from rml.kernels.exp import EXP_SCRATCH, exp_into

MAX_GROUP: Final = 16  # query heads per kv head; also the most queries that share a widened row
MAX_DIM: Final = 512
MAX_SEGMENTS: Final = 17
LOWEST: Final = -1.7976931348623157e308  # the score of a masked key

# a rank's scratch, in this order (MAX_GROUP queries): partial scores, scores and corrections, exp, then by size
PARTIALS: Final = 4096  # 16 * 32 * 8
SCORES: Final = 544  # 16 * 33, rounded up


def padded_dim(dim: i64) -> i64:
    """head_dim rounded up to a multiple of 8."""
    return (dim + 7) & -8


def state_size(queries: i64, dim: i64) -> i64:
    """float64 entries of the state of `queries` queries."""
    return queries * (9 + padded_dim(dim))


def attend_scratch(heads: i64, dim: i64) -> i64:
    """float64 entries of scratch that each rank needs."""
    most: i64 = heads
    if most < 16:
        most = 16
    return PARTIALS + SCORES + EXP_SCRATCH + padded_dim(dim) * (most + 9) + 2 * state_size(16, dim)


def attend_shared(heads: i64, dim: i64) -> i64:
    """float64 entries of scratch that the ranks share: the states of the segments of one token's queries."""
    return MAX_SEGMENTS * state_size(heads, dim)


def segment_length(keys: i64) -> i64:
    """Keys per segment for a query that sees `keys` of them: 128 * 2^k, at least a sixteenth."""
    length: i64 = 128
    while length * 16 < keys:
        length = length << 1
    return length


def first_key(position: i64, window: i64) -> i64:
    """The first key that the query at `position` sees; window 0 = all."""
    first: i64 = position - window + 1
    if window == 0 or first < 0:
        return 0
    return first


# ------------------------------------------------------------------------------------------------------- states


def clear_state(f: vec[float], state: i64, queries: i64, padded: i64) -> None:
    """No key seen yet."""
    for v in range(queries):
        f[state + v] = LOWEST
    for j in range(queries, queries * (9 + padded)):
        f[state + j] = 0.0


def scale_row(f: vec[float], x: i64, count: i64, factor: float) -> None:
    """x *= factor."""
    for j in range(count):
        f[x + j] *= factor


def fold_row(f: vec[float], x: i64, y: i64, count: i64, a: float, b: float) -> None:
    """x = a x + b y."""
    for j in range(count):
        f[x + j] = f[x + j] * a + f[y + j] * b


def fold(
    f: vec[float],
    fb: bytes,
    fi: vec[i64],
    into: i64,
    state: i64,
    first: i64,
    last: i64,
    queries: i64,
    padded: i64,
    e: i64,
) -> None:
    """Queries [first, last): the state `into` becomes that of its keys and of `state`'s. e: scratch, 32 + EXP_SCRATCH."""
    for v in range(first, last):
        top: float = f[into + v]
        if f[state + v] > top:
            top = f[state + v]
        f[e + v * 2] = f[into + v] - top
        f[e + v * 2 + 1] = f[state + v] - top
        f[into + v] = top
    exp_into(f, fb, fi, e + first * 2, e + first * 2, (last - first) * 2, e + 32)
    for v in range(first, last):
        a: float = f[e + v * 2]
        b: float = f[e + v * 2 + 1]
        fold_row(f, into + queries + v * 8, state + queries + v * 8, 8, a, b)
        fold_row(f, into + queries * 9 + v * padded, state + queries * 9 + v * padded, padded, a, b)


def finish_query(f: vec[float], state: i64, v: i64, queries: i64, padded: i64, dim: i64, out: i64) -> None:
    """out[d] = weighted sum / sum of weights."""
    p: i64 = state + queries + v * 8
    total: float = ((f[p] + f[p + 4]) + (f[p + 2] + f[p + 6])) + ((f[p + 1] + f[p + 5]) + (f[p + 3] + f[p + 7]))
    scale: float = LOWEST * 10.0
    scale -= scale  # NaN, for scores that are not finite
    if total > 0.0:
        scale = 1.0 / total
    x: i64 = state + queries * 9 + v * padded
    for d in range(dim):
        f[out + d] = f[x + d] * scale


# --------------------------------------------------------------------------------------------- one block of keys


def mask_scores(f: vec[float], s: i64, first: i64, last: i64) -> None:
    """Of 32 scores, those outside [first, last) become LOWEST: their weight is exactly 0."""
    for j in range(first):
        f[s + j] = LOWEST
    for j in range(last, i64(32)):
        f[s + j] = LOWEST


def block_top(f: vec[float], s: i64, top: float, z: i64) -> float:
    """Returns the largest of `top` and 32 scores. z: scratch of 8."""
    for t in range(i64(8)):
        a: float = f[s + t]
        if f[s + 8 + t] > a:
            a = f[s + 8 + t]
        if f[s + 16 + t] > a:
            a = f[s + 16 + t]
        if f[s + 24 + t] > a:
            a = f[s + 24 + t]
        f[z + t] = a
    for t in range(i64(8)):
        if f[z + t] > top:
            top = f[z + t]
    return top


def subtract(f: vec[float], s: i64, top: float) -> None:
    """32 scores minus their maximum."""
    for j in range(i64(32)):
        f[s + j] -= top


def add_weights(f: vec[float], l: i64, p: i64, c: float) -> None:
    """l = l * c + the 32 weights p, lane by lane."""
    for t in range(i64(8)):
        f[l + t] = f[l + t] * c + ((f[p + t] + f[p + 8 + t]) + (f[p + 16 + t] + f[p + 24 + t]))


def soften(
    f: vec[float], fb: bytes, fi: vec[i64], s: i64, count: i64, m: i64, l: i64, sums: i64, padded: i64, e: i64
) -> None:
    """Scores s [count][32] become weights exp(score - m); m, l and sums (of `count` queries each) take the new maximum."""
    c: i64 = s + count * 32
    for v in range(count):
        top: float = block_top(f, s + v * 32, f[m + v], e)
        f[c + v] = f[m + v] - top
        f[m + v] = top
        subtract(f, s + v * 32, top)
    exp_into(f, fb, fi, s, s, count * 33, e)
    for v in range(count):
        factor: float = f[c + v]
        add_weights(f, l + v * 8, s + v * 32, factor)
        if factor != 1.0:
            scale_row(f, sums + v * padded, padded, factor)


def add_values(f: vec[float], value: i64, p: i64, first: i64, last: i64, padded: i64, sums: i64) -> None:
    """sums += the weighted rows [first, last) of 8 value rows; rows outside are not touched, whatever they hold."""
    if first == 0 and last == 8:
        add_rows_8(f, value, p, padded, sums)
    else:
        for j in range(first, last):
            add_row(f, value + j * padded, f[p + j], padded, sums)


def clip(x: i64, low: i64, high: i64) -> i64:
    if x < low:
        return low
    if x > high:
        return high
    return x


def attend_block(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64], pages: i64,
    q: i64, state: i64, work: i64, block: i64, position: i64, first: i64, last: i64, queries: i64, group: i64, window: i64,
    layer: i64, layers: i64, page_size: i64, head: i64, kv_heads: i64, dim: i64, scale: float, dtype: i64,
) -> None:  # fmt: skip
    """Takes the keys [block, block + 32) into the state of tokens [first, last), the token t at position + t.

    q: [queries][padded], group of them per token. Every token sees at least one key of the block.
    """
    padded: i64 = padded_dim(dim)
    s: i64 = work + PARTIALS
    e: i64 = s + SCORES
    rows: i64 = e + EXP_SCRATCH
    words: i64 = rows + padded * 8
    low: i64 = first * group
    count: i64 = (last - first) * group
    end: i64 = clip(position + last - block, 0, 32)  # keys of the block that the last token sees
    begin: i64 = clip(first_key(position + first, window) - block, 0, 32)  # and the first token
    for j in range(begin >> 3, (end + 7) >> 3):
        row: i64 = cache_row(ids, pages, block + j * 8, page_size, layer, layers, 0)
        widen_rows(f, fb, fw, ch, cu, cb, row, clip(end - j * 8, 0, 8), head, kv_heads, dim, padded, dtype, rows, words)
        v: i64 = 0
        while v < count:
            a: i64 = q + (low + v) * padded
            if v + 4 <= count:
                partial_scores_4(f, rows, a, padded, work + v * 256 + j * 64, 256)
                v += 4
            else:
                partial_scores_1(f, rows, a, padded, work + v * 256 + j * 64)
                v += 1
    sum_partials(f, work, s, count * 32, scale)
    for v in range(count):
        t: i64 = position + first + v // group
        mask_scores(f, s + v * 32, clip(first_key(t, window) - block, 0, 32), clip(t + 1 - block, 0, 32))
    sums: i64 = state + queries * 9 + low * padded
    soften(f, fb, fi, s, count, state + low, state + queries + low * 8, sums, padded, e)
    for j in range(begin >> 3, (end + 7) >> 3):
        row = cache_row(ids, pages, block + j * 8, page_size, layer, layers, 1)
        widen_rows(f, fb, fw, ch, cu, cb, row, clip(end - j * 8, 0, 8), head, kv_heads, dim, padded, dtype, rows, words)
        for v in range(count):
            t = position + first + v // group
            from_row: i64 = clip(first_key(t, window) - block - j * 8, 0, 8)
            add_values(
                f,
                rows,
                s + v * 32 + j * 8,
                from_row,
                clip(t + 1 - block - j * 8, from_row, 8),
                padded,
                sums + v * padded,
            )


# -------------------------------------------------------------------------------------------------- whole queries


def load_queries(f: vec[float], q: i64, count: i64, dim: i64, padded: i64, out: i64) -> None:
    """out [count][padded] = q [count][dim], zeros behind."""
    for v in range(count):
        for d in range(dim):
            f[out + v * padded + d] = f[q + v * dim + d]
        for d in range(dim, padded):
            f[out + v * padded + d] = 0.0


def attend_tile(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64], pages: i64,
    q: i64, out: i64, work: i64, position: i64, tokens: i64, group: i64, window: i64,
    layer: i64, layers: i64, page_size: i64, head: i64, kv_heads: i64, dim: i64, scale: float, dtype: i64,
) -> None:  # fmt: skip
    """Tokens at positions position .. position + tokens - 1 through one kv head, from the first key to the last.

    q, out: the first token's first query head of this kv head; the next token is kv_heads * group * dim further.
    """
    padded: i64 = padded_dim(dim)
    queries: i64 = tokens * group
    e: i64 = work + PARTIALS + SCORES
    loaded: i64 = e + EXP_SCRATCH + padded * 9
    state: i64 = loaded + padded * 16
    total: i64 = state + state_size(queries, dim)
    stride: i64 = kv_heads * group * dim
    for t in range(tokens):
        load_queries(f, q + t * stride, group, dim, padded, loaded + t * group * padded)
    clear_state(f, state, queries, padded)
    clear_state(f, total, queries, padded)
    block: i64 = first_key(position, window) & -32
    while block < position + tokens:
        first: i64 = clip(block - position, 0, tokens)
        last: i64 = tokens
        if window > 0:
            last = clip(block + 31 + window - position, 0, tokens)
        for t in range(first, last):
            oldest: i64 = first_key(position + t, window)
            if block & (segment_length(position + t + 1 - oldest) - 1) == 0 and block > oldest:
                fold(f, fb, fi, total, state, t * group, (t + 1) * group, queries, padded, work)
                for v in range(t * group, (t + 1) * group):
                    clear_query(f, state, v, queries, padded)
        attend_block(
            f, fb, fi, fw, ch, cu, cb, ids, pages, loaded, state, work, block, position, first, last, queries, group, window,
            layer, layers, page_size, head, kv_heads, dim, scale, dtype,
        )  # fmt: skip
        block += 32
    fold(f, fb, fi, total, state, 0, queries, queries, padded, work)
    for v in range(queries):
        t = v // group
        finish_query(f, total, v, queries, padded, dim, out + t * stride + (v - t * group) * dim)


def clear_query(f: vec[float], state: i64, v: i64, queries: i64, padded: i64) -> None:
    """No key seen yet by query v."""
    f[state + v] = LOWEST
    for j in range(i64(8)):
        f[state + queries + v * 8 + j] = 0.0
    for d in range(padded):
        f[state + queries * 9 + v * padded + d] = 0.0


def attend_segments(
    rank: i64, ranks: i64, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    ids: vec[i64], pages: i64, q: i64, work: i64, shared: i64, position: i64, group: i64, window: i64,
    layer: i64, layers: i64, page_size: i64, kv_heads: i64, dim: i64, scale: float, dtype: i64,
) -> None:  # fmt: skip
    """One token: this rank's share of (segment, kv head), each into its own state in `shared`, rows in memory order."""
    padded: i64 = padded_dim(dim)
    loaded: i64 = work + PARTIALS + SCORES + EXP_SCRATCH + padded * 9
    load_queries(f, q, kv_heads * group, dim, padded, loaded)
    oldest: i64 = first_key(position, window)
    length: i64 = segment_length(position + 1 - oldest)
    segment: i64 = oldest // length
    items: i64 = (position // length + 1 - segment) * kv_heads
    item: i64 = items * rank // ranks
    end: i64 = items * (rank + 1) // ranks
    size: i64 = state_size(group, dim)
    while item < end:
        number: i64 = item // kv_heads
        head: i64 = item - number * kv_heads
        last: i64 = head + end - item
        if last > kv_heads:
            last = kv_heads
        states: i64 = shared + number * kv_heads * size
        for h in range(head, last):
            clear_state(f, states + h * size, group, padded)
        block: i64 = (segment + number) * length
        stop: i64 = block + length
        if block < oldest:
            block = oldest & -32
        if stop > position + 1:
            stop = position + 1
        while block < stop:
            for h in range(head, last):
                attend_block(
                    f, fb, fi, fw, ch, cu, cb, ids, pages, loaded + h * group * padded, states + h * size, work,
                    block, position, 0, 1, group, group, window, layer, layers, page_size, h, kv_heads, dim, scale, dtype,
                )  # fmt: skip
            block += 32
        item += last - head


def attend(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32],
    ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64], pages: i64, q: i64, out: i64, scratch: i64, shared: i64,
    layer: i64, layers: i64, page_size: i64, kv_heads: i64, group: i64, dim: i64, window: i64, scale: float, dtype: i64,
) -> None:  # fmt: skip
    """This rank's share of n tokens at positions start on: out = softmax(scale q k) v.

    f (also seen as fb, fi, fw) holds q and out, [n][kv_heads * group * dim], and the scratch: attend_scratch(heads, dim)
    entries at `scratch`, of this rank alone, and attend_shared(heads, dim) at `shared`, of all. The cache's arena is seen as
    i16, u8 and bytes; ids[pages:] is its page table, page_size a multiple of 8. window: keys that a query sees, itself
    included; 0 = all. dtype: as in cache_rows.
    Call `attend_finish` behind a barrier: a single token's result is complete only then.
    """
    if n == 1:
        attend_segments(
            rank, ranks, f, fb, fi, fw, ch, cu, cb, ids, pages, q, scratch, shared, start, group, window,
            layer, layers, page_size, kv_heads, dim, scale, dtype,
        )  # fmt: skip
        return
    most: i64 = MAX_GROUP // group
    tiles: i64 = (n + most - 1) // most
    item: i64 = rank  # tiles cost more the later they are: the ranks take turns
    while item < tiles * kv_heads:
        tile: i64 = item // kv_heads
        head: i64 = item - tile * kv_heads
        tokens: i64 = most
        if tile * most + tokens > n:
            tokens = n - tile * most
        x: i64 = (tile * most * kv_heads + head) * group * dim
        attend_tile(
            f, fb, fi, fw, ch, cu, cb, ids, pages, q + x, out + x, scratch, start + tile * most, tokens, group, window,
            layer, layers, page_size, head, kv_heads, dim, scale, dtype,
        )  # fmt: skip
        item += ranks


def attend_finish(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes, fi: vec[i64], out: i64, scratch: i64, shared: i64,
    kv_heads: i64, group: i64, dim: i64, window: i64,
) -> None:  # fmt: skip
    """Folds the segments of a single token's queries, this rank's share of the kv heads; nothing to do for n > 1."""
    if n > 1:
        return
    padded: i64 = padded_dim(dim)
    size: i64 = state_size(group, dim)
    oldest: i64 = first_key(start, window)
    length: i64 = segment_length(start + 1 - oldest)
    segments: i64 = start // length + 1 - oldest // length
    total: i64 = scratch + PARTIALS
    for h in range(kv_heads * rank // ranks, kv_heads * (rank + 1) // ranks):
        clear_state(f, total, group, padded)
        for number in range(segments):
            fold(f, fb, fi, total, shared + (number * kv_heads + h) * size, 0, group, group, padded, scratch)
        for v in range(group):
            finish_query(f, total, v, group, padded, dim, out + (h * group + v) * dim)
