"""Causal attention in one pass of online softmax (Milakov and Gimelshein 2018; Rabe and Staats 2021).

Query i attends to the keys [max(0, i - window + 1), i]. Keys are taken 32 at a time, in blocks at multiples of 32. A
query keeps a running maximum, a sum of exp(score - maximum) in eight lanes, and the weighted sum of value rows; the
latter two shrink when the maximum grows. A row is read and widened once for all query heads of all its kv heads.

So that several ranks can share one query's keys, the context is cut into at most 17 segments, whose length depends
only on the number of keys that the query sees; each has a state of its own, and the states are folded in order.
Whoever computes a segment, and in whatever company of other queries, the bits are the same.

The state of V queries that share a kv head: maximum [V], sum [V][8], weighted values [V][padded], where `padded` is
head_dim rounded up to 16. The scores of V queries in a block: [2 halves][V][16], then corrections [V].
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.attend_rows import add_values_1, add_values_4, partial_scores_1, partial_scores_4, sum_partials
from rml.kernels.cache_read import touch, widen_rows
from rml.kernels.cache_rows import cache_row, int8_group, row_bytes
from rml.kernels.exp import EXP_SCRATCH, exp_into

MAX_GROUP: Final = 16  # query heads per kv head; also the most queries of one kv head taken together
MAX_LOADED: Final = 16384  # float64 entries of queries taken together, unless one token has more: what L2 holds
MAX_SEGMENTS: Final = 17
LOWEST: Final = -1.7976931348623157e308  # the score of a masked key

# The frame: what stays the same during a call, as i64 at the start of a rank's scratch.
PAGES: Final = 0
LAYER: Final = 1
LAYERS: Final = 2
PAGE_SIZE: Final = 3
KV_HEADS: Final = 4
GROUP: Final = 5
DIM: Final = 6
PADDED: Final = 7
WINDOW: Final = 8
DTYPE: Final = 9
SCALE: Final = 10  # a float64
# and the tile that is being worked on: tokens and a range of kv heads
POSITION: Final = 11  # of the tile's first token
HEAD: Final = 12
HEADS: Final = 13
QUERIES: Final = 14  # of each kv head: tokens * group
LOADED: Final = 15  # offset of the queries [kv head][token][group][padded]
STATES: Final = 16  # offset of the states, one after another for each kv head of the range
# and the parts of the scratch
PARTIALS: Final = 17
WORK: Final = 18  # for exp and others
ROWS: Final = 19  # the ring: 16 widened rows of one kv head
STRIDE: Final = 20  # between them
WORDS: Final = 21
SCORES: Final = 22
FREE: Final = 23  # the rest: queries and states of a tile
ROW_BYTES: Final = 24
INT8_GROUP: Final = 25
FIRST_ROWS: Final = 26  # the cache rows of the keys at both halves of a block; their values are page_size rows further
SEEN: Final = 28
FRAME: Final = 32


def padded_dim(dim: i64) -> i64:
    """head_dim rounded up to a multiple of 16."""
    return (dim + 15) & -16


def state_size(queries: i64, padded: i64) -> i64:
    """float64 entries of the state of `queries` queries."""
    return queries * (9 + padded)


def most_queries(heads: i64, padded: i64) -> i64:
    """The most queries of all heads in a tile."""
    most: i64 = MAX_LOADED // padded
    if heads > most:
        return heads
    return most


def attend_scratch(heads: i64, dim: i64) -> i64:
    """float64 entries of scratch that each rank needs."""
    padded: i64 = padded_dim(dim)
    rows: i64 = 16 * (padded + 8) + 8 * padded
    return FRAME + 2048 + EXP_SCRATCH + 64 + rows + most_queries(heads, padded) * (33 + padded + 2 * (9 + padded)) + 64


def attend_shared(heads: i64, dim: i64) -> i64:
    """float64 entries of scratch that the ranks share: the states of the segments of one token's queries."""
    return MAX_SEGMENTS * state_size(heads, padded_dim(dim))


def complete_frame(fi: vec[i64], a: i64) -> None:
    """Adds to the frame at a what follows from its first entries, and where the parts of the scratch lie."""
    padded: i64 = fi[a + PADDED]
    fi[a + ROW_BYTES] = row_bytes(fi[a + KV_HEADS], fi[a + DIM], fi[a + DTYPE])
    fi[a + INT8_GROUP] = int8_group(fi[a + DIM])
    fi[a + PARTIALS] = a + FRAME
    fi[a + WORK] = fi[a + PARTIALS] + 2048
    fi[a + ROWS] = fi[a + WORK] + EXP_SCRATCH + 64
    fi[a + STRIDE] = padded + 8  # rows of 4 KiB would compete for the same cache lines
    fi[a + WORDS] = fi[a + ROWS] + 16 * (padded + 8)
    fi[a + SCORES] = fi[a + WORDS] + 8 * padded
    fi[a + FREE] = fi[a + SCORES] + 33 * most_queries(fi[a + KV_HEADS] * fi[a + GROUP], padded)


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


