"""The steps that work token by token: embedding, norms, rounding to int8, rotary embeddings, routing.

The tokens are shared among the ranks, the same way in each of these steps: so one rank may go from one to the next
without a barrier.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels import quantize
from rml.kernels.kinds import group_of
from rml.kernels.norms import add, choose_experts, move, rms_norm, scale, softmax_in_place
from rml.kernels.opcodes import HSCRATCH, HSCRATCH_STRIDE, KSCRATCH, KSCRATCH_STRIDE
from rml.kernels.panel_rows import widen_panel_row
from rml.kernels.widen import widen


def first_token(n: i64, rank: i64, ranks: i64) -> i64:
    """The first token of this rank's share; the next rank's first is this one's end."""
    return (n * rank + ranks - 1) // ranks


def embed(
    steps: vec[i64], p: i64, first: i64, last: i64, rank: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], h: vec[i16], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """x[t] = row ids[t] of the embedding matrix * scale."""
    kind: i64 = steps[p + 1]
    cols: i64 = steps[p + 3]
    hs: i64 = control[HSCRATCH] + rank * control[HSCRATCH_STRIDE]
    ks: i64 = control[KSCRATCH] + rank * control[KSCRATCH_STRIDE]
    for t in range(first, last):
        x: i64 = steps[p + 6] + t * cols
        if steps[p + 7] != 0:
            widen_panel_row(
                kind, steps[p + 7] - 1, wb, steps[p + 2], steps[p + 8], ids[t], cols // group_of(kind), h, hs,
                k, kb, ks, f, x,
            )  # fmt: skip
        else:
            widen(kind, w, wb, steps[p + 2] + ids[t] * steps[p + 4], cols, h, hs, k, kb, ks, f, x)
        scale(f, x, cols, f[steps[p + 5]])


def norm(steps: vec[i64], p: i64, first: i64, last: i64, lane: i64, f: vec[float]) -> None:
    """out = RMSNorm of each of `items` pieces of each token's row."""
    count: i64 = steps[p + 4]
    items: i64 = steps[p + 6]
    for item in range(first * items, last * items):
        rms_norm(
            f, steps[p + 1] + item * count, steps[p + 2], steps[p + 3] + item * count, count, f[steps[p + 5]], lane
        )


def round_inputs(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, f: vec[float], fb: bytes, fi: vec[i64], hu: vec[u8],
    k: vec[i32], scratch: i64,
) -> None:  # fmt: skip
    """The int8 activations of the tokens' rows."""
    x: i64 = steps[p + 1]
    cols: i64 = steps[p + 2]
    items: i64 = steps[p + 7]
    for row in range(first * items, last * items):
        quantize.quantize_row(
            f, fb, fi, x + row * cols, cols, steps[p + 3], row, n * items, hu, steps[p + 4] * 2,
            k, steps[p + 6], steps[p + 5], scratch,
        )  # fmt: skip


def add_rows(steps: vec[i64], p: i64, first: i64, last: i64, f: vec[float]) -> None:
    """x += y."""
    count: i64 = steps[p + 3]
    add(f, steps[p + 1] + first * count, steps[p + 2] + first * count, (last - first) * count)


def last_row(steps: vec[i64], p: i64, n: i64, f: vec[float]) -> None:
    """target = the last token's row of x."""
    move(f, steps[p + 1] + (n - 1) * steps[p + 2], steps[p + 3], steps[p + 2])


def route(
    steps: vec[i64], p: i64, first: i64, last: i64, ids: vec[i64], f: vec[float], fb: bytes, fi: vec[i64], scratch: i64
) -> None:
    """Scores become probabilities (softmax over all experts); ids and weights of the k best of each token."""
    experts: i64 = steps[p + 2]
    k: i64 = steps[p + 4]
    for t in range(first, last):
        scores: i64 = steps[p + 1] + t * experts
        softmax_in_place(f, fb, fi, scores, experts, scratch)
        choose_experts(f, scores, experts, ids, steps[p + 3] + t * k, k, steps[p + 5] + t * k, steps[p + 6])
