"""Products with the experts that the router chose: each expert's rows once, for all tokens that chose it.

Activations lie as vectors: row t for the router's input, row t * k + slot for an expert's hidden values. Experts are
taken in rising order, and a token's chosen ids rise with the slot: so a token's outputs are added in one order, however
many tokens there are. The rows of tokens that chose the same expert are copied side by side, so that its weights meet
several of them at a time.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels import matmul
from rml.kernels.attend_state import clip
from rml.kernels.kinds import group_of
from rml.kernels.norms import move
from rml.kernels.opcodes import AHEAD, HSCRATCH, HSCRATCH_STRIDE, KSCRATCH, KSCRATCH_STRIDE, SCRATCH, SCRATCH_STRIDE
from rml.kernels.quantize import PART

ROWS: Final = 128  # rows of an expert, a panel, for all its tokens before the next: they stay cached
TOGETHER: Final = 16  # tokens of an expert at a time


def scratch_h(cols: i64) -> i64:
    """i16 scratch of one rank: matmul's, then the int8 activations of TOGETHER rows."""
    return matmul.scratch_h(cols) + TOGETHER * cols // 2


def scratch_k(cols: i64) -> i64:
    """i32 scratch of one rank: matmul's, then their sums, then the items they belong to."""
    return matmul.scratch_k(cols) + TOGETHER * cols // PART + TOGETHER


def scratch_f(cols: i64, int8: i64) -> i64:
    """float64 scratch of one rank: matmul's, then products, then the scales of the rows; int8 = 0: the rows."""
    each: i64 = cols
    if int8 != 0:
        each = cols >> 5
    return matmul.scratch_f(cols, int8) + TOGETHER * (ROWS + each)


def next_item(ids: vec[i64], chosen: i64, item: i64, items: i64, expert: i64) -> i64:
    """The first item from `item` on that chose the expert; `items` if there is none."""
    while item < items:
        if ids[chosen + item] == expert:
            return item
        item += 1
    return items


