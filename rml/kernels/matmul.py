"""Matrix times vector and matrix times tokens for every stored type: the one place that looks at a format's number.

A matrix is `rows` rows of `cols` weights from byte `start` of the weights, row after row as in the file, or in panels
(pack.py). `kind` is the ggml type id. Arenas and their elements:

    w, wb   the weights as vec[u8] and as bytes, the same memory
    h, hu   i16 and u8, one memory: int8 activations, token after token, and scratch
    k, kb   i32: sums of int8 activations, and scratch; kb is the same memory as k
    f       float64: everything else; where blocks are widened f[bits] is the value of every f16, 65536 of them
    hs, ks, fs   where this rank's scratch starts in h, k and f; sizes: scratch_h, scratch_k, scratch_f
    ahead   bytes by which weights are asked for before they are read; 0: the processor sees by itself what comes

Every call computes rows first..last-1. accumulate = 0 writes y = product, 1 adds it: y = y + product.
The bits of a product do not depend on the path: one token or many, any row range, any build.

A new quantised format needs its weights in float64 from a block of the file (short_blocks.py, k_quants.py), the block's
way into a panel (pack_parts.py), its numbers in kinds.py, and its block in tests/plain_quants.py, written from the
definition; then a line in rml/formats.py. A format of a width that panel_blocks.py does not know needs planes of its
own. Integers are summed up per block, exactly; in every path a block makes the row's total fma(float(sum) * d, scale,
total). Run tests/test_kernels_quants.py, then `nox -s bench -- kernels`, and look at the machine code where it is slow:
one hot loop a function, and no calls in it.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.dense import matvec_float
from rml.kernels.exact import exact_rows, exact_scratch
from rml.kernels.kinds import group_of
from rml.kernels.panel_scratch import F_SCRATCH, H_SCRATCH, K_SCRATCH
from rml.kernels.panels import multiply_panels


def scratch_h(cols: i64) -> i64:
    """i16 scratch of one rank: planes of panels and spread activations; or a block's integers."""
    return i64(H_SCRATCH)


def scratch_k(cols: i64) -> i64:
    """i32 scratch of one rank, for the widest matrix: sums of panels, or the bits of four widened rows."""
    if cols * 4 > K_SCRATCH:
        return cols * 4
    return i64(K_SCRATCH)


def scratch_f(cols: i64, int8: i64) -> i64:
    """float64 scratch of one rank, for the widest matrix: totals of panels; int8 = 0: lanes and widened rows."""
    if int8 == 0 and exact_scratch(cols) > F_SCRATCH:
        return exact_scratch(cols)
    return i64(F_SCRATCH)


def product(
    kind: i64, int8: i64, w: vec[u8], wb: bytes, start: i64, rows: i64, first: i64, last: i64, cols: i64, n: i64,
    h: vec[i16], hu: vec[u8], hx: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], x: i64,
    scale: i64, y: i64, ystride: i64, accumulate: i64, hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r times token t, for n tokens.

    int8 = 0: token t is f[x + t * cols :], and the matrix lies row after row as in the file. int8 = 1: its `rows` rows
    lie in panels (pack.py; 2: with factors in f16), `first` is a multiple of 128, and so is `last` unless it is the
    last row; token t is what quantize.quantize_row wrote with group = group_of(kind), as one of `xrows` rows: hx, scale
    and sums are where the first group of the first token lies.
    """
    if int8 != 0:
        multiply_panels(
            kind, int8 - 1, w, wb, start, rows, first, last, cols // group_of(kind), n, h, hu, hx, xrows, k, kb, sums,
            f, scale, y, ystride, accumulate, hs, ks, fs, ahead,
        )  # fmt: skip
    elif n == 1 and group_of(kind) == 0:
        matvec_float(kind, wb, start, first, last, cols, k, kb, f, x, y, accumulate, ks, fs, ahead)
    else:
        exact_rows(
            kind, w, wb, start, first, last, cols, n, h, k, kb, f, x, y, ystride, accumulate, hs, ks, fs, ahead
        )  # fmt: skip
