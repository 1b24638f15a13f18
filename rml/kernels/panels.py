"""Panels of quantised weights times one token of int8 activations or many.

Block by block, part by part, a panel's weights meet the 32 activations of a token, or of four at once, which have been
spread over as many rows as a vector has. For four tokens the weights are unpacked into planes before (panel_blocks.py;
of Q8_0 and Q6_K into pairs of i16, panel_bytes.py), for one on the way (panel_dot.py). A block adds to the total of an
output, in this order and in float64 (panel_sums.py, panel_sums_four.py),

    (sum of q x - offset * sum of x) * d * scale             types without a minimum
    (sum of q x * d + sum of x * m) * scale                  Q4_1, Q5_1
    (sum of sc q x * d + sum of minimum x * -dmin) * scale   Q2_K, Q4_K, Q5_K

what stands before a factor being an exact integer: the bits of a product do not depend on how many tokens or rows are
multiplied at once. Nor on how factors are written down: a power of two that they lack goes with the scale, exactly.

While a part is multiplied, bytes that lie `ahead` of it are asked for, some of them at a time; 0: those of the part
itself, for a processor that looks ahead by itself.

Scratch of a rank; a lane e is a row of the panel, t a token of those taken at once:
    h[hs :]             the planes of a part, of two panels PANEL * 16 apart, or the pairs of Q8_0, of two panels PAIRS
                        apart; at SPREAD the spread activations of up to four tokens, at SUMS their products' sums; at
                        PAIRS the pairs of Q6_K; at UNPACKED what dot_one needs
    k[ks + e]           integer scales and minima of a part (panel_blocks.part_scales); at BITS the factors of up to two
                        panels; at FOLDED the sums of a part; at BLOCK + 256 t the sums of a K type's block, 128 later
                        its minima's
    f[fs + 128 t + e]   the totals; those of a second panel TOKENS * PANEL later
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.half import TWO_112
from rml.kernels.kinds import group_of, has_minimum, offset_of, panel_units, width_of
from rml.kernels.norms import add, fill, move
from rml.kernels.pack import PANEL, lanes_of
from rml.kernels.panel_blocks import factors, part_scales, planes
from rml.kernels.panel_bytes import dot_pairs_four, pairs, repeat
from rml.kernels.panel_dot import (
    dot_bytes,
    dot_fives,
    dot_four,
    dot_nibbles,
    dot_sixes,
    dot_threes,
    dot_twos,
    middle_of,
    pairs_of,
    spread,
)
from rml.kernels.panel_sums import (
    add_block,
    add_block_with_minimum,
    add_bytes,
    add_part,
    add_short,
    scale_minima,
)
from rml.kernels.panel_sums_four import (
    add_bytes_four,
    add_four,
    scale_four,
    scale_halves_four,
    scale_threes_four,
)
from rml.kernels.prefetch import FAR, ask

TOKENS: Final = 64  # taken at once: their totals stay in the second cache
SPREAD: Final = 4096  # in h: PANEL * 32, of a part of Q8_0
SUMS: Final = 6144  # SPREAD + 4 * 512
PAIRS: Final = 8192  # SUMS + 4 * 512
UNPACKED: Final = 12288  # PAIRS + PANEL * 32
H_SCRATCH: Final = 13056  # UNPACKED + PANEL * 6
BITS: Final = 512  # in k: PANEL * 4
FOLDED: Final = 1024  # BITS + 2 * PANEL * 2
BLOCK: Final = 2048  # FOLDED + PANEL * 8
K_SCRATCH: Final = 18432  # BLOCK + TOKENS * PANEL * 2
F_SCRATCH: Final = 16384  # 2 * TOKENS * PANEL
LACKING: Final = 5.070602400912918e30  # 2^102, by which the factors of pack.py are too small


def lacking(wide: i64) -> float:
    """What the factors of a panel are to be multiplied by."""
    if wide != 0:
        return TWO_112
    return LACKING


def start_of(middle: i32, k: vec[i32], sums: i64, both: i32) -> i16:
    """What a sum of (q - middle) x begins at; the sum of the x is k[sums], both = 1: + k[sums + 1]."""
    return i16(-middle * (k[sums] + both * k[sums + 1]))


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
    first: i16 = start_of(middle, k, sums, 0)
    second: i16 = start_of(middle, k, sums + 1, 0)
    if width == 4:
        dot_nibbles(w, p, lanes, hu, t, hu, y, h, out, start_of(middle, k, sums, 1), asked)
    elif width == 5:
        dot_fives(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)
    elif width == 6:
        dot_sixes(w, p, lanes, hu, t, hu, y, h, out, 0, asked)
    elif width == 8:
        dot_bytes(w, p, lanes, hu, t, hu, y, h, out, start_of(middle, k, sums, 1), asked)
    elif width == 3:
        dot_threes(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)
    else:
        dot_twos(w, p, lanes, hu, t, hu, y, h, out, first, second, asked)


def spread_four(h: vec[i16], x: i64, x_step: i64, hs: i64) -> None:
    """The activations of four tokens, `x_step` entries of h apart, for the rows of panels."""
    for t in range(i64(4)):
        spread(h, x + t * x_step, hs + SPREAD + t * 512)


def dots_of_four(
    width: i64, middle: i32, h: vec[i16], hu: vec[u8], planes: i64, lanes: i64, k: vec[i32], sums: i64, sums_step: i64,
    hs: i64
) -> None:  # fmt: skip
    """The sums of a part whose planes begin at h[planes], for four tokens whose activations spread_four has spread."""
    pairs: i64 = pairs_of(width)
    both: i32 = i32(pairs >> 4)
    j: i64 = 0
    while j < 16:
        s: i64 = sums + (j >> 3)
        dot_four(
            h, hu, planes + j * lanes, lanes, pairs, hs + SPREAD + j * 32,
            start_of(middle, k, s, both), start_of(middle, k, s + sums_step, both),
            start_of(middle, k, s + 2 * sums_step, both), start_of(middle, k, s + 3 * sums_step, both),
            hs + SUMS + (j >> 3) * 512,
        )  # fmt: skip
        j += pairs


def repeat_four(hu: vec[u8], h: vec[i16], x: i64, x_step: i64, hs: i64) -> None:
    """The activations of four tokens, `x_step` entries of h apart, for the rows of panels in pairs of i16."""
    for t in range(i64(4)):
        repeat(hu, (x + t * x_step) * 2, h, hs + SPREAD + t * 512, hs + SUMS)


def short_panels(
    count: i64, kind: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[fs:] += the products of the panel at byte p and up to TOKENS tokens: Q4_0, Q4_1, Q5_0, Q5_1.

    count = 2: of the next panel as well, f[fs + TOKENS * PANEL :]: activations are spread once for both.
    """
    minimum: i64 = has_minimum(kind)
    width: i64 = width_of(kind)
    middle: i32 = i32(middle_of(width))
    factor: float = lacking(wide)
    header: i64 = (1 + minimum) * lanes
    share: i64 = width * lanes
    size: i64 = header * 2 + share * 4
    fours: i64 = n & -4
    for b in range(blocks):
        for c in range(count):
            at: i64 = p + (c * blocks + b) * size
            ask(wb, at + ahead, header * 2 + share)
            factors(wide, wb, at, header, k, ks + BITS + c * PANEL * 2)
            at += header * 2
            if fours != 0:
                planes(width, wb, at, lanes, h, hs + c * PANEL * 16)
                ask(wb, at + ahead + share, share * 3)
        for i in range(fours >> 2):
            g: i64 = b * xrows + i * 4
            spread_four(h, x + g * 16, 16, hs)
            for c in range(count):
                dots_of_four(width, middle, h, hu, hs + c * PANEL * 16, lanes, k, sums + g * 2, 2, hs)
                add_four(
                    width, minimum, middle, h, hs + SUMS, k, sums + g * 2, kb, ks + BITS + c * PANEL * 2, f, scale + g,
                    factor, fs + (c * TOKENS + i * 4) * PANEL, lanes,
                )  # fmt: skip
        for t in range(fours, n):
            g = b * xrows + t
            spread(h, x + g * 16, hs + SPREAD)
            for c in range(count):
                at = p + (c * blocks + b) * size + header * 2
                dot_one(width, w, at, lanes, hu, k, sums + g * 2, h, hs, at + ahead + share)
                ask(wb, at + ahead + share * 3, share)
                add_short(
                    width, minimum, middle, h, hs + SUMS, k[sums + g * 2] + k[sums + g * 2 + 1], kb,
                    ks + BITS + c * PANEL * 2, f[scale + g] * factor, f, fs + (c * TOKENS + t) * PANEL, lanes,
                )  # fmt: skip


