"""Products with the experts that the router chose: each expert's rows once, for all tokens that chose it.

Activations lie as vectors: row t for the router's input, row t * k + slot for an expert's hidden values. Experts are
taken in rising order, and a token's chosen ids rise with the slot: so a token's outputs are added in one order, however
many tokens there are.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels import matmul
from rml.kernels.kinds import group_of
from rml.kernels.opcodes import HSCRATCH, HSCRATCH_STRIDE, KSCRATCH, KSCRATCH_STRIDE, SCRATCH, SCRATCH_STRIDE
from rml.kernels.quantize import PART

ROWS: Final = 128  # rows of an expert, a panel, for all its tokens before the next: they stay cached


def one_row(
    steps: vec[i64], p: i64, start: i64, first: i64, last: i64, row: i64, xrows: i64, y: i64, rank: i64,
    control: vec[i64], w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """f[y + r] = rows first..last-1 of one expert times activation row `row` of `xrows`."""
    kind: i64 = steps[p + 1]
    cols: i64 = steps[p + 4]
    x: i64 = steps[p + 6] + row * cols
    hs: i64 = control[HSCRATCH] + rank * control[HSCRATCH_STRIDE]
    ks: i64 = control[KSCRATCH] + rank * control[KSCRATCH_STRIDE]
    fs: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    group: i64 = group_of(kind)
    matmul.product(
        kind, steps[p + 5], w, wb, start, steps[p + 3], first, last, cols, 1, h, hu,
        steps[p + 7] + row * group // 2, xrows, k, kb, steps[p + 9] + row * group // PART, f, x, steps[p + 8] + row,
        y, 0, 0, hs, ks, fs,
    )  # fmt: skip


def up_rows(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, rank: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """y[t * k + slot] = expert chosen[t * k + slot] times x[t], rows first..last-1."""
    slots: i64 = steps[p + 11]
    chosen: i64 = steps[p + 12]
    for e in range(steps[p + 13]):
        r: i64 = first
        while r < last:
            end: i64 = (r // ROWS + 1) * ROWS
            if end > last:
                end = last
            for item in range(n * slots):
                if ids[chosen + item] == e:
                    y: i64 = steps[p + 10] + item * steps[p + 3]
                    one_row(
                        steps, p, ids[steps[p + 2] + e], r, end, item // slots, n, y, rank, control,
                        w, wb, f, h, hu, k, kb,
                    )  # fmt: skip
            r = end


def down_rows(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, rank: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """y[t] += weight of the slot * (expert times x[t * k + slot]), rows first..last-1."""
    slots: i64 = steps[p + 11]
    chosen: i64 = steps[p + 12]
    out: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE] + matmul.scratch_f(steps[p + 4], steps[p + 5])
    for e in range(steps[p + 13]):
        r: i64 = first
        while r < last:
            end: i64 = (r // ROWS + 1) * ROWS
            if end > last:
                end = last
            for item in range(n * slots):
                if ids[chosen + item] == e:
                    one_row(
                        steps, p, ids[steps[p + 2] + e], r, end, item, n * slots, out - r, rank, control,
                        w, wb, f, h, hu, k, kb,
                    )  # fmt: skip
                    y: i64 = steps[p + 10] + item // slots * steps[p + 3]
                    weighted_add(f, y + r, out, end - r, f[steps[p + 14] + item])
            r = end


def weighted_add(f: vec[float], y: i64, x: i64, count: i64, weight: float) -> None:
    """y += weight * x."""
    for j in range(count):
        f[y + j] += weight * f[x + j]
