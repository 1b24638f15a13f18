"""What the stored types, by ggml's numbers, have in common and what not: sizes, scales, ranges of their integers."""

from __future__ import annotations

from mypy_extensions import i64


def group_of(kind: i64) -> i64:
    """Positions that share one activation scale: 32, 256 for the K types, 0 for unquantised types."""
    if kind == 0 or kind == 1 or kind == 30:
        return i64(0)
    if kind >= 10:
        return i64(256)
    return i64(32)


def row_bytes(kind: i64, cols: i64) -> i64:
    """Bytes of one row of `cols` weights; 0 for a type without kernels."""
    if kind == 0:
        return cols * 4
    if kind == 1 or kind == 30:
        return cols * 2
    if kind == 2:
        return (cols >> 5) * 18
    if kind == 3:
        return (cols >> 5) * 20
    if kind == 6:
        return (cols >> 5) * 22
    if kind == 7:
        return (cols >> 5) * 24
    if kind == 8:
        return (cols >> 5) * 34
    if kind == 10:
        return (cols >> 8) * 84
    if kind == 11:
        return (cols >> 8) * 110
    if kind == 12:
        return (cols >> 8) * 144
    if kind == 13:
        return (cols >> 8) * 176
    if kind == 14:
        return (cols >> 8) * 210
    return i64(0)


def factor_byte(kind: i64) -> i64:
    """The byte of a block in the file that d begins at; where there is a minimum, m or dmin follows it."""
    if kind == 10:
        return i64(80)
    if kind == 11:
        return i64(108)
    if kind == 14:
        return i64(208)
    return i64(0)


def width_of(kind: i64) -> i64:
    """Bits of a quantised type's unsigned integers q."""
    if kind == 8:
        return i64(8)
    if kind == 14:
        return i64(6)
    if kind == 6 or kind == 7 or kind == 13:
        return i64(5)
    if kind == 11:
        return i64(3)
    if kind == 10:
        return i64(2)
    return i64(4)


def unit_groups(width: i64) -> i64:
    """In how many groups the units of a part stand: those that make integers together lie together."""
    if width == 3 or width == 5:
        return i64(2)
    if width == 6:
        return i64(4)
    return i64(1)


def part_units(kind: i64) -> i64:
    """16-bit units that 32 weights of a row take in a panel: their bits and, of the K types, their scales."""
    if kind >= 10:
        return width_of(kind) * 2 + 1
    return width_of(kind) * 2


def panel_units(kind: i64) -> i64:
    """16-bit units that a block of a row takes in a panel: factors and parts."""
    if kind >= 10:
        return 1 + has_minimum(kind) + part_units(kind) * 8
    return 1 + has_minimum(kind) + part_units(kind)


def offset_of(kind: i64) -> i64:
    """By how much q is larger than the integer that d (or d times a scale) multiplies."""
    if kind == 8:
        return i64(128)
    if kind == 14:
        return i64(32)
    if kind == 6:
        return i64(16)
    if kind == 2:
        return i64(8)
    if kind == 11:
        return i64(4)
    return i64(0)


def has_minimum(kind: i64) -> i64:
    """1 for the types with a minimum beside the scale: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K."""
    if kind == 3 or kind == 7 or kind == 10 or kind == 12 or kind == 13:
        return i64(1)
    return i64(0)