def copy_row(
    kind: i64, int8: i64, cols: i64, row: i64, rows: i64, h: vec[i16], hx: i64, hy: i64, k: vec[i32], sums: i64,
    sums_to: i64, f: vec[float], x: i64, scale: i64, to: i64, place: i64
) -> None:  # fmt: skip
    """Row `row` of `rows` becomes row `place` of TOGETHER: what quantize_row has written, or the float64 row of x."""
    if int8 == 0:
        move(f, x + row * cols, to + place * cols, cols)
        return
    group: i64 = group_of(kind)
    for g in range(cols // group):
        i: i64 = g * rows + row
        o: i64 = g * TOGETHER + place
        for j in range(group >> 1):
            h[hy + o * (group >> 1) + j] = h[hx + i * (group >> 1) + j]
        for s in range(group // PART):
            k[sums_to + o * (group // PART) + s] = k[sums + i * (group // PART) + s]
        f[to + o] = f[scale + i]


def rows_of_expert(
    steps: vec[i64], p: i64, n: i64, expert: i64, first: i64, last: i64, down: i64, rank: i64, control: vec[i64],
    ids: vec[i64], w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """Rows first..last-1 of one expert, at most ROWS, times the activations of every item that chose it.

    down = 0: y[item] = the products with its token's row; 1: y[token] += weight * the products with its own row.
    """
    kind: i64 = steps[p + 1]
    cols: i64 = steps[p + 4]
    int8: i64 = steps[p + 5]
    slots: i64 = steps[p + 11]
    chosen: i64 = steps[p + 12]
    fs: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    hs: i64 = control[HSCRATCH] + rank * control[HSCRATCH_STRIDE]
    ks: i64 = control[KSCRATCH] + rank * control[KSCRATCH_STRIDE]
    out: i64 = fs + matmul.scratch_f(cols, int8)
    to: i64 = out + TOGETHER * ROWS
    hx: i64 = hs + matmul.scratch_h(cols)
    sums: i64 = ks + matmul.scratch_k(cols)
    taken: i64 = sums + TOGETHER * cols // PART
    items: i64 = n * slots
    rows: i64 = n
    if down != 0:
        rows = items
    item: i64 = next_item(ids, chosen, 0, items, expert)
    while item < items:
        count: i64 = 0
        while item < items and count < TOGETHER:
            row: i64 = item
            if down == 0:
                row = item // slots
            copy_row(
                kind, int8, cols, row, rows, h, steps[p + 7], hx, k, steps[p + 9], sums, f, steps[p + 6], steps[p + 8],
                to, count,
            )  # fmt: skip
            k[taken + count] = i32(item)
            count += 1
            item = next_item(ids, chosen, item + 1, items, expert)
        matmul.product(
            kind, int8, w, wb, ids[steps[p + 2] + expert], steps[p + 3], first, last, cols, count, h, hu, hx, TOGETHER,
            k, kb, sums, f, to, to, out - first, ROWS, 0, hs, ks, fs, control[AHEAD],
        )  # fmt: skip
        for i in range(count):
            put_result(steps, p, i64(k[taken + i]), down, slots, f, out + i * ROWS, first, last)


def put_result(
    steps: vec[i64], p: i64, item: i64, down: i64, slots: i64, f: vec[float], product: i64, first: i64, last: i64
) -> None:
    """Rows first..last-1 of an item's products to their place in y: see rows_of_expert."""
    if down == 0:
        move(f, product, steps[p + 10] + item * steps[p + 3] + first, last - first)
    else:
        y: i64 = steps[p + 10] + item // slots * steps[p + 3]
        weighted_add(f, y + first, product, last - first, f[steps[p + 14] + item])


def lone_rows(
    steps: vec[i64], p: i64, item: i64, first: i64, last: i64, down: i64, rank: i64, control: vec[i64],
    ids: vec[i64], w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """rows_of_expert for the expert of one item of a lone token, whose activations are multiplied where they lie.

    At most TOGETHER * ROWS rows.
    """
    kind: i64 = steps[p + 1]
    cols: i64 = steps[p + 4]
    int8: i64 = steps[p + 5]
    slots: i64 = steps[p + 11]
    fs: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    hs: i64 = control[HSCRATCH] + rank * control[HSCRATCH_STRIDE]
    ks: i64 = control[KSCRATCH] + rank * control[KSCRATCH_STRIDE]
    out: i64 = fs + matmul.scratch_f(cols, int8)
    row: i64 = item * down
    rows: i64 = 1 + (slots - 1) * down
    group: i64 = group_of(kind)
    matmul.product(
        kind, int8, w, wb, ids[steps[p + 2] + ids[steps[p + 12] + item]], steps[p + 3], first, last, cols, 1,
        h, hu, steps[p + 7] + row * group // 2, rows, k, kb, steps[p + 9] + row * group // PART,
        f, steps[p + 6] + row * cols, steps[p + 8] + row, out - first, 0, 0, hs, ks, fs, control[AHEAD],
    )  # fmt: skip
    put_result(steps, p, item, down, slots, f, out, first, last)


def expert_rows(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, down: i64, rank: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """Rows first..last-1 of every expert. down = 0: y[t * k + slot] = expert chosen[t * k + slot] times x[t];
    1: y[t] += weight of the slot * (expert times x[t * k + slot]).
    """
    if n == 1:
        for item in range(steps[p + 11]):
            r: i64 = first
            while r < last:
                end: i64 = clip(r + TOGETHER * ROWS, r, last)
                lone_rows(steps, p, item, r, end, down, rank, control, ids, w, wb, f, h, hu, k, kb)
                r = end
        return
    for expert in range(steps[p + 13]):
        r = first
        while r < last:
            end = clip((r // ROWS + 1) * ROWS, r, last)
            rows_of_expert(steps, p, n, expert, r, end, down, rank, control, ids, w, wb, f, h, hu, k, kb)
            r = end


def weighted_add(f: vec[float], y: i64, x: i64, count: i64, weight: float) -> None:
    """y += weight * x."""
    for j in range(count):
        f[y + j] += weight * f[x + j]
