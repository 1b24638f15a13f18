"""Weights of every stored type in float64."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.dense import widen_float
from rml.kernels.k_quants import widen_k
from rml.kernels.kinds import group_of
from rml.kernels.short_blocks import widen_q4_0, widen_q4_1, widen_q5, widen_q8_0


def widen(
    kind: i64, w: vec[u8], wb: bytes, start: i64, count: i64, h: vec[i16], hs: i64, k: vec[i32], kb: bytes, ks: i64,
    f: vec[float], out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of `count` weights (whole blocks) from byte `start`, in float64: an embedding row, say.

    Scratch: k[ks : ks + count] for f16 and bf16, h[hs : hs + 288].
    """
    if group_of(kind) == 0:
        widen_float(kind, wb, start, count, k, kb, ks, f, out)
    elif kind == 8:
        widen_q8_0(w, start, count >> 5, f, out)
    elif kind == 2:
        widen_q4_0(w, start, count >> 5, f, out)
    elif kind == 3:
        widen_q4_1(w, start, count >> 5, f, out)
    elif kind == 6 or kind == 7:
        widen_q5(w, start, count >> 5, kind - 6, h, hs, f, out)
    else:
        widen_k(kind, w, wb, start, count >> 8, h, hs, f, out)
