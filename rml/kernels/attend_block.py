"""One block of 32 keys taken into the states of a tile's queries: scores, weights, weighted values.

Both halves of a block (16 keys) lie in one page each. A half is widened into the ring and used by all queries of its kv
head. The scores of V queries that share a kv head: [2 halves][V][16]; behind those of all heads corrections [V].
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.attend_in_place import (
    add_in_place,
    keys_in_place,
    score_in_place,
    values_in_place,
)
from rml.kernels.attend_scores import partial_scores_1, partial_scores_4, sum_partials
from rml.kernels.attend_state import (
    DIM,
    DTYPE,
    FETCHED,
    FIRST_ROWS,
    GROUP,
    HEAD,
    HEADS,
    INT8_GROUP,
    KV_HEADS,
    LAYER,
    LAYERS,
    LOADED,
    LOWEST,
    NEXT_ROWS,
    PADDED,
    PAGE_SIZE,
    PAGES,
    PARTIALS,
    POSITION,
    QUERIES,
    ROOMY,
    ROW_BYTES,
    ROWS,
    SCALE,
    SCORES,
    SEEN,
    SHARE,
    STATES,
    STRIDE,
    TURNED,
    WINDOW,
    WORDS,
    WORK,
    clip,
    first_key,
    scale_row,
    state_size,
)
from rml.kernels.attend_turned import turn_rows, turned_scores_4
from rml.kernels.attend_values import add_products_4, add_values_1
from rml.kernels.cache_read import touch, widen_rows
from rml.kernels.cache_rows import cache_row
from rml.kernels.exp import exp_into
from rml.kernels.prefetch import ask, ask_second

TURNING: Final = 12  # queries from which on it pays to turn the ring's rows


def find_rows(fi: vec[i64], ids: vec[i64], a: i64, at: i64, block: i64, begin: i64, end: i64) -> None:
    """Looks up the pages of the keys [block + begin, block + end) of a block: fi[a + at], one entry for each half."""
    for half in range(begin >> 4, (end + 15) >> 4):
        position: i64 = block + half * 16
        row: i64 = cache_row(ids, fi[a + PAGES], position, fi[a + PAGE_SIZE], fi[a + LAYER], fi[a + LAYERS], 0)
        fi[a + at + half] = row


def look_ahead(fi: vec[i64], ids: vec[i64], a: i64, block: i64, stop: i64) -> None:
    """Where the keys of the next block lie, to ask for them; those of this one when no key before `stop` follows."""
    fi[a + NEXT_ROWS] = fi[a + FIRST_ROWS]
    fi[a + NEXT_ROWS + 1] = fi[a + FIRST_ROWS]
    if block + 32 < stop:
        find_rows(fi, ids, a, NEXT_ROWS, block + 32, 0, clip(stop - block - 32, 0, 32))


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


def ask_rows(fi: vec[i64], cb: bytes, a: i64, h: i64, row: i64, done: i64, count: i64, asked: i64) -> i64:
    """Asks for what kv head h of the tile has of 16 rows, beside `asked` that have been asked for.

    Returns how many have been asked for now: as large a part as the `done` of `count` queries.
    """
    share: i64 = fi[a + SHARE] >> 4
    start: i64 = row * fi[a + ROW_BYTES] + (fi[a + HEAD] + h) * share
    while asked * count < done * 16:
        if fi[a + ROOMY] == 1:
            ask(cb, start + asked * fi[a + ROW_BYTES], share)
        else:
            ask_second(cb, start + asked * fi[a + ROW_BYTES], share)
        asked += 1
    return asked


def score_ring(
    f: vec[float], fi: vec[i64], cb: bytes, a: i64, h: i64, row: i64, q: i64, count: i64, s: i64, scale: float
) -> None:
    """s [count][16] = scaled scores of kv head h's queries q and the keys in the ring. Prefetches from `row` on."""
    padded: i64 = fi[a + PADDED]
    ring: i64 = fi[a + ROWS]
    stride: i64 = fi[a + STRIDE]
    keys: i64 = fi[a + TURNED]
    if count >= TURNING:
        turn_rows(f, ring, stride, padded, keys)
    partials: i64 = fi[a + PARTIALS]
    asked: i64 = 0
    v: i64 = 0
    while v + 4 <= count:
        asked = ask_rows(fi, cb, a, h, row, v + 4, count, asked)
        if count >= TURNING:
            turned_scores_4(f, keys, q + v * padded, padded, partials, s + v * 16, scale)
        else:
            partial_scores_4(f, ring, stride, q + v * padded, padded, partials)
            sum_partials(f, partials, s + v * 16, 64, scale)
        v += 4
    while v < count:
        asked = ask_rows(fi, cb, a, h, row, v + 1, count, asked)
        partial_scores_1(f, ring, stride, q + v * padded, padded, partials)
        sum_partials(f, partials, s + v * 16, 16, scale)
        v += 1


