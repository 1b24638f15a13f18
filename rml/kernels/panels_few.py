"""Panels times up to three tokens, one after another: weights are unpacked on the way (panel_dot.py)."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.kinds import has_minimum, width_of
from rml.kernels.pack import PANEL
from rml.kernels.panel_blocks import factors, lacking
from rml.kernels.panel_dot import (
    dot_bytes,
    dot_fives,
    dot_nibbles,
    dot_sixes,
    dot_threes,
    dot_twos,
    middle_of,
    spread,
    start_of,
)
from rml.kernels.panel_scratch import BITS, SPREAD, SUMS, UNPACKED
from rml.kernels.panel_sums import add_short
from rml.kernels.prefetch import ask


def dot_one(
    width: i64, w: vec[u8], p: i64, lanes: i64, hu: vec[u8], k: vec[i32], sums: i64, h: vec[i16], hs: i64, asked: i64
) -> None:  # fmt: skip
    """The sums, at SUMS, of a part whose units begin at byte p, for a token whose activations are spread.

    Asks for half as many bytes as the part has, of width 8 for as many, from byte `asked` on.
    """
    middle: i32 = i32(middle_of(width))
    t: i64 = (hs + UNPACKED) * 2
    y: i64 = (hs + SPREAD) * 2
    out: i64 = hs + SUMS
    if width == 4 or width == 8:
        start: i16 = start_of(middle, k, sums, 1)
        if width == 4:
            dot_nibbles(w, p, lanes, hu, t, hu, y, h, out, start, asked)
        else:
            dot_bytes(w, p, lanes, hu, t, hu, y, h, out, start, asked)
        return
    first: i16 = start_of(middle, k, sums, 0)
    second: i16 = start_of(middle, k, sums + 1, 0)
    if width == 5:
        dot_fives(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)
    elif width == 6:
        dot_sixes(w, p, lanes, hu, t, hu, y, h, out, 0, asked)
    elif width == 3:
        dot_threes(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)
    else:
        dot_twos(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)


def few_tokens(
    kind: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, first: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[fs:] += the products of the panel at byte p and tokens [first, n): Q8_0, Q4_0, Q4_1, Q5_0, Q5_1."""
    minimum: i64 = has_minimum(kind)
    width: i64 = width_of(kind)
    middle: i32 = i32(middle_of(width))
    factor: float = lacking(wide)
    header: i64 = (1 + minimum) * lanes * 2  # bytes
    units: i64 = width * lanes * 4
    quarter: i64 = units >> 2  # dot_one asks for the two in the middle, or of width 8 for all four
    if width == 8:
        quarter = 0
    for b in range(blocks):
        ask(wb, p + ahead, header + quarter)
        factors(wide, wb, p, header >> 1, k, ks + BITS)
        p += header
        for t in range(first, n):
            g: i64 = b * xrows + t
            s: i64 = sums + g * 2
            spread(h, x + g * 16, hs + SPREAD)
            dot_one(width, w, p, lanes, hu, k, s, h, hs, p + ahead + quarter)
            ask(wb, p + ahead + quarter * 3, quarter)
            add_short(
                width, minimum, middle, h, hs + SUMS, k[s] + k[s + 1], kb, ks + BITS, f[scale + g] * factor, f,
                fs + t * PANEL, lanes,
            )  # fmt: skip
        p += units
