"""What attention keeps while it runs: the frame of a call, and the states of queries.

The state of V queries that share a kv head: weighted values [V][padded], sum of weights [V][8], maximum [V], where
`padded` is head_dim rounded up to 16. Sums of weights are kept in eight lanes, key i of a block in lane i mod 8.
Scores, queries and states begin with a cache line: vectors across two lines are read at half the speed.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.cache_rows import F32, int8_group, row_bytes
from rml.kernels.exp import EXP_SCRATCH, exp_into
from rml.kernels.fma import fma
from rml.kernels.norms import fill

MAX_QUERIES: Final = 64  # of one kv head, taken together: a key is widened once for all of them
MAX_LOADED: Final = 16384  # float64 entries of those queries, unless one token has more: they stay in L2
MAX_SEGMENTS: Final = 17
WORK_SIZE: Final = 896  # float64 entries that `fold` needs: EXP_SCRATCH + 2 * MAX_QUERIES
LOWEST: Final = -1.7976931348623157e308  # the score of a masked key

# The frame: what stays the same during a call, as i64 at the start of a rank's scratch.
PAGES: Final = 0
LAYER: Final = 1
LAYERS: Final = 2
PAGE_SIZE: Final = 3
KV_HEADS: Final = 4
GROUP: Final = 5  # query heads per kv head; of a lone token, lanes_of them: zeros behind
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
WORK: Final = 18  # for exp, fold and others
ROWS: Final = 19  # the ring: 16 widened rows of one kv head
STRIDE: Final = 20  # between them
WORDS: Final = 21
SCORES: Final = 22
FREE: Final = 23  # the rest: queries and states of a tile
ROW_BYTES: Final = 24
INT8_GROUP: Final = 25
FIRST_ROWS: Final = 26  # the cache rows of the keys at both halves of a block; their values are page_size rows further
NEXT_ROWS: Final = 28  # the same of the next block
SEEN: Final = 30
FETCHED: Final = 31  # the block whose keys have been prefetched; -1: none
SHARE: Final = 32  # bytes of 16 rows per kv head
TURNED: Final = 34  # the ring with its rows as columns: [padded][16]
STEP: Final = 33  # what one of the head_dim turns of an inner loop asks for of them, into the nearest cache
FAR_STEP: Final = 35  # the same into the second cache; one of both is 0, or both: nothing is asked for
ROOMY: Final = 36  # 1: the nearest cache holds a block's keys and values, and what comes next is asked for into it
FRAME: Final = 64


def padded_dim(dim: i64) -> i64:
    """head_dim rounded up to a multiple of 16."""
    return (dim + 15) & -16


def state_size(queries: i64, padded: i64) -> i64:
    """float64 entries of the state of `queries` queries: whole cache lines."""
    return queries * (padded + 8) + (queries + 7 & -8)


def lanes_of(group: i64, dtype: i64) -> i64:
    """How many queries of a lone token are taken per kv head.

    Two or three beside the fours cost more than four do; three alone meet f32 rows where they lie, as four do.
    """
    if group & 3 > 1 and not (group == 3 and dtype == F32):
        return (group + 3) & -4
    return group


def tile_tokens(group: i64, padded: i64) -> i64:
    """How many tokens attend together: a power of two, so that they divide those of a call."""
    most: i64 = clip(MAX_LOADED // (padded * group), 1, MAX_QUERIES // group)
    tokens: i64 = 1
    while tokens * 2 <= most:
        tokens = tokens << 1
    return tokens


def complete_frame(fi: vec[i64], a: i64, queries: i64, nearest: i64) -> None:
    """Adds to the frame at a what follows from its first entries, and where the parts of the scratch lie.

    queries: the most of a block, of all its kv heads. nearest: bytes of the nearest data cache.
    """
    padded: i64 = fi[a + PADDED]
    fi[a + ROW_BYTES] = row_bytes(fi[a + KV_HEADS], fi[a + DIM], fi[a + DTYPE])
    fi[a + INT8_GROUP] = int8_group(fi[a + DIM])
    fi[a + ROOMY] = i64(fi[a + ROW_BYTES] * 64 <= nearest)
    fi[a + SHARE] = fi[a + ROW_BYTES] * 16 // fi[a + KV_HEADS]
    fi[a + PARTIALS] = a + FRAME
    fi[a + WORK] = fi[a + PARTIALS] + 512
    fi[a + ROWS] = fi[a + WORK] + WORK_SIZE
    fi[a + STRIDE] = padded + 8  # rows of 4 KiB would compete for the same cache lines
    fi[a + WORDS] = fi[a + ROWS] + 16 * (padded + 8)
    fi[a + TURNED] = fi[a + WORDS] + 8 * padded
    fi[a + SCORES] = fi[a + TURNED] + 16 * padded
    fi[a + FREE] = fi[a + SCORES] + (33 * queries + 7 & -8)


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


def clear_queries(f: vec[float], state: i64, first: i64, last: i64, queries: i64, padded: i64) -> None:
    """No key seen yet by queries [first, last)."""
    fill(f, state + first * padded, (last - first) * padded, 0.0)
    fill(f, state + queries * padded + first * 8, (last - first) * 8, 0.0)
    fill(f, state + queries * (padded + 8) + first, last - first, LOWEST)


def scale_row(f: vec[float], x: i64, count: i64, factor: float) -> None:
    for j in range(count):
        f[x + j] *= factor


def fold_row(f: vec[float], x: i64, y: i64, count: i64, a: float, b: float) -> None:
    """x = a x + b y."""
    for j in range(count):
        f[x + j] = fma(f[y + j], b, f[x + j] * a)


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
    work: i64,
) -> None:
    """Queries [first, last): `into` becomes the state of its keys and of `state`'s. work: WORK_SIZE entries."""
    e: i64 = work + EXP_SCRATCH
    sums: i64 = queries * padded
    tops: i64 = sums + queries * 8
    for v in range(first, last):
        top: float = f[into + tops + v]
        if f[state + tops + v] > top:
            top = f[state + tops + v]
        f[e + v * 2] = f[into + tops + v] - top
        f[e + v * 2 + 1] = f[state + tops + v] - top
        f[into + tops + v] = top
    exp_into(f, fb, fi, e + first * 2, e + first * 2, (last - first) * 2, work)
    for v in range(first, last):
        a: float = f[e + v * 2]
        b: float = f[e + v * 2 + 1]
        fold_row(f, into + v * padded, state + v * padded, padded, a, b)
        fold_row(f, into + sums + v * 8, state + sums + v * 8, 8, a, b)


def finish_query(f: vec[float], state: i64, v: i64, queries: i64, padded: i64, dim: i64, out: i64) -> None:
    """out[d] = weighted values / sum of weights. Adding 0 makes -0 into 0: rows with weight 0 may have done so."""
    p: i64 = state + queries * padded + v * 8
    total: float = ((f[p] + f[p + 4]) + (f[p + 2] + f[p + 6])) + ((f[p + 1] + f[p + 5]) + (f[p + 3] + f[p + 7]))
    scale: float = LOWEST * 10.0
    scale -= scale  # NaN, for scores that are not finite
    if total > 0.0:
        scale = 1.0 / total
    x: i64 = state + v * padded
    for d in range(dim):
        f[out + d] = f[x + d] * scale + 0.0