def score_half(
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    a: i64, h: i64, half: i64, low: i64, high: i64, first: i64, count: i64, s: i64,
) -> None:  # fmt: skip
    """s [count][16] = scaled scores of kv head h's queries first .. and this half's keys, right in [low, high)."""
    q: i64 = fi[a + LOADED] + (h * fi[a + QUERIES] + first) * fi[a + PADDED]
    row: i64 = fi[a + FIRST_ROWS + half]
    values: i64 = row + fi[a + PAGE_SIZE]
    if low == 0 and high == 16 and keys_in_place(fi, a, count) == 1:
        ahead: i64 = values * fi[a + ROW_BYTES] + h * fi[a + SHARE]
        score_in_place(f, fb, fi, fw, ch, cb, a, h, row, ahead, q, count, s)
    else:
        widen_ring(f, fb, fi, fw, ch, cu, cb, a, h, half, low, high, 0)
        score_ring(f, fi, cb, a, h, values, q, count, s, f[a + SCALE])


def value_half(
    f: vec[float], fi: vec[i64], cb: bytes, a: i64, h: i64, row: i64, low: i64, high: i64, count: i64, p: i64, out: i64
) -> None:
    """out [count][padded] += the rows [low, high) of the ring, weighted by p [count][16]. Prefetches from `row` on.

    All of them are finite numbers of this sequence; where a query does not see a row its weight is 0.
    """
    padded: i64 = fi[a + PADDED]
    ring: i64 = fi[a + ROWS] + low * fi[a + STRIDE]
    asked: i64 = 0
    v: i64 = 0
    while v + 4 <= count:
        asked = ask_rows(fi, cb, a, h, row, v + 4, count, asked)
        at: i64 = p + v * 16 + low
        add_products_4(f, ring, fi[a + STRIDE], high - low, at, 16, 1, 0, padded >> 4, out + v * padded, padded, 16)
        v += 4
    while v < count:
        asked = ask_rows(fi, cb, a, h, row, v + 1, count, asked)
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


def raise_maximum(f: vec[float], s: i64, corrections: i64, count: i64, maximum: i64, z: i64) -> None:
    """Scores s and corrections become the arguments of exp: x - maximum, old maximum - maximum."""
    stride: i64 = count * 16
    for v in range(count):
        top: float = block_top(f, s + v * 16, stride, f[maximum + v], z)
        f[corrections + v] = f[maximum + v] - top
        f[maximum + v] = top
        subtract(f, s + v * 16, stride, top)


def take_weights(f: vec[float], s: i64, corrections: i64, count: i64, sums: i64, values: i64, padded: i64) -> None:
    """Sums and weighted values shrink by the corrections; the weights are added to the sums."""
    for v in range(count):
        factor: float = f[corrections + v]
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


def asks(fi: vec[i64], a: i64, count: i64, in_place: i64) -> i64:
    """1: what follows keys or values has been asked for while they were used, by loops in place or through the ring."""
    return i64(fi[a + HEADS] == fi[a + KV_HEADS] or (count > 4 and in_place == 0))


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
    find_rows(fi, ids, a, FIRST_ROWS, block, begin, end)
    look_ahead(fi, ids, a, block, position + last)
    if fi[a + FETCHED] != block:
        touch_block(fi, cb, a, begin, end, 0)
    corrections: i64 = fi[a + SCORES] + heads * 32 * count
    for h in range(heads):
        s: i64 = fi[a + SCORES] + h * 32 * count
        for half in range(begin >> 4, (end + 15) >> 4):
            low: i64 = clip(begin - half * 16, 0, 16)
            high: i64 = clip(end - half * 16, 0, 16)
            score_half(
                f, fb, fi, fw, ch, cu, cb, a, h, half, low, high, first * group, count, s + half * count * 16
            )  # fmt: skip
        if whole == 0:
            mask_block(f, fi, a, block, first, last, s)
        maximum: i64 = fi[a + STATES] + h * size + fi[a + QUERIES] * (padded + 8) + first * group
        raise_maximum(f, s, corrections + h * count, count, maximum, fi[a + WORK])
    exp_into(f, fb, fi, fi[a + SCORES], fi[a + SCORES], heads * 33 * count + 7 & -8, fi[a + WORK])  # whole vectors
    if asks(fi, a, count, keys_in_place(fi, a, count)) == 0:
        touch_block(fi, cb, a, begin, end, 1)
    for h in range(heads):
        s = fi[a + SCORES] + h * 32 * count
        sums: i64 = fi[a + STATES] + h * size + fi[a + QUERIES] * padded + first * group * 8
        values: i64 = fi[a + STATES] + h * size + first * group * padded
        take_weights(f, s, corrections + h * count, count, sums, values, padded)
        for half in range(begin >> 4, (end + 15) >> 4):
            low = clip(begin - half * 16, 0, 16)
            high = clip(end - half * 16, 0, 16)
            p: i64 = s + half * count * 16
            if values_in_place(fi, a, count) == 1:
                ahead: i64 = fi[a + NEXT_ROWS + half] * fi[a + ROW_BYTES] + h * fi[a + SHARE]
                row: i64 = fi[a + FIRST_ROWS + half] + fi[a + PAGE_SIZE] + low
                add_in_place(f, fi, cb, a, h, row, high - low, ahead, count, p + low, values)
            else:
                widen_ring(f, fb, fi, fw, ch, cu, cb, a, h, half, low, high, 1)
                value_half(f, fi, cb, a, h, fi[a + NEXT_ROWS + half], low, high, count, p, values)
    fi[a + FETCHED] = -1
    if asks(fi, a, count, values_in_place(fi, a, count)) == 1:
        fi[a + FETCHED] = block + 32