def byte_panels(
    count: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """short_panels for Q8_0."""
    factor: float = lacking(wide)
    size: i64 = lanes * 34
    fours: i64 = n & -4
    for b in range(blocks):
        for c in range(count):
            at: i64 = p + (c * blocks + b) * size
            ask(wb, at + ahead, lanes * 2)
            factors(wide, wb, at, lanes, k, ks + BITS + c * PANEL * 2)
            at += lanes * 2
            if fours != 0:
                ask(wb, at + ahead, lanes * 32)
                pairs(w, at, lanes * 32, 128, h, hs + c * PAIRS)
        for i in range(fours >> 2):
            g: i64 = b * xrows + i * 4
            repeat_four(hu, h, x + g * 16, 16, hs)
            for c in range(count):
                dot_pairs_four(16, h, hs + c * PAIRS, lanes, hs + SPREAD, k, ks + FOLDED)
                add_bytes_four(
                    k, ks + FOLDED, kb, ks + BITS + c * PANEL * 2, f, scale + g, factor,
                    fs + (c * TOKENS + i * 4) * PANEL, lanes,
                )  # fmt: skip
        for t in range(fours, n):
            g = b * xrows + t
            back: i32 = 8 * (k[sums + g * 2] + k[sums + g * 2 + 1])
            spread(h, x + g * 16, hs + SPREAD)
            for c in range(count):
                at = p + (c * blocks + b) * size + lanes * 2
                dot_one(8, w, at, lanes, hu, k, sums + g * 2, h, hs, at + ahead)
                add_bytes(
                    h, hs + SUMS, back, kb, ks + BITS + c * PANEL * 2, f[scale + g] * factor, f,
                    fs + (c * TOKENS + t) * PANEL, lanes,
                )  # fmt: skip


def four_parts(
    width: i64, middle: i32, back: i32, h: vec[i16], hu: vec[u8], lanes: i64, x: i64, k: vec[i32], sums: i64,
    hs: i64, ks: i64, block: i64
) -> None:  # fmt: skip
    """A part of a K type's block times four tokens, added to the sums of their blocks."""
    if width == 6:
        repeat_four(hu, h, x, 128, hs)
        dot_pairs_four(8, h, hs + PAIRS, lanes, hs + SPREAD, k, ks + FOLDED)
        dot_pairs_four(8, h, hs + PAIRS + lanes * 16, lanes, hs + SPREAD + 256, k, ks + FOLDED + 512)
        scale_halves_four(k, ks + FOLDED, ks, block, lanes)
        return
    spread_four(h, x, 128, hs)
    dots_of_four(width, middle, h, hu, hs, lanes, k, sums, 16, hs)
    if width == 4 or width == 5:
        scale_four(width, middle, h, hs + SUMS, k, sums, ks, block, lanes)
    else:
        scale_threes_four(back, h, hs + SUMS, k, sums, ks, block, lanes)
    if width == 2:
        for t in range(i64(4)):
            s: i64 = sums + t * 16
            scale_minima(k, k[s], k[s + 1], ks, block + t * PANEL * 2, lanes)


def k_panel(
    kind: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """short_panels for the K types, one panel, part by part."""
    minimum: i64 = has_minimum(kind)
    width: i64 = width_of(kind)
    middle: i32 = i32(middle_of(width))
    back: i32 = middle - i32(offset_of(kind))
    factor: float = lacking(wide)
    fours: i64 = n & -4
    header: i64 = (1 + minimum) * lanes
    share: i64 = width * lanes
    for e in range(n * PANEL * 2):
        k[ks + BLOCK + e] = 0
    for b in range(blocks):
        factors(wide, wb, p, header, k, ks + BITS)
        p += header * 2
        for part in range(i64(8)):
            ask(wb, p + ahead, lanes * 2 + share)
            part_scales(kind, wb, p, lanes, k, ks)
            p += lanes * 2
            if fours != 0:
                planes(width, wb, p, lanes, h, hs)
                ask(wb, p + ahead + share, share * 3)
            if width == 6 and fours != 0:
                pairs(hu, hs * 2, lanes * 32, i16(-back), h, hs + PAIRS)
            for i in range(fours >> 2):
                g: i64 = (b * xrows + i * 4) * 8 + part
                four_parts(
                    width, middle, back, h, hu, lanes, x + g * 16, k, sums + g * 2, hs, ks,
                    ks + BLOCK + i * 4 * PANEL * 2,
                )  # fmt: skip
            for t in range(fours, n):
                g = (b * xrows + t) * 8 + part
                s: i64 = sums + g * 2
                spread(h, x + g * 16, hs + SPREAD)
                dot_one(width, w, p, lanes, hu, k, s, h, hs, p + ahead + share)
                ask(wb, p + ahead + share * 3, share)
                add_part(width, back, h, hs + SUMS, k, s, ks, ks + BLOCK + t * PANEL * 2, lanes)
            p += share * 4
        for t in range(n):
            block: i64 = ks + BLOCK + t * PANEL * 2
            by: float = f[scale + b * xrows + t] * factor
            if minimum != 0:
                add_block_with_minimum(k, block, kb, ks + BITS, by, f, fs + t * PANEL, lanes)
            else:
                add_block(k, block, kb, ks + BITS, by, f, fs + t * PANEL, lanes)


def panels_together(kind: i64, rows: i64, n: i64) -> i64:
    """How many panels, of so many rows that are left, n tokens meet at a time."""
    if kind <= 8 and n > 3 and rows >= PANEL * 2:
        return i64(2)
    return i64(1)


def multiply_some(
    count: i64, kind: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[fs + t * PANEL + e] = row e of the panel at byte p times token t, for up to TOKENS tokens.

    count = 2: of the next panel as well, TOKENS * PANEL further.
    """
    for c in range(count):
        fill(f, fs + c * TOKENS * PANEL, n * PANEL, 0.0)
    if kind == 8:
        byte_panels(
            count, wide, w, wb, p, lanes, blocks, n, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs, ahead
        )  # fmt: skip
    elif kind < 8:
        short_panels(
            count, kind, wide, w, wb, p, lanes, blocks, n, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs, ahead
        )  # fmt: skip
    else:
        k_panel(
            kind, wide, w, wb, p, lanes, blocks, n, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs, ahead
        )  # fmt: skip


def multiply_panels(
    kind: i64, wide: i64, w: vec[u8], wb: bytes, start: i64, rows: i64, first: i64, last: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    y: i64, ystride: i64, accumulate: i64, hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r times token t; layouts in matmul.product. `first` is a panel's first row."""
    values: i64 = group_of(kind) >> 1  # entries of h that a group takes
    of_sums: i64 = group_of(kind) >> 4
    for e in range(i64(SPREAD)):
        h[hs + e] = 0  # what a panel with fewer rows does not fill must be no larger than its planes
    if n > 3:
        ahead = FAR  # on every processor: a block is read at once, and then multiplied for long
    r: i64 = first
    while r < last:
        count: i64 = panels_together(kind, last - r, n)
        t: i64 = 0
        while t < n:
            tokens: i64 = n - t
            if tokens > TOKENS:
                tokens = TOKENS
            multiply_some(
                count, kind, wide, w, wb, start + r * blocks * panel_units(kind) * 2, lanes_of(rows - r), blocks,
                tokens, h, hu, x + t * values, xrows, k, kb, sums + t * of_sums, f, scale + t, hs, ks, fs, ahead,
            )  # fmt: skip
            for c in range(count):
                at: i64 = r + c * PANEL
                put_totals(
                    f, fs + c * TOKENS * PANEL, tokens, y + t * ystride + at, ystride, last - at, accumulate
                )  # fmt: skip
            t += TOKENS
        r += count * PANEL


def put_totals(f: vec[float], total: i64, tokens: i64, y: i64, ystride: i64, rows: i64, accumulate: i64) -> None:
    """f[y + t * ystride + e] (+)= the totals of a panel, of which `rows` rows are left to be multiplied."""
    count: i64 = rows
    if count > PANEL:
        count = PANEL
    for t in range(tokens):
        if accumulate != 0:
            add(f, y + t * ystride, total + t * PANEL, count)
        else:
            move(f, total + t * PANEL, y + t * ystride, count)
