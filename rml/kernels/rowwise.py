"""The steps that work row by row of a weight matrix: products, biases, the gate, the soft cap.

Every rank takes the same rows of equally tall outputs in each of these steps, so a rank may go on from gate and up to
act(gate) * up without a barrier. Shares are whole panels (pack.py) if there are any.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels import matmul
from rml.kernels.exp import exp_into
from rml.kernels.kinds import group_of, panel_units, row_bytes
from rml.kernels.norms import add
from rml.kernels.opcodes import (
    AHEAD,
    GELU_TANH,
    HSCRATCH,
    HSCRATCH_STRIDE,
    KSCRATCH,
    KSCRATCH_STRIDE,
    SCRATCH,
    SCRATCH_STRIDE,
)
from rml.kernels.prefetch import ask

PIECE: Final = 256  # values of an activation function taken at once


def first_row(rows: i64, share: i64, rank: i64, ranks: i64) -> i64:
    """The first row of this rank's share, a multiple of `share`; the next rank's first is this one's end.

    The last ranks take more, for the last piece of `share` rows may have fewer.
    """
    first: i64 = (rows + share - 1) // share * rank // ranks * share
    if first > rows:
        return rows
    return first


def fetch_share(
    steps: vec[i64], p: i64, share: i64, rank: i64, ranks: i64, wb: bytes, ahead: i64
) -> None:
    """Asks for the first bytes of this rank's share of the product at steps[p:]; the later ones it asks for itself."""
    kind: i64 = steps[p + 1]
    cols: i64 = steps[p + 4]
    size: i64 = row_bytes(kind, cols)
    if steps[p + 5] != 0:
        size = cols // group_of(kind) * panel_units(kind) * 2
    ask(wb, steps[p + 2] + first_row(steps[p + 3], share, rank, ranks) * size, ahead)


def product(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, rank: i64, control: vec[i64], w: vec[u8], wb: bytes,
    f: vec[float], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """y (+)= matrix x for rows first..last-1 and every token."""
    kind: i64 = steps[p + 1]
    start: i64 = steps[p + 2]
    cols: i64 = steps[p + 4]
    x: i64 = steps[p + 6]
    hx: i64 = steps[p + 7]
    scales: i64 = steps[p + 8]
    sums: i64 = steps[p + 9]
    y: i64 = steps[p + 10]
    stride: i64 = steps[p + 11]
    accumulate: i64 = steps[p + 12]
    fs: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    hs: i64 = control[HSCRATCH] + rank * control[HSCRATCH_STRIDE]
    ks: i64 = control[KSCRATCH] + rank * control[KSCRATCH_STRIDE]
    matmul.product(
        kind, steps[p + 5], w, wb, start, steps[p + 3], first, last, cols, n, h, hu, hx, n, k, kb, sums, f, x, scales,
        y, stride, accumulate, hs, ks, fs, control[AHEAD],
    )  # fmt: skip


def bias(steps: vec[i64], p: i64, n: i64, first: i64, last: i64, f: vec[float]) -> None:
    """y += bias for rows first..last-1 and every token."""
    for t in range(n):
        add(f, steps[p + 1] + t * steps[p + 4] + first, steps[p + 2] + first, last - first)


def zero(steps: vec[i64], p: i64, n: i64, first: i64, last: i64, f: vec[float]) -> None:
    """y = 0 for rows first..last-1 and every token."""
    for t in range(n):
        y: i64 = steps[p + 1] + t * steps[p + 3]
        for r in range(first, last):
            f[y + r] = 0.0


def glu(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, f: vec[float], fb: bytes, fi: vec[i64], scratch: i64
) -> None:
    """gate = act(gate) * up for rows first..last-1 of every token (and every chosen expert)."""
    width: i64 = steps[p + 3]
    for row in range(n * steps[p + 5]):
        at: i64 = first
        while at < last:
            count: i64 = last - at
            if count > PIECE:
                count = PIECE
            gate: i64 = steps[p + 1] + row * width + at
            up: i64 = steps[p + 2] + row * width + at
            if steps[p + 4] == GELU_TANH:
                gelu_argument(f, gate, count, scratch)
            else:
                negated(f, gate, count, scratch)
            exp_into(f, fb, fi, scratch, scratch, count, scratch + PIECE)
            gated(f, gate, up, count, scratch)
            at += PIECE


def negated(f: vec[float], x: i64, count: i64, out: i64) -> None:
    """out = -x."""
    for j in range(count):
        f[out + j] = -f[x + j]


def gated(f: vec[float], x: i64, up: i64, count: i64, e: i64) -> None:
    """x = x / (1 + e) * up: SiLU for e = exp(-x); GELU for e = exp(-2 u), since (1 + tanh u) / 2 = 1 / (1 + e)."""
    for j in range(count):
        f[x + j] = f[x + j] / (1.0 + f[e + j]) * f[up + j]


def gelu_argument(f: vec[float], x: i64, count: i64, out: i64) -> None:
    """out = -2 u with u = sqrt(2 / pi) (x + 0.044715 x^3), the argument of GELU's tanh (Hendrycks and Gimpel 2016)."""
    for j in range(count):
        v: float = f[x + j]
        f[out + j] = -1.5957691216057308 * (v + 0.044715 * v * v * v)


def softcap(
    steps: vec[i64], p: i64, n: i64, first: i64, last: i64, f: vec[float], fb: bytes, fi: vec[i64], scratch: i64
) -> None:
    """y = c tanh(y / c) = c (2 / (1 + exp(-2 y / c)) - 1) for rows first..last-1 and every token."""
    cap: float = f[steps[p + 3]]
    for t in range(n):
        at: i64 = first
        while at < last:
            count: i64 = last - at
            if count > PIECE:
                count = PIECE
            y: i64 = steps[p + 1] + t * steps[p + 2] + at
            cap_argument(f, y, count, cap, scratch)
            exp_into(f, fb, fi, scratch, scratch, count, scratch + PIECE)
            cap_values(f, y, count, cap, scratch)
            at += PIECE


def cap_argument(f: vec[float], y: i64, count: i64, cap: float, out: i64) -> None:
    """out = -2 y / c."""
    for j in range(count):
        f[out + j] = -2.0 * f[y + j] / cap


def cap_values(f: vec[float], y: i64, count: i64, cap: float, e: i64) -> None:
    """y = c (2 / (1 + e) - 1)."""
    for j in range(count):
        f[y + j] = cap * (2.0 / (1.0 + f[e + j]) - 1.0)
