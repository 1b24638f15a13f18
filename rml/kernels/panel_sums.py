"""From the sums that panel_dot.py forms in 16 bits to the totals of a product: the numbers of panels, lane by lane.

h[sums + 128 c + e] are the sums of piece c over the first 16 positions of a part, h[sums + 512 + 128 c + e] those over
the last 16. Factors are read as the f32 whose bits are at entry d + e of kb, and `lanes` later those of minima; `scale`
is the activations', times what the factors lack.
"""

from __future__ import annotations

from librt.strings import read_f32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64

from rml.kernels.pack import PANEL


def halves(pieces: i64, h: vec[i16], sums: i64, k: vec[i32], out: i64, lanes: i64) -> None:
    """k[out + e], k[out + PANEL + e] = the sums over both halves of a part, of one piece or four."""
    if pieces == 1:
        for e in range(lanes):
            k[out + e] = i32(h[sums + e])
            k[out + PANEL + e] = i32(h[sums + 512 + e])
    else:
        for e in range(lanes):
            k[out + e] = i32(h[sums + e]) + i32(h[sums + 128 + e]) + i32(h[sums + 256 + e]) + i32(h[sums + 384 + e])
        for e in range(lanes):
            top: i32 = i32(h[sums + 512 + e]) + i32(h[sums + 640 + e])
            k[out + PANEL + e] = top + i32(h[sums + 768 + e]) + i32(h[sums + 896 + e])


def whole(pieces: i64, h: vec[i16], sums: i64, k: vec[i32], out: i64, lanes: i64) -> None:
    """k[out + e] = the sum over a part, of one or two pieces; of four (Q8_0) the last 512 entries count 16 times."""
    if pieces == 1:
        for e in range(lanes):
            k[out + e] = i32(h[sums + e]) + i32(h[sums + 512 + e])
    elif pieces == 2:
        for e in range(lanes):
            two: i32 = i32(h[sums + e]) + i32(h[sums + 512 + e])
            k[out + e] = two + i32(h[sums + 128 + e]) + i32(h[sums + 640 + e])
    else:
        for e in range(lanes):
            low: i32 = i32(h[sums + e]) + i32(h[sums + 128 + e]) + i32(h[sums + 256 + e]) + i32(h[sums + 384 + e])
            top: i32 = i32(h[sums + 512 + e]) + i32(h[sums + 640 + e]) + i32(h[sums + 768 + e])
            k[out + e] = low + (top + i32(h[sums + 896 + e])) * 16


def add_one(
    h: vec[i16], sums: i64, offset: i32, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum - offset) * d * scale, of one piece. Here and below the 16-bit sums are added up on the way."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + i32(h[sums + 512 + e]) - offset
        f[total + e] += float(sum_of) * read_f32_le(kb, (d + e) * 4) * scale


def add_two(
    h: vec[i16], sums: i64, offset: i32, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum - offset) * d * scale, of two pieces."""
    for e in range(lanes):
        first: i32 = i32(h[sums + e]) + i32(h[sums + 128 + e]) - offset
        sum_of: i32 = first + i32(h[sums + 512 + e]) + i32(h[sums + 640 + e])
        f[total + e] += float(sum_of) * read_f32_le(kb, (d + e) * 4) * scale


def add_one_with_minimum(
    h: vec[i16], sums: i64, x: float, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum * d + x * m) * scale, of one piece; x is the sum of the activations."""
    for e in range(lanes):
        sum_of: i32 = i32(h[sums + e]) + i32(h[sums + 512 + e])
        least: float = x * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] += (float(sum_of) * read_f32_le(kb, (d + e) * 4) + least) * scale