def clip(x: i64, low: i64, high: i64) -> i64:
    if x < low:
        return low
    if x > high:
        return high
    return x


# ------------------------------------------------------------------------------------------------------- states


def clear(f: vec[float], x: i64, count: i64, value: float) -> None:
    for j in range(count):
        f[x + j] = value


def clear_queries(f: vec[float], state: i64, first: i64, last: i64, queries: i64, padded: i64) -> None:
    """No key seen yet by queries [first, last)."""
    clear(f, state + first, last - first, LOWEST)
    clear(f, state + queries + first * 8, (last - first) * 8, 0.0)
    clear(f, state + queries * 9 + first * padded, (last - first) * padded, 0.0)


def scale_row(f: vec[float], x: i64, count: i64, factor: float) -> None:
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
    """Queries [first, last): `into` becomes the state of its keys and of `state`'s. e: scratch, 32 + EXP_SCRATCH."""
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
    """out[d] = weighted values / sum of weights. Adding 0 makes -0 into 0: rows with weight 0 may have done so."""
    p: i64 = state + queries + v * 8
    total: float = ((f[p] + f[p + 4]) + (f[p + 2] + f[p + 6])) + ((f[p + 1] + f[p + 5]) + (f[p + 3] + f[p + 7]))
    scale: float = LOWEST * 10.0
    scale -= scale  # NaN, for scores that are not finite
    if total > 0.0:
        scale = 1.0 / total
    x: i64 = state + queries * 9 + v * padded
    for d in range(dim):
        f[out + d] = f[x + d] * scale + 0.0


# --------------------------------------------------------------------------------------------- one block of keys


def find_rows(fi: vec[i64], ids: vec[i64], a: i64, block: i64, begin: i64, end: i64) -> None:
    """Looks up the pages of the keys [block + begin, block + end)."""
    for half in range(begin >> 4, (end + 15) >> 4):
        position: i64 = block + half * 16
        row: i64 = cache_row(ids, fi[a + PAGES], position, fi[a + PAGE_SIZE], fi[a + LAYER], fi[a + LAYERS], 0)
        fi[a + FIRST_ROWS + half] = row


