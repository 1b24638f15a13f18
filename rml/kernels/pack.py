"""Rows become panels: 128 rows whose blocks lie interleaved, so that vectors hold the same weights of all of them.

The file stores row after row. A panel stores block after block, and a block of all its rows in 16-bit units, unit 0 of
every row, then unit 1 of every row, ...: what a product reads lies in one piece, in the order in which it is read.

    [panel][block][unit][row]

The last panel of a matrix may have fewer rows: what the matrix leaves for it, filled up with zeros to a multiple of 32.
The units of a block of a row are its factors, d and m (Q4_1, Q5_1) or -dmin (Q2_K, Q4_K, Q5_K), and its parts of 32
positions, each of them in this order

    scale and minimum (Q4_K, Q5_K), or scales of the two halves (Q3_K, Q6_K; Q2_K: nibbles of scales, minima)
    16 units of bytes         width 8: positions 2 j and 2 j + 1
    8 units of nibbles        widths 4, 5, 6: low nibbles positions 2 j and 2 j + 1, high ones 16 positions later
    4 units of bit pairs      widths 2, 3, and 6 above the nibbles: pair c positions 8 c + 2 j and 8 c + 2 j + 1
    2 units of single bits    above the pairs (3) or nibbles (5): bit i positions 4 i + 2 j and 4 i + 2 j + 1

What belongs to two positions is a byte for each. The bytes of Q8_0 are q + 128, unsigned. Units of two sorts stand in
groups, two of widths 3 and 5, four of width 6, so that what makes integers together lies together: of the units above,
in their order, every second or fourth belongs to a group, and its last one stands first.

A factor is written down as a floating-point number of 16 bits with other limits than f16: sign, five bits of exponent
e, ten of fraction, worth (1 + fraction / 1024) * 2^(e - 25); 0 for e = 0. All f16 numbers below 128 are such numbers,
and none is a subnormal; shifted by 13 bits it is an f32 (panel_blocks.py). A model with a larger one, an infinity or a
NaN keeps all its factors in f16, which is slower.

A panel's block is first read as it lies in the file, unit by unit into the lanes of its rows; what has to change its
place within a row (pack_parts.py) then does so for all rows at once.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.kinds import factor_byte, group_of, has_minimum, panel_units, row_bytes
from rml.kernels.pack_parts import as_i16, copy_units, put_k_parts, put_short_part

PANEL: Final = 128  # rows of a panel
REGROUPED: Final = 14080  # of h: PANEL * 110, the units of the largest block
PACK_SCRATCH: Final = 15616  # REGROUPED + PANEL * 12, those of the largest part with groups


def lanes_of(rows: i64) -> i64:
    """The rows of a panel when the matrix has so many left."""
    if rows >= PANEL:
        return i64(PANEL)
    return (rows + 31) // 32 * 32


def entries_of(kind: i64, rows: i64, blocks: i64) -> i64:
    """The i16 entries that `rows` rows of `blocks` blocks take in panels: the last one filled up."""
    return (rows // PANEL * PANEL + lanes_of(rows % PANEL)) * blocks * panel_units(kind)


def factor_code(half: i64) -> i64:
    """The 16 bits that stand for the f16 with the bits `half` (see above), or -1 for one that has none."""
    fraction: i64 = half & 1023
    exponent: i64 = (half >> 10) & 31
    if exponent == 0:
        if fraction == 0:
            return half
        exponent = 1
        while fraction < 1024:
            fraction <<= 1
            exponent -= 1
        fraction -= 1024
    if exponent > 21:
        return i64(-1)
    return (half & 32768) | ((exponent + 10) << 10) | fraction


def put_factors(h: vec[i16], t: i64, lanes: i64, wide: i64, flip: i32, panels: vec[i16], out: i64) -> i64:
    """The codes of the f16 factors h[t : t + lanes], their signs changed by flip = 32768, into panels[out:].

    wide = 1: f16 as they are. Returns how many have no code.
    """
    if wide != 0:
        copy_units(h, t, lanes, as_i16(flip), panels, out)
        return i64(0)
    special: i32 = 0  # subnormals, and those without a code
    for e in range(lanes):
        half: i32 = i32(h[t + e]) & 65535
        size: i32 = half & 32767
        code: i32 = half
        if size != 0:
            code += 10240  # 10 << 10
            if size < 1024:
                special += 1
            if size > 22527:
                special += 1
        panels[out + e] = i16(((code ^ flip) & 65535 ^ 32768) - 32768)
    missing: i64 = 0
    if special != 0:
        for e in range(lanes):
            found: i64 = factor_code(i64(h[t + e]) & 65535)
            if found < 0:
                missing += 1
                found = 0
            panels[out + e] = as_i16(i32(found) ^ flip)
    return missing


def read_units(wb: bytes, p: i64, stride: i64, rows: i64, units: i64, h: vec[i16], t: i64, lanes: i64) -> None:
    """h[t + u * lanes + r] = unit u of row r, whose block is at byte p + r * stride; 0 for rows from `rows` on."""
    for r in range(rows):
        for u in range(units):
            h[t + u * lanes + r] = read_i16_le(wb, p + r * stride + u * 2)
    for r in range(rows, lanes):
        for u in range(units):
            h[t + u * lanes + r] = 0


def pack_rows(
    kind: i64, wide: i64, wb: bytes, start: i64, rows: i64, blocks: i64, h: vec[i16], hs: i64,
    panels: vec[i16], out: i64
) -> i64:  # fmt: skip
    """The panels of `rows` rows of `blocks` blocks of a type from byte `start`, from panels[out] on.

    wide = 1: factors as f16. Returns how many have no code; if there are any the panels mean nothing.
    Scratch: h[hs : hs + PACK_SCRATCH].
    """
    missing: i64 = 0
    size: i64 = row_bytes(kind, group_of(kind))
    d: i64 = factor_byte(kind) >> 1
    first: i64 = 0
    while first < rows:
        lanes: i64 = lanes_of(rows - first)
        count: i64 = rows - first
        if count > PANEL:
            count = PANEL
        for b in range(blocks):
            read_units(wb, start + (first * blocks + b) * size, blocks * size, count, size >> 1, h, hs, lanes)
            flip: i32 = 0
            to: i64 = out
            for i in range(1 + has_minimum(kind)):
                missing += put_factors(h, hs + (d + i) * lanes, lanes, wide, flip, panels, to)
                to += lanes
                if kind >= 10:
                    flip = 32768
            if kind >= 10:
                put_k_parts(kind, h, hs, lanes, panels, to, hs + REGROUPED)
            else:
                put_short_part(kind, h, hs, lanes, panels, to, hs + REGROUPED)
            out += panel_units(kind) * lanes
        first += PANEL
    return missing