def add_two_with_minimum(
    h: vec[i16], sums: i64, x: float, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum * d + x * m) * scale, of two pieces."""
    for e in range(lanes):
        first: i32 = i32(h[sums + e]) + i32(h[sums + 128 + e])
        sum_of: i32 = first + i32(h[sums + 512 + e]) + i32(h[sums + 640 + e])
        least: float = x * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] += (float(sum_of) * read_f32_le(kb, (d + e) * 4) + least) * scale


def add_scaled(
    k: vec[i32], sums: i64, offset: i32, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum - offset) * d * scale."""
    for e in range(lanes):
        f[total + e] += float(k[sums + e] - offset) * read_f32_le(kb, (d + e) * 4) * scale


def scale_whole(k: vec[i32], sums: i64, scales: i64, x: i32, block: i64, lanes: i64) -> None:
    """block += sum * scale, and PANEL later += x * minimum: Q4_K and Q5_K. x is the sum of the activations."""
    for e in range(lanes):
        k[block + e] += k[sums + e] * k[scales + e]
    for e in range(lanes):
        k[block + PANEL + e] += x * k[scales + lanes * 2 + e]


def scale_halves(k: vec[i32], sums: i64, first: i32, second: i32, scales: i64, block: i64, lanes: i64) -> None:
    """block += (sum - first) * scale of the first 16 positions, and (sum - second) * scale of the last."""
    for e in range(lanes):
        part: i32 = (k[sums + e] - first) * k[scales + e]
        k[block + e] += part + (k[sums + PANEL + e] - second) * k[scales + lanes + e]


def scale_minima(k: vec[i32], first: i32, second: i32, scales: i64, block: i64, lanes: i64) -> None:
    """block, PANEL later, += the minima of both halves times the sums of their activations."""
    for e in range(lanes):
        k[block + PANEL + e] += first * k[scales + lanes * 2 + e] + second * k[scales + lanes * 3 + e]


def add_short(
    pieces: i64, minimum: i64, h: vec[i16], sums: i64, x: i32, offset: i32, kb: bytes, d: i64,
    scale: float, f: vec[float], total: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a block of 32 positions, of one piece or two, into the totals; x is the sum of the activations."""
    if minimum == 0:
        if pieces == 1:
            add_one(h, sums, offset * x, kb, d, scale, f, total, lanes)
        else:
            add_two(h, sums, offset * x, kb, d, scale, f, total, lanes)
    elif pieces == 1:
        add_one_with_minimum(h, sums, float(x), kb, d, scale, f, total, lanes)
    else:
        add_two_with_minimum(h, sums, float(x), kb, d, scale, f, total, lanes)


def add_part(
    width: i64, pieces: i64, h: vec[i16], sums: i64, k: vec[i32], folded: i64, x: i64, offset: i32, scales: i64,
    block: i64, lanes: i64
) -> None:  # fmt: skip
    """The sums of a part of a K type's block into those of the block; k[x], k[x + 1] are sums of the activations."""
    if width == 4 or width == 5:
        whole(pieces, h, sums, k, folded, lanes)
        scale_whole(k, folded, scales, k[x] + k[x + 1], block, lanes)
        return
    halves(pieces, h, sums, k, folded, lanes)
    scale_halves(k, folded, offset * k[x], offset * k[x + 1], scales, block, lanes)
    if width == 2:
        scale_minima(k, k[x], k[x + 1], scales, block, lanes)


def add_block(k: vec[i32], block: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64) -> None:
    """total += sum * d * scale; the sum becomes 0."""
    for e in range(lanes):
        f[total + e] += float(k[block + e]) * read_f32_le(kb, (d + e) * 4) * scale
    for e in range(lanes):
        k[block + e] = 0


def add_block_with_minimum(
    k: vec[i32], block: i64, kb: bytes, d: i64, scale: float, f: vec[float], total: i64, lanes: i64
) -> None:
    """total += (sum * d + the minima's sum * m) * scale; the sums become 0."""
    for e in range(lanes):
        least: float = float(k[block + PANEL + e]) * read_f32_le(kb, (d + lanes + e) * 4)
        f[total + e] += (float(k[block + e]) * read_f32_le(kb, (d + e) * 4) + least) * scale
    for e in range(lanes):
        k[block + e] = 0
        k[block + PANEL + e] = 0
