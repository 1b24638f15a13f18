"""Block formats of GGUF, widened to float64 without any rounding.

Written from the definitions of the formats (ggml-common.h's structs and the comments beside them). A block stores
small integers and one or two float16 scales; the product of a float16 with the integers of these formats, and the
difference of two such products, need at most 47 bits, so a double holds the value exactly. gguf's own
dequantiser computes the same formulas in float32, which rounds where a scale and a minimum of unlike sizes meet;
`tests/test_reference_quants.py` compares the two.

Every function takes (blocks, bytes per block) uint8 and returns (blocks, weights per block) float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


class Format(NamedTuple):
    """A stored type: how many weights and bytes a block has, and how it is widened."""

    weights: int
    nbytes: int
    widen: Callable[[Bytes], Array]


def half(blocks: Bytes, at: int) -> Array:
    """The float16 at byte `at` of each block: (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float64)


def nibbles(codes: Bytes) -> Bytes:
    """(blocks, c) bytes to (blocks, 2c): all low nibbles, then all high ones (the order of the 32-weight formats)."""
    return np.concatenate([codes & 15, codes >> 4], axis=1)


def bits32(codes: Bytes) -> Bytes:
    """(blocks, 4) bytes to (blocks, 32) bits, bit j of the little-endian word first."""
    return np.unpackbits(codes, axis=1, bitorder="little")


def f32(blocks: Bytes) -> Array:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float64)


def f16(blocks: Bytes) -> Array:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float64)


def bf16(blocks: Bytes) -> Array:
    """The upper half of a float32."""
    words = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16
    return words.view(np.float32).astype(np.float64)


def q8_0(blocks: Bytes) -> Array:
    """d, 32 int8: w = d q."""
    return half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)


def q4_0(blocks: Bytes) -> Array:
    """d, 16 bytes of nibbles: w = d (q - 8)."""
    return half(blocks, 0) * (nibbles(blocks[:, 2:]).astype(np.float64) - 8.0)


def q4_1(blocks: Bytes) -> Array:
    """d, m, 16 bytes of nibbles: w = d q + m."""
    return half(blocks, 0) * nibbles(blocks[:, 4:]) + half(blocks, 2)


def q5_0(blocks: Bytes) -> Array:
    """d, 32 fifth bits, 16 bytes of nibbles: w = d (q - 16)."""
    q = nibbles(blocks[:, 6:]) + 16 * bits32(blocks[:, 2:6])
    return half(blocks, 0) * (q.astype(np.float64) - 16.0)


def q5_1(blocks: Bytes) -> Array:
    """d, m, 32 fifth bits, 16 bytes of nibbles: w = d q + m."""
    q = nibbles(blocks[:, 8:]) + 16 * bits32(blocks[:, 4:8])
    return half(blocks, 0) * q + half(blocks, 2)


def two_bits(codes: Bytes) -> Bytes:
    """(blocks, 64) bytes to (blocks, 256): each run of 32 bytes holds 4 x 32 weights, lowest bit pair first."""
    runs = codes.reshape(-1, 2, 1, 32)
    return (runs >> np.array([[0], [2], [4], [6]], np.uint8) & np.uint8(3)).reshape(-1, 256)


def groups(values: Array, size: int) -> Array:
    """(blocks, g) values to (blocks, g * size): each stands for `size` neighbouring weights."""
    return np.repeat(values, size, axis=1)


def q2_k(blocks: Bytes) -> Array:
    """16 bytes (scale | minimum << 4), 64 bytes of 2 bits, d, dmin: w = d s q - dmin m, per 16 weights."""
    scale = half(blocks, 80) * (blocks[:, :16] & 15)
    low = half(blocks, 82) * (blocks[:, :16] >> 4)
    return groups(scale, 16) * two_bits(blocks[:, 16:80]) - groups(low, 16)


