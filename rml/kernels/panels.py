"""Panels of quantised weights times one token of int8 activations or many.

Block by block, part by part, a panel's weights meet the 32 activations of a token, or of four at once, which have been
spread over as many rows as a vector has. For four tokens the weights are unpacked into planes before (panel_blocks.py;
of Q8_0 and Q6_K into pairs of i16, panel_bytes.py), for one on the way (panel_dot.py). A block adds to the total of an
output, in this order and in float64 (panel_sums.py, panel_sums_four.py),

    (sum of q x - offset * sum of x) * d * scale             types without a minimum
    (sum of q x * d + sum of x * m) * scale                  Q4_1, Q5_1
    (sum of sc q x * d + sum of minimum x * -dmin) * scale   Q2_K, Q4_K, Q5_K

what stands before a factor being an exact integer: the bits of a product do not depend on how many tokens or rows are
multiplied at once. The last product of a term is added without being rounded first, and so is `* d` to what it stands
beside (fma.py). Nor do the bits depend on how factors are written down: a power of two that they lack goes with the
scale, exactly.

While a part is multiplied, bytes that lie `ahead` of it are asked for, some of them at a time; 0: those of the part
itself, for a processor that looks ahead by itself.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.kinds import group_of, has_minimum, offset_of, panel_units, width_of
from rml.kernels.norms import add, fill, move
from rml.kernels.pack import PANEL, lanes_of
from rml.kernels.panel_blocks import factors, lacking, part_scales, planes
from rml.kernels.panel_bytes import dot_pairs_four, pairs, repeat
from rml.kernels.panel_dot import dot_four, middle_of, pairs_of, spread, start_of
from rml.kernels.panel_scratch import BITS, BLOCK, FOLDED, PAIRS, SPREAD, SUMS, TOKENS
from rml.kernels.panel_sums import add_block, add_block_with_minimum, add_part, scale_minima
from rml.kernels.panel_sums_four import (
    add_bytes_four,
    add_four,
    scale_four,
    scale_halves_four,
    scale_threes_four,
)
from rml.kernels.panels_few import dot_one, few_tokens
from rml.kernels.prefetch import FAR, ask


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
    """f[fs:] += the products of the panel at byte p and n tokens, a multiple of four: Q4_0, Q4_1, Q5_0, Q5_1.

    count = 2: of the next panel as well, f[fs + TOKENS * PANEL :]: activations are spread once for both.
    """
    minimum: i64 = has_minimum(kind)
    width: i64 = width_of(kind)
    middle: i32 = i32(middle_of(width))
    factor: float = lacking(wide)
    header: i64 = (1 + minimum) * lanes
    share: i64 = width * lanes
    size: i64 = header * 2 + share * 4
    for b in range(blocks):
        for c in range(count):
            at: i64 = p + (c * blocks + b) * size
            ask(wb, at + ahead, header * 2 + share)
            factors(wide, wb, at, header, k, ks + BITS + c * PANEL * 2)
            at += header * 2
            planes(width, wb, at, lanes, h, hs + c * PANEL * 16)
            ask(wb, at + ahead + share, share * 3)
        for i in range(n >> 2):
            g: i64 = b * xrows + i * 4
            spread_four(h, x + g * 16, 16, hs)
            for c in range(count):
                dots_of_four(width, middle, h, hu, hs + c * PANEL * 16, lanes, k, sums + g * 2, 2, hs)
                add_four(
                    width, minimum, middle, h, hs + SUMS, k, sums + g * 2, kb, ks + BITS + c * PANEL * 2, f, scale + g,
                    factor, fs + (c * TOKENS + i * 4) * PANEL, lanes,
                )  # fmt: skip


def byte_panels(
    count: i64, wide: i64, w: vec[u8], wb: bytes, p: i64, lanes: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """short_panels for Q8_0."""
    factor: float = lacking(wide)
    size: i64 = lanes * 34
    for b in range(blocks):
        for c in range(count):
            at: i64 = p + (c * blocks + b) * size
            ask(wb, at + ahead, lanes * 2)
            factors(wide, wb, at, lanes, k, ks + BITS + c * PANEL * 2)
            at += lanes * 2
            ask(wb, at + ahead, lanes * 32)
            pairs(w, at, lanes * 32, 128, h, hs + c * PAIRS)
        for i in range(n >> 2):
            g: i64 = b * xrows + i * 4
            repeat_four(hu, h, x + g * 16, 16, hs)
            for c in range(count):
                dot_pairs_four(16, h, hs + c * PAIRS, lanes, hs + SPREAD, k, ks + FOLDED)
                add_bytes_four(
                    k, ks + FOLDED, kb, ks + BITS + c * PANEL * 2, f, scale + g, factor,
                    fs + (c * TOKENS + i * 4) * PANEL, lanes,
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
    fours: i64 = n & -4
    if kind >= 10:
        k_panel(
            kind, wide, w, wb, p, lanes, blocks, n, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs, ahead
        )  # fmt: skip
        return
    if fours > 0 and kind == 8:
        byte_panels(
            count, wide, w, wb, p, lanes, blocks, fours, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs, ahead
        )  # fmt: skip
    elif fours > 0:
        short_panels(
            count, kind, wide, w, wb, p, lanes, blocks, fours, h, hu, x, xrows, k, kb, sums, f, scale, hs, ks, fs,
            ahead,
        )  # fmt: skip
    if fours == n:
        return
    for c in range(count):
        few_tokens(
            kind, wide, w, wb, p + c * blocks * panel_units(kind) * lanes * 2, lanes, blocks, fours, n, h, hu, x, xrows,
            k, kb, sums, f, scale, hs, ks, fs + c * TOKENS * PANEL, ahead,
        )  # fmt: skip



def multiply_panels(
    kind: i64, wide: i64, w: vec[u8], wb: bytes, start: i64, rows: i64, first: i64, last: i64, blocks: i64, n: i64,
    h: vec[i16], hu: vec[u8], x: i64, xrows: i64, k: vec[i32], kb: bytes, sums: i64, f: vec[float], scale: i64,
    y: i64, ystride: i64, accumulate: i64, hs: i64, ks: i64, fs: i64, ahead: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r times token t; layouts in matmul.product. `first` is a panel's first row."""
    values: i64 = group_of(kind) >> 1  # entries of h that a group takes
    of_sums: i64 = group_of(kind) >> 4
    if n > 3:
        ahead = FAR  # on every processor: a block is read at once, and then multiplied for long
        for e in range(i64(SPREAD)):
            h[hs + e] = 0  # what a panel with fewer rows does not fill must be no larger than its planes
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
