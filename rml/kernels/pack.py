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

What belongs to two positions is a byte for each. The bytes of Q8_0 are q + 128, unsigned.

A factor is written down as a floating-point number of 16 bits with other limits than f16: sign, five bits of exponent
e, ten of fraction, worth (1 + fraction / 1024) * 2^(e - 25); 0 for e = 0. All f16 numbers below 128 are such numbers,
and none is a subnormal; shifted by 13 bits it is an f32 (panel_blocks.py). A model with a larger one, an infinity or a
NaN keeps all its factors in f16, which is slower.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.k_quants import minima_k, quants_k, scales_k
from rml.kernels.kinds import factor_byte, group_of, has_minimum, panel_units, row_bytes, width_of
from rml.kernels.short_blocks import quants_short

PANEL: Final = 128  # rows of a panel
PACK_SCRATCH: Final = 512  # of h: 256 integers, 32 scales and minima, up to 105 units
SCALES: Final = 256
UNITS: Final = 288


def as_i16(bits: i32) -> i16:
    """The i16 with these 16 bits."""
    return i16((bits ^ 32768) - 32768)


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


def put_factors(kind: i64, wide: i64, wb: bytes, p: i64, h: vec[i16], out: i64) -> i64:
    """The factors of the block at byte p into h[out:]: as f16 if wide = 1. Returns how many have no code."""
    missing: i64 = 0
    at: i64 = p + factor_byte(kind)
    flip: i64 = 0
    for i in range(1 + has_minimum(kind)):
        half: i64 = i64(read_i16_le(wb, at + i * 2)) & 65535
        code: i64 = half
        if wide == 0:
            code = factor_code(half)
            if code < 0:
                missing += 1
                code = 0
        h[out + i] = as_i16(i32(code ^ flip))
        if kind >= 10:
            flip = 32768
    return missing


def put_nibbles(h: vec[i16], q: i64, out: i64) -> None:
    """h[out : out + 8] = the low four bits of the integers h[q : q + 32]."""
    for j in range(i64(8)):
        a: i32 = (i32(h[q + j * 2]) & 15) | ((i32(h[q + j * 2 + 1]) & 15) << 8)
        b: i32 = (i32(h[q + 16 + j * 2]) & 15) | ((i32(h[q + 17 + j * 2]) & 15) << 8)
        h[out + j] = as_i16(a | (b << 4))


def put_pairs(h: vec[i16], q: i64, shift: i32, out: i64) -> None:
    """h[out : out + 4] = two bits, from bit `shift` on, of the integers h[q : q + 32]."""
    for j in range(i64(4)):
        bits: i32 = 0
        for c in range(i64(4)):
            a: i32 = (i32(h[q + c * 8 + j * 2]) >> shift) & 3
            b: i32 = (i32(h[q + c * 8 + j * 2 + 1]) >> shift) & 3
            bits |= (a | (b << 8)) << i32(c * 2)
        h[out + j] = as_i16(bits)


def put_singles(h: vec[i16], q: i64, shift: i32, out: i64) -> None:
    """h[out], h[out + 1] = bit `shift` of the integers h[q : q + 32]."""
    for j in range(i64(2)):
        bits: i32 = 0
        for i in range(i64(8)):
            a: i32 = (i32(h[q + i * 4 + j * 2]) >> shift) & 1
            b: i32 = (i32(h[q + i * 4 + j * 2 + 1]) >> shift) & 1
            bits |= (a | (b << 8)) << i32(i)
        h[out + j] = as_i16(bits)


def put_part(width: i64, h: vec[i16], q: i64, out: i64) -> None:
    """The units of the 32 integers h[q:], of `width` bits, into h[out:]."""
    if width == 8:
        for j in range(i64(16)):
            h[out + j] = as_i16(i32(h[q + j * 2]) | (i32(h[q + j * 2 + 1]) << 8))
        return
    if width < 4:
        put_pairs(h, q, 0, out)
        if width == 3:
            put_singles(h, q, 2, out + 4)
        return
    put_nibbles(h, q, out)
    if width == 5:
        put_singles(h, q, 4, out + 8)
    elif width == 6:
        put_pairs(h, q, 4, out + 8)


def scale_unit(kind: i64, h: vec[i16], scales: i64) -> i16:
    """The unit of the two scales h[scales], h[scales + 1] and, 16 entries later, the minima of a part."""
    first: i32 = i32(h[scales]) & 255
    second: i32 = i32(h[scales + 1]) & 255
    if kind == 10:
        first |= i32(h[scales + 16]) << 4
        second |= i32(h[scales + 17]) << 4
    elif kind == 12 or kind == 13:
        second = i32(h[scales + 16])
    return as_i16(first | (second << 8))


def put_block(kind: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, h: vec[i16], hs: i64) -> i64:
    """h[hs + UNITS:] = the units of the block at byte p. Returns how many of its factors have no code."""
    to: i64 = hs + UNITS
    missing: i64 = put_factors(kind, wide, wb, p, h, to)
    to += 1 + has_minimum(kind)
    width: i64 = width_of(kind)
    if kind < 10:
        quants_short(kind, w, p, h, hs)
        put_part(width, h, hs, to)
        return missing
    quants_k(kind, w, p, h, hs)
    scales_k(kind, w, wb, p, h, hs + SCALES)
    if has_minimum(kind) != 0:
        minima_k(kind, w, wb, p, h, hs + SCALES + 16)
    for part in range(i64(8)):
        h[to] = scale_unit(kind, h, hs + SCALES + part * 2)
        put_part(width, h, hs + part * 32, to + 1)
        to += 1 + width * 2
    return missing


def lanes_of(rows: i64) -> i64:
    """The rows of a panel when the matrix has so many left."""
    if rows >= PANEL:
        return i64(PANEL)
    return (rows + 31) // 32 * 32


def pack_rows(
    kind: i64, wide: i64, w: vec[u8], wb: bytes, start: i64, rows: i64, blocks: i64, h: vec[i16], hs: i64,
    panels: vec[i16], out: i64
) -> i64:  # fmt: skip
    """The panels of `rows` rows of `blocks` blocks of a type from byte `start`, from panels[out] on, which were zeros.

    wide = 1: factors as f16. Returns how many have no code; if there are any the panels mean nothing.
    Scratch: h[hs : hs + PACK_SCRATCH].
    """
    missing: i64 = 0
    units: i64 = panel_units(kind)
    size: i64 = row_bytes(kind, group_of(kind))
    first: i64 = 0
    while first < rows:
        lanes: i64 = lanes_of(rows - first)
        count: i64 = rows - first
        if count > PANEL:
            count = PANEL
        for b in range(blocks):
            for r in range(count):
                missing += put_block(kind, wide, w, wb, start + ((first + r) * blocks + b) * size, h, hs)
                for u in range(units):
                    panels[out + u * lanes + r] = h[hs + UNITS + u]
            out += units * lanes
        first += PANEL
    return missing
