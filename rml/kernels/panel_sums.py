"""From the sums that panel_dot.py forms in 16 bits to the totals of a product: the numbers of panels, lane by lane.

h[sums + e] is the sum over all positions of a part (widths 4 and 8) or over the first 16, h[sums + 512 + e] that over
the last 16; of integers wider than 5 bits h[sums + PANEL + e] is the sum of what is left of them. Factors are read as
the f32 whose bits are at entry d + e of kb, and `lanes` later those of minima; `scale` is the activations', times what
the factors lack.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.fma import fma
from rml.kernels.pack import PANEL


def add_nibbles(
    h: vec[i16], sums: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:  # fmt: skip
    """total += sum * d * scale: Q4_0."""
    for e in range(lanes):
        f[total + e] = fma(float(i32(h[sums + e])) * read_f32_le(kb, (d + e) * 4), scale, f[total + e])


def add_fives(
    h: vec[i16], sums: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:  # fmt: skip
    """The same of both halves: Q5_0."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + i32(h[sums + 512 + e])
        f[total + e] = fma(float(sum_of) * read_f32_le(kb, (d + e) * 4), scale, f[total + e])


def add_bytes(
    h: vec[i16], sums: i64, back: i32, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:  # fmt: skip
    """The same of low nibbles and of high ones, which count 16 times, + back: Q8_0."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + i32(h[sums + PANEL + e]) * 16 + back
        f[total + e] = fma(float(sum_of) * read_f32_le(kb, (d + e) * 4), scale, f[total + e])


def add_nibbles_with_minimum(
    h: vec[i16], sums: i64, back: i32, x: float, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += ((sum + back) * d + x * m) * scale; x is the sum of the activations: Q4_1."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + back
        least: float = x * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] = fma(fma(float(sum_of), read_f32_le(kb, (d + e) * 4), least), scale, f[total + e])


def add_fives_with_minimum(
    h: vec[i16], sums: i64, back: i32, x: float, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """The same of both halves: Q5_1."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + i32(h[sums + 512 + e]) + back
        least: float = x * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] = fma(fma(float(sum_of), read_f32_le(kb, (d + e) * 4), least), scale, f[total + e])


def add_short(
    width: i64, minimum: i64, middle: i32, h: vec[i16], sums: i64, x: i32, kb: bytes, d: i64, scale: float,
    f: vec[float], total: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a block of 32 positions into the totals: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1."""
    if width == 8:
        add_bytes(h, sums, middle * x, kb, d, scale, f, total, lanes)
    elif width == 4 and minimum == 0:
        add_nibbles(h, sums, kb, d, scale, f, total, lanes)
    elif width == 4:
        add_nibbles_with_minimum(h, sums, middle * x, float(x), kb, d, scale, f, total, lanes)
    elif minimum == 0:
        add_fives(h, sums, kb, d, scale, f, total, lanes)
    else:
        add_fives_with_minimum(h, sums, middle * x, float(x), kb, d, scale, f, total, lanes)


def scale_nibbles(h: vec[i16], sums: i64, back: i32, k: vec[i32], scales: i64, block: i64, lanes: i64) -> None:
    """block += (sum + back) * scale: Q4_K."""
    for e in range(lanes):
        k[block + e] += (i32(h[sums + e]) + back) * k[scales + e]


def scale_fives(h: vec[i16], sums: i64, back: i32, k: vec[i32], scales: i64, block: i64, lanes: i64) -> None:
    """The same of both halves, which have one scale: Q5_K."""
    for e in range(lanes):
        k[block + e] += (i32(h[sums + e]) + i32(h[sums + 512 + e]) + back) * k[scales + e]


def scale_minimum(k: vec[i32], x: i32, scales: i64, block: i64, lanes: i64) -> None:
    """block, PANEL later, += the minimum times the sum of the activations: Q4_K, Q5_K."""
    for e in range(lanes):
        k[block + PANEL + e] += x * k[scales + lanes * 2 + e]


def scale_halves(
    h: vec[i16], sums: i64, first: i32, second: i32, k: vec[i32], scales: i64, block: i64, lanes: i64
) -> None:  # fmt: skip
    """block += (sum + first) * scale of the first 16 positions, and (sum + second) * scale of the last: Q2_K, Q3_K."""
    for e in range(lanes):
        half: i32 = (i32(h[sums + e]) + first) * k[scales + e]
        k[block + e] += half + (i32(h[sums + 512 + e]) + second) * k[scales + lanes + e]


def scale_sixes(
    h: vec[i16], sums: i64, first: i32, second: i32, k: vec[i32], scales: i64, block: i64, lanes: i64
) -> None:  # fmt: skip
    """scale_halves of low nibbles and of what is left, which counts 16 times: Q6_K."""
    for e in range(lanes):
        low: i32 = i32(h[sums + e]) + i32(h[sums + PANEL + e]) * 16 + first
        top: i32 = i32(h[sums + 512 + e]) + i32(h[sums + 512 + PANEL + e]) * 16 + second
        k[block + e] += low * k[scales + e] + top * k[scales + lanes + e]


def scale_minima(k: vec[i32], first: i32, second: i32, scales: i64, block: i64, lanes: i64) -> None:
    """block, PANEL later, += the minima of both halves times the sums of their activations."""
    for e in range(lanes):
        k[block + PANEL + e] += first * k[scales + lanes * 2 + e] + second * k[scales + lanes * 3 + e]


def add_part(
    width: i64, back: i32, h: vec[i16], sums: i64, k: vec[i32], x: i64, scales: i64, block: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a part of a K type's block into those of the block; k[x], k[x + 1] are sums of the activations.

    `back` is what the sums lack for each of the activations, middle - offset.
    """
    whole: i32 = k[x] + k[x + 1]
    if width == 4:
        scale_nibbles(h, sums, back * whole, k, scales, block, lanes)
        scale_minimum(k, whole, scales, block, lanes)
    elif width == 5:
        scale_fives(h, sums, back * whole, k, scales, block, lanes)
        scale_minimum(k, whole, scales, block, lanes)
    elif width == 6:
        scale_sixes(h, sums, back * k[x], back * k[x + 1], k, scales, block, lanes)
    else:
        scale_halves(h, sums, back * k[x], back * k[x + 1], k, scales, block, lanes)
        if width == 2:
            scale_minima(k, k[x], k[x + 1], scales, block, lanes)


def add_block(k: vec[i32], block: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64) -> None:
    """total += sum * d * scale; the sum becomes 0."""
    for e in range(lanes):
        f[total + e] = fma(float(k[block + e]) * read_f32_le(kb, (d + e) * 4), scale, f[total + e])
    for e in range(lanes):
        k[block + e] = 0


def add_block_with_minimum(
    k: vec[i32], block: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum * d + the minima's sum * m) * scale; the sums become 0."""
    for e in range(lanes):
        least: float = float(k[block + PANEL + e]) * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] = fma(fma(float(k[block + e]), read_f32_le(kb, (d + e) * 4), least), scale, f[total + e])
    for e in range(lanes):
        k[block + e] = 0
        k[block + PANEL + e] = 0
