"""Causal attention in one pass of online softmax (Milakov and Gimelshein 2018; Rabe and Staats 2021).

Query i attends to the keys [max(0, i - window + 1), i]. Keys are taken 32 at a time, in blocks at multiples of 32. A
query keeps a running maximum, a sum of exp(score - maximum) in eight lanes, and the weighted sum of value rows; the
latter two shrink when the maximum grows. A row is read and widened once for all queries that are taken together: those
of a lone token, or up to 64 of one kv head, of several tokens.

So that several ranks can share one query's keys, the context is cut into at most 17 segments, whose length depends
only on the number of keys that the query sees; each has a state of its own, and the states are folded in order.
Whoever computes a segment, and in whatever company of other queries, the bits are the same.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.attend_block import attend_block
from rml.kernels.attend_in_place import plan_requests
from rml.kernels.attend_state import (
    DIM,
    DTYPE,
    FETCHED,
    FRAME,
    FREE,
    GROUP,
    HEAD,
    HEADS,
    KV_HEADS,
    LAYER,
    LAYERS,
    LOADED,
    MAX_SEGMENTS,
    PADDED,
    PAGE_SIZE,
    PAGES,
    POSITION,
    QUERIES,
    SCALE,
    STATES,
    WINDOW,
    WORK,
    WORK_SIZE,
    clear_queries,
    clip,
    complete_frame,
    finish_query,
    first_key,
    fold,
    lanes_of,
    padded_dim,
    segment_length,
    state_size,
    tile_tokens,
)
from rml.kernels.norms import fill


def attend_scratch(kv_heads: i64, group: i64, dim: i64) -> i64:
    """float64 entries of scratch that each rank needs."""
    padded: i64 = padded_dim(dim)
    rows: i64 = 16 * (padded + 8) + 24 * padded
    tile: i64 = tile_tokens(group, padded) * group
    queries: i64 = tile * (33 + padded) + 2 * state_size(tile, padded)
    alone: i64 = 2 * kv_heads * group * (33 + padded)  # lanes_of at most doubles them
    if queries < alone:
        queries = alone
    return FRAME + 512 + WORK_SIZE + rows + queries + 64


def attend_shared(heads: i64, dim: i64) -> i64:
    """float64 entries of scratch that the ranks share: the states of the segments of one token's queries."""
    return MAX_SEGMENTS * state_size(heads * 2, padded_dim(dim))  # lanes_of at most doubles them


def load_queries(f: vec[float], q: i64, count: i64, dim: i64, padded: i64, out: i64) -> None:
    """out [count][padded] = q [count][dim], zeros behind each."""
    for v in range(count):
        for d in range(dim):
            f[out + v * padded + d] = f[q + v * dim + d]
        for d in range(dim, padded):
            f[out + v * padded + d] = 0.0


def fold_ended_segments(
    f: vec[float], fb: bytes, fi: vec[i64], a: i64, block: i64, first: i64, last: i64, total: i64
) -> None:
    """Before `block`: tokens for whom a segment begins there fold their state into `total` and start a new one."""
    group: i64 = fi[a + GROUP]
    padded: i64 = fi[a + PADDED]
    queries: i64 = fi[a + QUERIES]
    for t in range(first, last):
        oldest: i64 = first_key(fi[a + POSITION] + t, fi[a + WINDOW])
        length: i64 = segment_length(fi[a + POSITION] + t + 1 - oldest)
        if block & (length - 1) == 0 and block > oldest:
            fold(f, fb, fi, total, fi[a + STATES], t * group, (t + 1) * group, queries, padded, fi[a + WORK])
            clear_queries(f, fi[a + STATES], t * group, (t + 1) * group, queries, padded)


def attend_tile(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64],
    a: i64, h: i64, q: i64, out: i64, position: i64, tokens: i64,
) -> None:  # fmt: skip
    """Tokens at positions position .. position + tokens - 1, the queries of kv head h, from the first key to the last.

    q, out: of the first token and all its heads.
    """
    kv_heads: i64 = fi[a + KV_HEADS]
    group: i64 = fi[a + GROUP]
    dim: i64 = fi[a + DIM]
    padded: i64 = fi[a + PADDED]
    window: i64 = fi[a + WINDOW]
    queries: i64 = tokens * group
    size: i64 = state_size(queries, padded)
    loaded: i64 = fi[a + FREE]
    states: i64 = loaded + queries * padded
    total: i64 = states + size
    fi[a + POSITION] = position
    fi[a + FETCHED] = -1
    fi[a + HEAD] = h
    fi[a + HEADS] = 1
    plan_requests(fi, a)
    fi[a + QUERIES] = queries
    fi[a + LOADED] = loaded
    fi[a + STATES] = states
    for t in range(tokens):
        source: i64 = q + (t * kv_heads + h) * group * dim
        load_queries(f, source, group, dim, padded, loaded + t * group * padded)
    clear_queries(f, states, 0, queries, queries, padded)
    clear_queries(f, total, 0, queries, queries, padded)
    block: i64 = first_key(position, window) & -32
    while block < position + tokens:
        first: i64 = clip(block - position, 0, tokens)
        last: i64 = tokens
        if window > 0:
            last = clip(block + 31 + window - position, 0, tokens)
        fold_ended_segments(f, fb, fi, a, block, first, last, total)
        attend_block(f, fb, fi, fw, ch, cu, cb, ids, a, block, first, last)
        block += 32
    fold(f, fb, fi, total, states, 0, queries, queries, padded, fi[a + WORK])
    for v in range(queries):
        t = v // group
        finish_query(f, total, v, queries, padded, dim, out + ((t * kv_heads + h) * group + v - t * group) * dim)