def touch_block(fi: vec[i64], cb: bytes, a: i64, begin: i64, end: i64, which: i64) -> None:
    """Reads this tile's heads of the block's keys (which = 0) or values (1) [begin, end) in memory order."""
    size: i64 = fi[a + ROW_BYTES]
    for half in range(begin >> 4, (end + 15) >> 4):
        low: i64 = clip(begin - half * 16, 0, 16)
        high: i64 = clip(end - half * 16, 0, 16)
        start: i64 = (fi[a + FIRST_ROWS + half] + which * fi[a + PAGE_SIZE] + low) * size
        if fi[a + HEADS] == fi[a + KV_HEADS]:
            fi[a + SEEN] = touch(cb, start, (high - low) * size >> 3)
        else:
            start += size * fi[a + HEAD] // fi[a + KV_HEADS]
            for j in range(high - low):
                fi[a + SEEN] = touch(cb, start + j * size, (size * fi[a + HEADS] // fi[a + KV_HEADS]) >> 3)


def widen_ring(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    a: i64, h: i64, half: i64, low: i64, high: i64, which: i64,
) -> None:  # fmt: skip
    """Rows [low, high) of the ring = kv head h of the tile: keys (which = 0) or values (1) of a half of the block."""
    widen_rows(
        f, fb, fw, ch, cu, cb, fi[a + FIRST_ROWS + half] + which * fi[a + PAGE_SIZE] + low, high - low,
        fi[a + ROW_BYTES], fi[a + HEAD] + h, fi[a + KV_HEADS], fi[a + DIM], fi[a + PADDED], fi[a + DTYPE],
        fi[a + INT8_GROUP], fi[a + ROWS] + low * fi[a + STRIDE], fi[a + STRIDE], fi[a + WORDS],
    )  # fmt: skip


def score_head(f: vec[float], fi: vec[i64], a: i64, h: i64, first: i64, count: i64, s: i64) -> None:
    """s [count][16] = the scaled scores of kv head h's queries first .. and the keys in the ring."""
    padded: i64 = fi[a + PADDED]
    ring: i64 = fi[a + ROWS]
    partials: i64 = fi[a + PARTIALS]
    q: i64 = fi[a + LOADED] + (h * fi[a + QUERIES] + first) * padded
    v: i64 = 0
    while v + 4 <= count:
        partial_scores_4(f, ring, fi[a + STRIDE], q + v * padded, padded, partials + v * 128)
        v += 4
    while v < count:
        partial_scores_1(f, ring, fi[a + STRIDE], q + v * padded, padded, partials + v * 128)
        v += 1
    sum_partials(f, partials, s, count * 16, f[a + SCALE])


def value_head(f: vec[float], fi: vec[i64], a: i64, low: i64, high: i64, count: i64, p: i64, out: i64) -> None:
    """out [count][padded] += the rows [low, high) of the ring, weighted by p [count][16].

    All of them are finite numbers of this sequence; where a query does not see a row its weight is 0.
    """
    padded: i64 = fi[a + PADDED]
    ring: i64 = fi[a + ROWS] + low * fi[a + STRIDE]
    v: i64 = 0
    while v + 4 <= count:
        add_values_4(f, ring, fi[a + STRIDE], high - low, p + v * 16 + low, padded, out + v * padded)
        v += 4
    while v < count:
        add_values_1(f, ring, fi[a + STRIDE], high - low, p + v * 16 + low, padded, out + v * padded)
        v += 1


def mask_scores(f: vec[float], s: i64, stride: i64, first: i64, last: i64) -> None:
    """Of a query's 32 scores, those outside [first, last) become LOWEST: their weight is exactly 0."""
    for j in range(first):
        f[s + (j >> 4) * stride + (j & 15)] = LOWEST
    for j in range(last, i64(32)):
        f[s + (j >> 4) * stride + (j & 15)] = LOWEST


def block_top(f: vec[float], s: i64, stride: i64, top: float, z: i64) -> float:
    """Returns the largest of `top` and a query's 32 scores. z: scratch of 8."""
    s1: i64 = s + stride
    for t in range(i64(8)):
        x: float = f[s + t]
        if f[s + 8 + t] > x:
            x = f[s + 8 + t]
        if f[s1 + t] > x:
            x = f[s1 + t]
        if f[s1 + 8 + t] > x:
            x = f[s1 + 8 + t]
        f[z + t] = x
    for t in range(i64(8)):
        if f[z + t] > top:
            top = f[z + t]
    return top


def subtract(f: vec[float], s: i64, stride: i64, top: float) -> None:
    """A query's 32 scores minus the maximum."""
    for t in range(i64(16)):
        f[s + t] -= top
    for t in range(i64(16)):
        f[s + stride + t] -= top


def add_weights(f: vec[float], sums: i64, p: i64, stride: i64, factor: float) -> None:
    """sums = sums * factor + a query's 32 weights, lane by lane."""
    p1: i64 = p + stride
    for t in range(i64(8)):
        f[sums + t] = f[sums + t] * factor + ((f[p + t] + f[p + 8 + t]) + (f[p1 + t] + f[p1 + 8 + t]))


def raise_maximum(f: vec[float], s: i64, count: i64, maximum: i64, z: i64) -> None:
    """Scores s and corrections become the arguments of exp: x - maximum, old maximum - maximum."""
    stride: i64 = count * 16
    for v in range(count):
        top: float = block_top(f, s + v * 16, stride, f[maximum + v], z)
        f[s + count * 32 + v] = f[maximum + v] - top
        f[maximum + v] = top
        subtract(f, s + v * 16, stride, top)


def take_weights(f: vec[float], s: i64, count: i64, sums: i64, values: i64, padded: i64) -> None:
    """Sums and weighted values shrink by the corrections; the weights are added to the sums."""
    for v in range(count):
        factor: float = f[s + count * 32 + v]
        add_weights(f, sums + v * 8, s + v * 16, count * 16, factor)
        if factor != 1.0:
            scale_row(f, values + v * padded, padded, factor)


def mask_block(f: vec[float], fi: vec[i64], a: i64, block: i64, first: i64, last: i64, s: i64) -> None:
    """Masks what tokens [first, last) of the tile do not see of the block; s: one kv head's scores."""
    group: i64 = fi[a + GROUP]
    for t in range(first, last):
        position: i64 = fi[a + POSITION] + t
        low: i64 = clip(first_key(position, fi[a + WINDOW]) - block, 0, 32)
        high: i64 = clip(position + 1 - block, 0, 32)
        for g in range(group):
            mask_scores(f, s + ((t - first) * group + g) * 16, (last - first) * group * 16, low, high)


def attend_block(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64],
    a: i64, block: i64, first: i64, last: i64,
) -> None:  # fmt: skip
    """Takes the keys [block, block + 32) into the states of the tile's tokens [first, last); all of them see some."""
    position: i64 = fi[a + POSITION]
    group: i64 = fi[a + GROUP]
    padded: i64 = fi[a + PADDED]
    heads: i64 = fi[a + HEADS]
    count: i64 = (last - first) * group
    begin: i64 = clip(first_key(position + first, fi[a + WINDOW]) - block, 0, 32)  # what some token sees of the block
    end: i64 = clip(position + last - block, 0, 32)
    whole: i64 = 0  # 1: every token sees all of it
    if position + first >= block + 31 and first_key(position + last - 1, fi[a + WINDOW]) <= block:
        whole = 1
    size: i64 = state_size(fi[a + QUERIES], padded)
    find_rows(fi, ids, a, block, begin, end)
    touch_block(fi, cb, a, begin, end, 0)
    for h in range(heads):
        s: i64 = fi[a + SCORES] + h * 33 * count
        for half in range(begin >> 4, (end + 15) >> 4):
            low: i64 = clip(begin - half * 16, 0, 16)
            high: i64 = clip(end - half * 16, 0, 16)
            widen_ring(f, fb, fi, fw, ch, cu, cb, a, h, half, low, high, 0)
            score_head(f, fi, a, h, first * group, count, s + half * count * 16)
        if whole == 0:
            mask_block(f, fi, a, block, first, last, s)
        raise_maximum(f, s, count, fi[a + STATES] + h * size + first * group, fi[a + WORK])
    exp_into(f, fb, fi, fi[a + SCORES], fi[a + SCORES], heads * 33 * count, fi[a + WORK])
    touch_block(fi, cb, a, begin, end, 1)
    for h in range(heads):
        s = fi[a + SCORES] + h * 33 * count
        sums: i64 = fi[a + STATES] + h * size + fi[a + QUERIES] + first * group * 8
        values: i64 = fi[a + STATES] + h * size + fi[a + QUERIES] * 9 + first * group * padded
        take_weights(f, s, count, sums, values, padded)
        for half in range(begin >> 4, (end + 15) >> 4):
            low = clip(begin - half * 16, 0, 16)
            high = clip(end - half * 16, 0, 16)
            widen_ring(f, fb, fi, fw, ch, cu, cb, a, h, half, low, high, 1)
            value_head(f, fi, a, low, high, count, s + half * count * 16, values)


# -------------------------------------------------------------------------------------------------- whole queries


def load_queries(f: vec[float], q: i64, count: i64, dim: i64, padded: i64, out: i64) -> None:
    """out [count][padded] = q [count][dim], zeros behind."""
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
    size: i64 = state_size(queries, padded)
    for t in range(first, last):
        oldest: i64 = first_key(fi[a + POSITION] + t, fi[a + WINDOW])
        length: i64 = segment_length(fi[a + POSITION] + t + 1 - oldest)
        if block & (length - 1) == 0 and block > oldest:
            for h in range(fi[a + HEADS]):
                state: i64 = fi[a + STATES] + h * size
                fold(f, fb, fi, total + h * size, state, t * group, (t + 1) * group, queries, padded, fi[a + WORK])
                clear_queries(f, state, t * group, (t + 1) * group, queries, padded)


def attend_tile(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, ids: vec[i64],
    a: i64, q: i64, out: i64, position: i64, tokens: i64,
) -> None:  # fmt: skip
    """Tokens at positions position .. position + tokens - 1, all heads, from the first key to the last.

    q, out: of the first token.
    """
    kv_heads: i64 = fi[a + KV_HEADS]
    group: i64 = fi[a + GROUP]
    dim: i64 = fi[a + DIM]
    padded: i64 = fi[a + PADDED]
    window: i64 = fi[a + WINDOW]
    queries: i64 = tokens * group
    size: i64 = state_size(queries, padded)
    loaded: i64 = fi[a + FREE]
    states: i64 = loaded + kv_heads * queries * padded
    total: i64 = states + kv_heads * size
    fi[a + POSITION] = position
    fi[a + HEAD] = 0
    fi[a + HEADS] = kv_heads
    fi[a + QUERIES] = queries
    fi[a + LOADED] = loaded
    fi[a + STATES] = states
    for h in range(kv_heads):
        for t in range(tokens):
            source: i64 = q + (t * kv_heads + h) * group * dim
            load_queries(f, source, group, dim, padded, loaded + (h * tokens + t) * group * padded)
        clear_queries(f, states + h * size, 0, queries, queries, padded)
        clear_queries(f, total + h * size, 0, queries, queries, padded)
    block: i64 = first_key(position, window) & -32
    while block < position + tokens:
        first: i64 = clip(block - position, 0, tokens)
        last: i64 = tokens
        if window > 0:
            last = clip(block + 31 + window - position, 0, tokens)
        fold_ended_segments(f, fb, fi, a, block, first, last, total)
        attend_block(f, fb, fi, fw, ch, cu, cb, ids, a, block, first, last)
        block += 32
    for h in range(kv_heads):
        fold(f, fb, fi, total + h * size, states + h * size, 0, queries, queries, padded, fi[a + WORK])
        for v in range(queries):
            t = v // group
            target: i64 = out + ((t * kv_heads + h) * group + v - t * group) * dim
            finish_query(f, total + h * size, v, queries, padded, dim, target)


def attend_segments(
    rank: i64, ranks: i64, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    ids: vec[i64], a: i64, q: i64, shared: i64, position: i64,
) -> None:  # fmt: skip
    """One token: this rank's share of (segment, kv head), each into a state of its own in `shared`."""
    kv_heads: i64 = fi[a + KV_HEADS]
    group: i64 = fi[a + GROUP]
    padded: i64 = fi[a + PADDED]
    size: i64 = state_size(group, padded)
    load_queries(f, q, kv_heads * group, fi[a + DIM], padded, fi[a + FREE])
    fi[a + POSITION] = position
    fi[a + QUERIES] = group
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
        fi[a + LOADED] = fi[a + FREE] + head * group * padded
        fi[a + STATES] = shared + item * size
        for h in range(heads):
            clear_queries(f, fi[a + STATES] + h * size, 0, group, group, padded)
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
) -> None:  # fmt: skip
    """This rank's share of n tokens at positions start on: out = softmax(scale q k) v.

    f (also seen as fb, fi, fw) holds q and out, [n][kv_heads * group * dim], and the scratch: attend_scratch(heads,
    dim) entries at `scratch`, of this rank alone, and attend_shared(heads, dim) at `shared`, of all. The cache's arena
    is seen as i16, u8 and bytes; ids[pages:] is its page table, page_size a multiple of 8. window: keys that a query
    sees, itself included; 0 = all. dtype: as in cache_rows.
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
    complete_frame(fi, a)
    if n == 1:
        attend_segments(rank, ranks, f, fb, fi, fw, ch, cu, cb, ids, a, q, shared, start)
        return
    heads: i64 = kv_heads * group
    most: i64 = clip(most_queries(heads, padded_dim(dim)) // heads, 1, MAX_GROUP // group)
    if most > 4:
        most = most & -4  # queries are taken in fours
    most = clip((n + ranks - 1) // ranks, 1, most)
    tile: i64 = rank * most  # tiles cost more the later they are: the ranks take turns
    while tile < n:
        x: i64 = tile * kv_heads * group * dim
        attend_tile(f, fb, fi, fw, ch, cu, cb, ids, a, q + x, out + x, start + tile, clip(n - tile, 1, most))
        tile += ranks * most


def attend_finish(
    rank: i64, ranks: i64, n: i64, start: i64, f: vec[float], fb: bytes, fi: vec[i64], out: i64, scratch: i64,
    shared: i64, kv_heads: i64, group: i64, dim: i64, window: i64,
) -> None:  # fmt: skip
    """Folds the segments of a single token's queries, this rank's share of the kv heads; nothing to do for n > 1."""
    if n > 1:
        return
    padded: i64 = padded_dim(dim)
    size: i64 = state_size(group, padded)
    oldest: i64 = first_key(start, window)
    length: i64 = segment_length(start + 1 - oldest)
    segments: i64 = start // length + 1 - oldest // length
    total: i64 = scratch + EXP_SCRATCH + 64
    for h in range(kv_heads * rank // ranks, kv_heads * (rank + 1) // ranks):
        clear_queries(f, total, 0, group, group, padded)
        for number in range(segments):
            fold(f, fb, fi, total, shared + (number * kv_heads + h) * size, 0, group, group, padded, scratch)
        for v in range(group):
            finish_query(f, total, v, group, padded, dim, out + (h * group + v) * dim)