def q3_k(blocks: Bytes) -> Array:
    """32 bytes of third bits, 64 of 2 bits, 12 of 6-bit scales, d: w = d (s - 32) (q - 4), per 16 weights.

    Third bits: bit p of byte c belongs to weight 32 p + c. Scales: the low nibbles of s[0..7] and s[8..15] are the
    nibbles of bytes 0..7; the upper two bits of s[4 p + c] are bits 2p and 2p + 1 of byte 8 + c.
    """
    packed = blocks[:, 96:108]
    low = nibbles(packed[:, :8])
    high = np.concatenate([(packed[:, 8:] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    scale = half(blocks, 108) * ((low | (high << 4)).astype(np.float64) - 32.0)
    third = np.concatenate([(blocks[:, :32] >> p) & 1 for p in range(8)], axis=1)
    q = (two_bits(blocks[:, 32:96]) + 4 * third).astype(np.float64) - 4.0
    return np.asarray(groups(scale, 16) * q)


def scales_and_minimums(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes to eight 6-bit scales and eight 6-bit minimums (the get_scale_min_k4 packing of Q4_K and Q5_K).

    The first four of each are the low 6 bits of bytes 0..3 and 4..7. The last four have their low nibbles in bytes
    8..11 (scale below, minimum above) and their upper two bits on top of bytes 0..3 and 4..7.
    """
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], axis=1)
    low = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], axis=1)
    return scale, low


def nibble_runs(codes: Bytes) -> Bytes:
    """(blocks, 128) bytes to (blocks, 256): each run of 32 bytes holds 32 low nibbles, then 32 high ones."""
    runs = codes.reshape(-1, 4, 1, 32)
    return (runs >> np.array([[0], [4]], np.uint8) & np.uint8(15)).reshape(-1, 256)


def q4_k(blocks: Bytes) -> Array:
    """d, dmin, 12 bytes of scales, 128 bytes of nibbles: w = d s q - dmin m, per 32 weights."""
    s, m = scales_and_minimums(blocks[:, 4:16])
    return groups(half(blocks, 0) * s, 32) * nibble_runs(blocks[:, 16:]) - groups(half(blocks, 2) * m, 32)


def q5_k(blocks: Bytes) -> Array:
    """Q4_K with 32 bytes of fifth bits before the nibbles: bit p of byte c belongs to weight 32 p + c."""
    s, m = scales_and_minimums(blocks[:, 4:16])
    fifth = np.concatenate([(blocks[:, 16:48] >> p) & 1 for p in range(8)], axis=1)
    q = nibble_runs(blocks[:, 48:]) + 16 * fifth
    return np.asarray(groups(half(blocks, 0) * s, 32) * q - groups(half(blocks, 2) * m, 32))


def q6_k(blocks: Bytes) -> Array:
    """128 bytes of nibbles, 64 bytes of upper bit pairs, 16 int8 scales, d: w = d s (q - 32), per 16 weights.

    Each half of the block (128 weights) has 64 bytes of nibbles: 64 low ones, then 64 high ones.
    """
    runs = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = (runs >> np.array([[0], [4]], np.uint8) & np.uint8(15)).reshape(-1, 256)
    q = (low | (two_bits(blocks[:, 128:192]) << 4)).astype(np.float64) - 32.0
    scale = half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return np.asarray(groups(scale, 16) * q)


FORMATS: dict[str, Format] = {
    "F32": Format(1, 4, f32),
    "F16": Format(1, 2, f16),
    "BF16": Format(1, 2, bf16),
    "Q8_0": Format(32, 34, q8_0),
    "Q4_0": Format(32, 18, q4_0),
    "Q4_1": Format(32, 20, q4_1),
    "Q5_0": Format(32, 22, q5_0),
    "Q5_1": Format(32, 24, q5_1),
    "Q2_K": Format(256, 84, q2_k),
    "Q3_K": Format(256, 110, q3_k),
    "Q4_K": Format(256, 144, q4_k),
    "Q5_K": Format(256, 176, q5_k),
    "Q6_K": Format(256, 210, q6_k),
}


def widen(rows: Bytes, name: str) -> Array:
    """(rows, bytes per row) stored bytes of type `name` to (rows, columns) float64, exactly.

    Raises KeyError for a type that is not in FORMATS.
    """
    form = FORMATS[name]
    if form.weights == 1:
        return form.widen(rows)
    return form.widen(np.ascontiguousarray(rows).reshape(-1, form.nbytes)).reshape(rows.shape[0], -1)