def attend_segments(
    rank: i64, ranks: i64, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    ids: vec[i64], a: i64, q: i64, group: i64, shared: i64, position: i64,
) -> None:  # fmt: skip
    """One token: this rank's share of (segment, kv head), each into a state of its own in `shared`."""
    kv_heads: i64 = fi[a + KV_HEADS]
    lanes: i64 = fi[a + GROUP]
    padded: i64 = fi[a + PADDED]
    size: i64 = state_size(lanes, padded)
    fill(f, fi[a + FREE], kv_heads * lanes * padded, 0.0)
    for h in range(kv_heads):
        load_queries(f, q + h * group * fi[a + DIM], group, fi[a + DIM], padded, fi[a + FREE] + h * lanes * padded)
    fi[a + POSITION] = position
    fi[a + QUERIES] = lanes
    fi[a + FETCHED] = -1
    oldest: i64 = first_key(position, fi[a + WINDOW])
    length: i64 = segment_length(position + 1 - oldest)
    segment: i64 = oldest // length
    items: i64 = (position // length + 1 - segment) * kv_heads
    item: i64 = items * rank // ranks
    end: i64 = items * (rank + 1) // ranks
    while item < end:
        number: i64 = item // kv_heads
        head: i64 = item - number * kv_heads
        heads: i64 = end - item
        if heads > kv_heads - head:
            heads = kv_heads - head
        fi[a + HEAD] = head
        fi[a + HEADS] = heads
        plan_requests(fi, a)
        fi[a + LOADED] = fi[a + FREE] + head * lanes * padded
        fi[a + STATES] = shared + item * size
        for h in range(heads):
            clear_queries(f, fi[a + STATES] + h * size, 0, lanes, lanes, padded)
        block: i64 = (segment + number) * length
        stop: i64 = block + length
        if block < oldest:
            block = oldest & -32
        if stop > position + 1:
            stop = position + 1
        while block < stop:
            attend_block(f, fb, fi, fw, ch, cu, cb, ids, a, block, 0, 1)
            block += 32
        item += heads


def attend(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32],
    ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64], pages: i64, q: i64, out: i64, scratch: i64, shared: i64,
    layer: i64, layers: i64, page_size: i64, kv_heads: i64, group: i64, dim: i64, window: i64, scale: float, dtype: i64,
    nearest: i64,
) -> None:  # fmt: skip
    """This rank's share of n tokens at positions start on: out = softmax(scale q k) v.

    f (also seen as fb, fi, fw) holds q and out, [n][kv_heads * group * dim], and the scratch: as many entries as
    attend_scratch says at `scratch`, of this rank alone, and attend_shared at `shared`, of all. The cache's arena is
    seen as i16, u8 and bytes; ids[pages:] is its page table, page_size a multiple of 16. window: keys that a query
    sees, itself included; 0 = all. dtype: as in cache_rows.
    nearest: bytes of the nearest data cache.
    Call `attend_finish` behind a barrier: a single token's result is complete only then.
    """
    a: i64 = scratch
    fi[a + PAGES] = pages
    fi[a + LAYER] = layer
    fi[a + LAYERS] = layers
    fi[a + PAGE_SIZE] = page_size
    fi[a + KV_HEADS] = kv_heads
    fi[a + GROUP] = group
    fi[a + DIM] = dim
    fi[a + PADDED] = padded_dim(dim)
    fi[a + WINDOW] = window
    fi[a + DTYPE] = dtype
    f[a + SCALE] = scale
    if n == 1:
        fi[a + GROUP] = lanes_of(group, dtype)
        complete_frame(fi, a, kv_heads * fi[a + GROUP], nearest)
        attend_segments(rank, ranks, f, fb, fi, fw, ch, cu, cb, ids, a, q, group, shared, start)
        return
    most: i64 = clip((n + ranks - 1) // ranks, 1, tile_tokens(group, padded_dim(dim)))
    complete_frame(fi, a, most * group, nearest)
    item: i64 = rank  # later tokens cost more: the ranks take turns
    while item < (n + most - 1) // most * kv_heads:
        t: i64 = item // kv_heads * most
        x: i64 = t * kv_heads * group * dim
        attend_tile(
            f, fb, fi, fw, ch, cu, cb, ids, a, item % kv_heads, q + x, out + x, start + t, clip(n - t, 1, most)
        )  # fmt: skip
        item += ranks


def attend_finish(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes, fi: vec[i64], out: i64, scratch: i64,
    shared: i64, kv_heads: i64, group: i64, dim: i64, window: i64, dtype: i64,
) -> None:  # fmt: skip
    """Folds the segments of a single token's queries, this rank's share of the kv heads; nothing to do for n > 1."""
    if n > 1:
        return
    padded: i64 = padded_dim(dim)
    lanes: i64 = lanes_of(group, dtype)
    size: i64 = state_size(lanes, padded)
    oldest: i64 = first_key(start, window)
    length: i64 = segment_length(start + 1 - oldest)
    segments: i64 = start // length + 1 - oldest // length
    total: i64 = scratch + WORK_SIZE
    for h in range(kv_heads * rank // ranks, kv_heads * (rank + 1) // ranks):
        clear_queries(f, total, 0, group, lanes, padded)
        for number in range(segments):
            fold(f, fb, fi, total, shared + (number * kv_heads + h) * size, 0, group, lanes, padded, scratch)
        for v in range(group):
            finish_query(f, total, v, lanes, padded, dim, out + (h * group + v) * dim)
