"""One row of a matrix in panels (pack.py), widened to float64: a token's row of an embedding that is the head as well.

The panel's blocks are unpacked as for a product, all rows of them, and one lane is taken: the weights are the same bits
as those of the row in the file (short_blocks.py, k_quants.py).
"""

from __future__ import annotations

from librt.strings import read_f32_le, read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.kinds import has_minimum, offset_of, panel_units, part_units, width_of
from rml.kernels.pack import PANEL, lanes_of
from rml.kernels.panel_blocks import factors, lacking, part_scales, planes
from rml.kernels.panel_scratch import BITS


def take_lane(
    h: vec[i16], unit: i64, lanes: i64, offset: i32, first: i32, second: i32, d: float, f: vec[float], out: i64
) -> None:
    """f[out + j] = (q - offset) * scale * d of 32 positions of the lane at h[unit]; a scale for each half."""
    for j in range(i64(16)):
        both: i32 = i32(h[unit + j * lanes])
        scale: i32 = first
        if j > 7:
            scale = second
        f[out + j * 2] = float(((both & 255) - offset) * scale) * d
        f[out + j * 2 + 1] = float((((both >> 8) & 255) - offset) * scale) * d


def add_minimum(f: vec[float], out: i64, count: i64, least: float) -> None:
    """f[out + j] += least."""
    for j in range(count):
        f[out + j] += least


def unpack_part(width: i64, wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of a part; those of width 8 are stored."""
    if width == 8:
        for e in range(lanes * 16):
            h[out + e] = read_i16_le(wb, p + e * 2)
    else:
        planes(width, wb, p, lanes, h, out)


def widen_panel_row(
    kind: i64, wide: i64, wb: bytes, start: i64, rows: i64, row: i64, blocks: i64, h: vec[i16], hs: i64,
    k: vec[i32], kb: bytes, ks: i64, f: vec[float], out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of row `row` of the `rows` in panels from byte `start`. Scratch as in panels.py."""
    panel: i64 = row // PANEL * PANEL
    lanes: i64 = lanes_of(rows - panel)
    e: i64 = row - panel
    p: i64 = start + panel * blocks * panel_units(kind) * 2
    minimum: i64 = has_minimum(kind)
    parts: i64 = 1
    scaled: i64 = 0
    if kind >= 10:
        parts = 8
        scaled = 1
    for b in range(blocks):
        factors(wide, wb, p, (1 + minimum) * lanes, k, ks + BITS)
        d: float = read_f32_le(kb, (ks + BITS + e) * 4) * lacking(wide)
        m: float = 0.0
        if minimum != 0:
            m = read_f32_le(kb, (ks + BITS + lanes + e) * 4) * lacking(wide)
        p += (1 + minimum) * lanes * 2
        for part in range(parts):
            first: i32 = 1
            second: i32 = 1
            if scaled != 0:
                part_scales(kind, wb, p, lanes, k, ks)
                first = k[ks + e]
                second = k[ks + lanes + e]
                if kind == 12 or kind == 13:
                    second = first
            unpack_part(width_of(kind), wb, p + scaled * lanes * 2, lanes, h, hs)
            take_lane(h, hs + e, lanes, i32(offset_of(kind)), first, second, d, f, out)
            if minimum != 0:
                if scaled == 0:
                    add_minimum(f, out, 32, m)
                elif kind == 10:
                    add_minimum(f, out, 16, float(k[ks + lanes * 2 + e]) * m)
                    add_minimum(f, out + 16, 16, float(k[ks + lanes * 3 + e]) * m)
                else:
                    add_minimum(f, out, 32, float(k[ks + lanes * 2 + e]) * m)
            p += part_units(kind) * lanes * 2
            out += 32
