"""What the blocks of a panel hold (layout: pack.py), unpacked for all its rows, the lanes.

The weights of 32 positions, a part, become planes of unsigned integers q: entry lanes * j + e holds q of the positions
2 j and 2 j + 1 of row e, a byte each. A plane is what is stored, shifted and masked; every shift stands by itself, for
by a constant it is one instruction for 32 units.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.half import TWO_112, bits_f16
from rml.kernels.kinds import unit_groups

LACKING: Final = 5.070602400912918e30  # 2^102, by which the factors of pack.py are too small


def nibbles(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of nibbles from byte p: width 4. Here and below they begin at h[out]."""
    count: i64 = lanes * 8
    for e in range(count):
        h[out + e] = read_i16_le(wb, p + e * 2) & 3855
    out += count
    for e in range(count):
        h[out + e] = (read_i16_le(wb, p + e * 2) >> 4) & 3855


def bit_pairs(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of bit pairs: width 2."""
    count: i64 = lanes * 4
    for e in range(count):
        v: i16 = read_i16_le(wb, p + e * 2)
        h[out + e] = v & 771
        h[out + count + e] = (v >> 2) & 771
        h[out + count * 2 + e] = (v >> 4) & 771
        h[out + count * 3 + e] = (v >> 6) & 771


def three_bits(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of bit pairs with, from the single bits before them, their third bits: width 3, a group."""
    count: i64 = lanes * 2
    one: i64 = p + count
    two: i64 = p + count * 2
    for e in range(lanes):
        v: i16 = read_i16_le(wb, p + e * 2)
        a: i16 = read_i16_le(wb, one + e * 2)
        b: i16 = read_i16_le(wb, two + e * 2)
        h[out + e] = (a & 771) | ((v & 257) << 2)
        h[out + count + e] = (b & 771) | ((v & 514) << 1)
        h[out + count * 2 + e] = ((a >> 2) & 771) | (v & 1028)
        h[out + count * 3 + e] = ((b >> 2) & 771) | ((v >> 1) & 1028)
        h[out + count * 4 + e] = ((a >> 4) & 771) | ((v >> 2) & 1028)
        h[out + count * 5 + e] = ((b >> 4) & 771) | ((v >> 3) & 1028)
        h[out + count * 6 + e] = ((a >> 6) & 771) | ((v >> 4) & 1028)
        h[out + count * 7 + e] = ((b >> 6) & 771) | ((v >> 5) & 1028)


def five_bits(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of nibbles with, from the single bits before them, their fifth bits: width 5, a group."""
    count: i64 = lanes * 2
    one: i64 = p + count
    two: i64 = p + count * 2
    three: i64 = p + count * 3
    four: i64 = p + count * 4
    for e in range(lanes):
        v: i16 = read_i16_le(wb, p + e * 2)
        a: i16 = read_i16_le(wb, one + e * 2)
        b: i16 = read_i16_le(wb, two + e * 2)
        c: i16 = read_i16_le(wb, three + e * 2)
        d: i16 = read_i16_le(wb, four + e * 2)
        h[out + e] = (a & 3855) | ((v & 257) << 4)
        h[out + count + e] = (b & 3855) | ((v & 514) << 3)
        h[out + count * 2 + e] = (c & 3855) | ((v & 1028) << 2)
        h[out + count * 3 + e] = (d & 3855) | ((v & 2056) << 1)
        h[out + count * 4 + e] = ((a >> 4) & 3855) | (v & 4112)
        h[out + count * 5 + e] = ((b >> 4) & 3855) | ((v >> 1) & 4112)
        h[out + count * 6 + e] = ((c >> 4) & 3855) | ((v >> 2) & 4112)
        h[out + count * 7 + e] = ((d >> 4) & 3855) | ((v >> 3) & 4112)


def six_bits(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of nibbles with, from the bit pairs before them, their bits 4 and 5: width 6, a group."""
    one: i64 = p + lanes * 2
    two: i64 = p + lanes * 4
    count: i64 = lanes * 4
    for e in range(lanes):
        v: i16 = read_i16_le(wb, p + e * 2)
        a: i16 = read_i16_le(wb, one + e * 2)
        b: i16 = read_i16_le(wb, two + e * 2)
        h[out + e] = (a & 3855) | ((v & 771) << 4)
        h[out + count + e] = (b & 3855) | ((v & 3084) << 2)
        h[out + count * 2 + e] = ((a >> 4) & 3855) | (v & 12336)
        h[out + count * 3 + e] = ((b >> 4) & 3855) | ((v >> 2) & 12336)


def planes(width: i64, wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """The planes of a part whose weights begin at byte p."""
    groups: i64 = unit_groups(width)
    for j in range(groups):
        group: i64 = p + j * (width * 2 // groups) * lanes * 2
        if width == 4:
            nibbles(wb, group, lanes, h, out)
        elif width == 5:
            five_bits(wb, group, lanes, h, out + j * lanes)
        elif width == 6:
            six_bits(wb, group, lanes, h, out + j * lanes)
        elif width == 3:
            three_bits(wb, group, lanes, h, out + j * lanes)
        else:
            bit_pairs(wb, group, lanes, h, out)


def part_scales(kind: i64, wb: bytes, p: i64, lanes: i64, k: vec[i32], out: i64) -> None:
    """k[out + e] = scales of the first 16 positions of a part whose unit of them is at byte p; `lanes` later those of
    the last 16, then the minima, of types that have them. Of Q4_K and Q5_K the last are the first, and not written.
    """
    if kind == 12 or kind == 13:
        for e in range(lanes):
            v: i32 = i32(read_i16_le(wb, p + e * 2))
            k[out + e] = v & 255
            k[out + lanes * 2 + e] = v >> 8
    elif kind == 10:
        for e in range(lanes):
            v = i32(read_i16_le(wb, p + e * 2))
            k[out + e] = v & 15
            k[out + lanes + e] = (v >> 8) & 15
            k[out + lanes * 2 + e] = (v >> 4) & 15
            k[out + lanes * 3 + e] = (v >> 12) & 15
    else:
        for e in range(lanes):
            v = i32(read_i16_le(wb, p + e * 2))
            k[out + e] = ((v & 255) ^ 128) - 128
            k[out + lanes + e] = v >> 8


def factor_bits(wb: bytes, p: i64, count: i64, k: vec[i32], out: i64) -> None:
    """k[out + e] = bits of an f32, the factor at byte p + 2 e times 2^-102 (see pack.py), e < count."""
    for e in range(count):
        k[out + e] = (i32(read_i16_le(wb, p + e * 2)) << 13) & -1879048193  # 0x8fffffff


def factors(wide: i64, wb: bytes, p: i64, count: i64, k: vec[i32], out: i64) -> None:
    """The bits of the factors from byte p on; wide = 1: they are f16, here times 2^-112."""
    if wide != 0:
        bits_f16(wb, p, count, k, out, 0)
    else:
        factor_bits(wb, p, count, k, out)


def lacking(wide: i64) -> float:
    """What the factors of a panel are to be multiplied by."""
    if wide != 0:
        return TWO_112
    return LACKING
