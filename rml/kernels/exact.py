"""Rows of every stored type times float64 activations: a block of rows is widened once and meets all tokens.

Six tokens or four meet two rows at a time; of up to three that are left, two meet four rows at a time, a last one
as if it were two. Long rows are taken in pieces, so that what is read again and again stays in the nearest cache.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.dense_eight import eight_dots
from rml.kernels.dense_twelve import twelve_dots
from rml.kernels.kinds import row_bytes
from rml.kernels.lanes import add_up
from rml.kernels.norms import fill
from rml.kernels.prefetch import ask
from rml.kernels.widen import widen

BLOCK: Final = 65536  # float64 of widened rows: half of a second cache of 1 MB
MOST_ROWS: Final = 64
ROWS_PER_TOKEN: Final = 4
ZEROS: Final = 192  # float64: lanes before the first piece
LANES: Final = 6144  # float64: six tokens' lanes of MOST_ROWS
PIECE: Final = 640  # of a row, at most: eight of them fit the nearest cache


def block_rows(cols: i64, n: i64) -> i64:
    """Rows of a block that n tokens meet: a multiple of four, and few for few tokens, which stay near anyway."""
    rows: i64 = BLOCK // cols & -4
    if rows > n * ROWS_PER_TOKEN:
        rows = n * ROWS_PER_TOKEN
    if rows > MOST_ROWS:
        return i64(MOST_ROWS)
    if rows < 4:
        return 4
    return rows


def exact_scratch(cols: i64) -> i64:
    """float64 scratch of one rank, for matrices of up to `cols` columns: the lanes and a block."""
    if cols * 4 > BLOCK:
        return ZEROS + LANES + cols * 4
    return i64(ZEROS + LANES + BLOCK)


def fill_lanes(
    f: vec[float], pair: i64, pair_step: i64, pair_move: i64, many: i64, others: i64, others_step: i64,
    others_move: i64, cols: i64, count: i64, lanes: i64
) -> None:  # fmt: skip
    """f[lanes:], [count][2][many][8]: eight sums of each dot of two rows, `pair_step` apart, with four or six others.

    The next ones begin `pair_move` and `others_move` further. Until the last piece there are sixteen; ZEROS of them lie
    before `lanes`.
    """
    pieces: i64 = (cols + PIECE - 1) // PIECE
    size: i64 = ((cols + pieces - 1) // pieces + 15) & -16
    done: i64 = 0
    last: i64 = 0
    while done < cols:
        if size >= cols - done:
            size = cols - done
            last = 1
        for i in range(count):
            p: i64 = pair + i * pair_move + done
            q: i64 = others + i * others_move + done
            before: i64 = lanes + i * many * 32
            after: i64 = before - last * i * many * 16
            if done == 0:
                before = lanes - ZEROS
            if many == 6:
                twelve_dots(f, p, pair_step, q, others_step, size, before, after, last)
            else:
                eight_dots(f, p, pair_step, q, others_step, size, before, after, last)
        done += size


def multiply_block(
    f: vec[float], block: i64, rows: i64, cols: i64, n: i64, x: i64, y: i64, ystride: i64, accumulate: i64, lanes: i64
) -> None:
    """f[y + t * ystride + r] (+)= widened row r of `rows` times f[x + t * cols :], for n tokens t.

    Rows up to the next multiple of four are read too.
    """
    t: i64 = 0
    while t + 4 <= n:
        many: i64 = 4
        if t + 6 <= n:
            many = 6
        fill_lanes(f, block, cols, 2 * cols, many, x + t * cols, cols, 0, cols, (rows + 1) >> 1, lanes)
        for j in range(many):
            add_up(f, lanes + j * 8, many * 8, y + (t + j) * ystride, rows, accumulate)
        t += many
    while t < n:
        tokens: i64 = 2
        if t + 1 == n:
            tokens = 1
        fours: i64 = (rows + 3) >> 2
        fill_lanes(f, x + t * cols, (tokens - 1) * cols, 0, 4, block, cols, 4 * cols, cols, fours, lanes)
        for i in range(fours):
            count: i64 = rows - i * 4
            if count > 4:
                count = 4
            for j in range(tokens):
                add_up(f, lanes + i * 64 + j * 32, 8, y + (t + j) * ystride + i * 4, count, accumulate)
        t += tokens


def exact_rows(
    kind: i64, w: vec[u8], wb: bytes, start: i64, first: i64, last: i64, cols: i64, n: i64, h: vec[i16], k: vec[i32],
    kb: bytes, f: vec[float], x: i64, y: i64, ystride: i64, accumulate: i64, hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r, first..last-1, times f[x + t * cols :][:cols], for n tokens t.

    Scratch: as `widen`, and f[fs : fs + exact_scratch(cols)].
    """
    size: i64 = row_bytes(kind, cols)
    lanes: i64 = fs + ZEROS
    block: i64 = lanes + LANES
    fill(f, fs, ZEROS, 0.0)
    r: i64 = first
    while r < last:
        rows: i64 = block_rows(cols, n)
        if rows > last - r:
            rows = last - r
        for i in range(rows):
            ask(wb, start + (r + i) * size + ahead, size)
            widen(kind, w, wb, start + (r + i) * size, cols, h, hs, k, kb, ks, f, block + i * cols)
        multiply_block(f, block, rows, cols, n, x, y + r, ystride, accumulate, lanes)
        r += rows
