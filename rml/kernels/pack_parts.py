"""The parts of a panel's block from the block as it lies in the file, for all rows, the lanes, at once.

h[t + u * lanes + e] is the stored unit u of row e; a function writes units of the panel (layout: pack.py), in the same
way. What it does to one row it does to neighbouring units too: their lanes are simply more lanes.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.kinds import part_units, unit_groups, width_of


def as_i16(bits: i32) -> i16:
    """The i16 with these 16 bits."""
    return i16(((bits & 65535) ^ 32768) - 32768)


def copy_units(h: vec[i16], t: i64, count: i64, flip: i16, panels: vec[i16], out: i64) -> None:
    """panels[out + e] = h[t + e] with the bits `flip` changed, e < count."""
    for e in range(count):
        panels[out + e] = h[t + e] ^ flip


def fold_nibbles(h: vec[i16], a: i64, b: i64, shift: i32, count: i64, panels: vec[i16], out: i64) -> None:
    """The nibbles from bit `shift` on of units a and b become the low and the high ones of a unit."""
    for e in range(count):
        low: i32 = (i32(h[a + e]) >> shift) & 3855
        high: i32 = (i32(h[b + e]) >> shift) & 3855
        panels[out + e] = i16(((low | (high << 4)) ^ 32768) - 32768)


def fold_pairs(h: vec[i16], a: i64, shift: i32, count: i64, panels: vec[i16], out: i64) -> None:
    """The bit pairs from bit `shift` on of units a, a + count, ... become the four of a unit."""
    for e in range(count):
        first: i32 = (i32(h[a + e]) >> shift) & 771
        second: i32 = (i32(h[a + count + e]) >> shift) & 771
        third: i32 = (i32(h[a + count * 2 + e]) >> shift) & 771
        fourth: i32 = (i32(h[a + count * 3 + e]) >> shift) & 771
        pairs: i32 = first | (second << 2) | (third << 4) | (fourth << 6)
        panels[out + e] = i16((pairs ^ 32768) - 32768)


def fold_singles(h: vec[i16], a: i64, shift: i32, count: i64, panels: vec[i16], out: i64) -> None:
    """The bits `shift` of units a, a + count, ... become the eight of a unit."""
    for e in range(count):
        bits: i32 = (i32(h[a + e]) >> shift) & 257
        bits |= ((i32(h[a + count + e]) >> shift) & 257) << 1
        bits |= ((i32(h[a + count * 2 + e]) >> shift) & 257) << 2
        bits |= ((i32(h[a + count * 3 + e]) >> shift) & 257) << 3
        bits |= ((i32(h[a + count * 4 + e]) >> shift) & 257) << 4
        bits |= ((i32(h[a + count * 5 + e]) >> shift) & 257) << 5
        bits |= ((i32(h[a + count * 6 + e]) >> shift) & 257) << 6
        bits |= ((i32(h[a + count * 7 + e]) >> shift) & 257) << 7
        panels[out + e] = i16((bits ^ 32768) - 32768)


def fold_fifths(h: vec[i16], a: i64, lanes: i64, first: i32, panels: vec[i16], out: i64) -> None:
    """Q5_0, Q5_1: of the 32 fifth bits in units a and a + lanes, those of positions 4 i + first and 4 i + first + 1."""
    for e in range(lanes):
        low: i32 = i32(h[a + e]) >> first
        high: i32 = i32(h[a + lanes + e]) >> first
        bits: i32 = (low & 1) | ((low >> 3) & 2) | ((low >> 6) & 4) | ((low >> 9) & 8)
        bits |= ((high & 1) << 4) | ((high << 1) & 32) | ((high >> 2) & 64) | ((high >> 5) & 128)
        low >>= 1
        high >>= 1
        bits |= ((low & 1) | ((low >> 3) & 2) | ((low >> 6) & 4) | ((low >> 9) & 8)) << 8
        bits |= (((high & 1) << 4) | ((high << 1) & 32) | ((high >> 2) & 64) | ((high >> 5) & 128)) << 8
        panels[out + e] = i16((bits ^ 32768) - 32768)


def regroup(width: i64, lanes: i64, panels: vec[i16], out: i64, h: vec[i16], t: i64) -> None:
    """The units of a part from panels[out] on, group by group: unit groups * i + j becomes one of group j.

    Its last unit comes first: a product needs it first. h[t :] is scratch, as many entries as the part has.
    """
    groups: i64 = unit_groups(width)
    if groups == 1:
        return
    size: i64 = width * 2 // groups
    for e in range(width * 2 * lanes):
        h[t + e] = panels[out + e]
    for j in range(groups):
        for i in range(size):
            copy_units(h, t + (groups * i + j) * lanes, lanes, 0, panels, out + (size * j + (i + 1) % size) * lanes)


def put_short_part(kind: i64, h: vec[i16], t: i64, lanes: i64, panels: vec[i16], out: i64, scratch: i64) -> None:
    """The only part of a block of 32 weights: nibbles, and bytes, already lie in the file as they do in a panel.

    h[scratch :] here and below: 12 * lanes entries that are overwritten.
    """
    if kind == 8:
        copy_units(h, t + lanes, lanes * 16, -32640, panels, out)  # 0x8080: q + 128
        return
    if kind < 6:
        copy_units(h, t + lanes * (kind - 1), lanes * 8, 0, panels, out)
        return
    fifths: i64 = t + lanes * (kind - 5)
    copy_units(h, fifths + lanes * 2, lanes * 8, 0, panels, out)
    fold_fifths(h, fifths, lanes, 0, panels, out + lanes * 8)
    fold_fifths(h, fifths, lanes, 2, panels, out + lanes * 9)
    regroup(5, lanes, panels, out, h, scratch)


def scales_k4(h: vec[i16], t: i64, lanes: i64, part: i64, panels: vec[i16], out: i64) -> None:
    """Q4_K, Q5_K: scale and minimum of a part, six bits each, from units t to t + 5 of a row: bytes 0 to 11.

    Parts 0 to 3: the low six bits of bytes `part` and 4 + `part`. Parts 4 to 7: the nibbles of byte 4 + `part`, and two
    bits that the bytes `part` - 4 and `part` have left above their six.
    """
    shift: i32 = i32((part & 1) * 8)
    b: i64 = t + (part >> 1) * lanes
    c: i64 = b + lanes * 2
    if part < 4:
        for e in range(lanes):
            scale: i32 = (i32(h[b + e]) >> shift) & 63
            panels[out + e] = i16(scale | (((i32(h[c + e]) >> shift) & 63) << 8))
        return
    a: i64 = b - lanes * 2
    for e in range(lanes):
        both: i32 = i32(h[c + e]) >> shift
        sc: i32 = (both & 15) | (((i32(h[a + e]) >> shift) & 192) >> 2)
        least: i32 = ((both >> 4) & 15) | (((i32(h[b + e]) >> shift) & 192) >> 2)
        panels[out + e] = i16(sc | (least << 8))


def scales_q3_k(h: vec[i16], t: i64, lanes: i64, part: i64, panels: vec[i16], out: i64) -> None:
    """The scales of both halves of a part, less 32: four bits from units t to t + 3, two above from the next two."""
    a: i64 = t + (part & 3) * lanes
    b: i64 = t + (4 + (part & 1)) * lanes
    shift: i32 = i32((part >> 2) * 4)
    above: i32 = i32((part >> 1) * 2)
    for e in range(lanes):
        v: i32 = ((i32(h[a + e]) >> shift) & 3855) | (((i32(h[b + e]) >> above) & 771) << 4)
        first: i32 = ((v & 255) - 32) & 255
        panels[out + e] = i16(first | (((v >> 8) - 32) << 8))


def put_k_parts(kind: i64, h: vec[i16], t: i64, lanes: i64, panels: vec[i16], out: i64, scratch: i64) -> None:
    """The eight parts of a block of a K type; `n` is the half of the block that a part lies in, c its place there."""
    for part in range(i64(8)):
        n: i64 = part >> 2
        c: i64 = part & 3
        to: i64 = out + lanes
        if kind == 10:
            copy_units(h, t + part * lanes, lanes, 0, panels, out)
            fold_pairs(h, t + (8 + n * 16) * lanes, i32(c * 2), lanes * 4, panels, to)
        elif kind == 11:
            scales_q3_k(h, t + 48 * lanes, lanes, part, panels, out)
            fold_pairs(h, t + (16 + n * 16) * lanes, i32(c * 2), lanes * 4, panels, to)
            fold_singles(h, t, i32(part), lanes * 2, panels, to + lanes * 4)
        elif kind == 14:
            nibbles: i64 = t + (n * 32 + (c & 1) * 16) * lanes
            copy_units(h, t + (96 + part) * lanes, lanes, 0, panels, out)
            fold_nibbles(h, nibbles, nibbles + lanes * 8, i32((c >> 1) * 4), lanes * 8, panels, to)
            fold_pairs(h, t + (64 + n * 16) * lanes, i32(c * 2), lanes * 4, panels, to + lanes * 8)
        else:
            four: i64 = t + (8 + (part >> 1) * 16) * lanes
            if kind == 13:
                four += lanes * 16
                fold_singles(h, t + lanes * 8, i32(part), lanes * 2, panels, to + lanes * 8)
            scales_k4(h, t + lanes * 2, lanes, part, panels, out)
            fold_nibbles(h, four, four + lanes * 8, i32((part & 1) * 4), lanes * 8, panels, to)
        regroup(width_of(kind), lanes, panels, to, h, scratch)
        out += part_units(kind) * lanes
