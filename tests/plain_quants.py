"""The quantised formats as their definitions read (ggml-common.h, gguf-py's quants.py), weight by weight, in Python.

Written from the definitions and not from the kernels: the three kernel paths are tested against this.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rounded_once import fma


class Block(NamedTuple):
    """weight[j] = d * integers[j] + m * minima[j * len(minima) // len(integers)]; without minima d * integers[j]."""

    integers: list[int]
    d: float
    m: float = 0.0
    minima: tuple[int, ...] = ()


def f16(raw: bytes, at: int) -> float:
    """The f16 at byte `at`."""
    value: float = struct.unpack_from("<e", raw, at)[0]
    return value


def _nibbles(raw: bytes) -> list[int]:
    return [b & 15 for b in raw] + [b >> 4 for b in raw]


def _fifth_bits(raw: bytes) -> list[int]:
    word = int.from_bytes(raw, "little")
    return [word >> j & 1 for j in range(32)]


def _k4_scales(raw: bytes) -> tuple[list[int], list[int]]:
    """Eight 6-bit scales and eight minima in 12 bytes (get_scale_min_k4)."""
    scales, minima = [], []
    for j in range(8):
        if j < 4:
            scales.append(raw[j] & 63)
            minima.append(raw[j + 4] & 63)
        else:
            scales.append((raw[j + 4] & 15) | (raw[j - 4] >> 6) << 4)
            minima.append((raw[j + 4] >> 4) | (raw[j] >> 6) << 4)
    return scales, minima


def _q2_k(raw: bytes) -> Block:
    integers = []
    for j in range(256):
        n, c, i = j // 128, j % 128 // 32, j % 32
        q = raw[16 + 32 * n + i] >> 2 * c & 3
        integers.append(q * (raw[j // 16] & 15))
    return Block(integers, f16(raw, 80), -f16(raw, 82), tuple(b >> 4 for b in raw[:16]))


def _q3_k(raw: bytes) -> Block:
    packed, integers = raw[96:108], []
    for j in range(256):
        n, c, i, s = j // 128, j % 128 // 32, j % 32, j // 16
        q = raw[32 + 32 * n + i] >> 2 * c & 3
        if not raw[i] >> (4 * n + c) & 1:
            q -= 4
        low = packed[s] & 15 if s < 8 else packed[s - 8] >> 4
        high = packed[8 + s % 4] >> 2 * (s // 4) & 3
        integers.append(q * ((low | high << 4) - 32))
    return Block(integers, f16(raw, 108))


def _q4_k(raw: bytes) -> Block:
    scales, minima = _k4_scales(raw[4:16])
    integers = []
    for j in range(256):
        byte = raw[16 + 32 * (j // 64) + j % 32]
        integers.append((byte >> 4 if j % 64 >= 32 else byte & 15) * scales[j // 32])
    return Block(integers, f16(raw, 0), -f16(raw, 2), tuple(minima))


def _q5_k(raw: bytes) -> Block:
    scales, minima = _k4_scales(raw[4:16])
    integers = []
    for j in range(256):
        byte = raw[48 + 32 * (j // 64) + j % 32]
        nibble = byte >> 4 if j % 64 >= 32 else byte & 15
        integers.append((nibble | (raw[16 + j % 32] >> j // 32 & 1) << 4) * scales[j // 32])
    return Block(integers, f16(raw, 0), -f16(raw, 2), tuple(minima))


def _q6_k(raw: bytes) -> Block:
    integers = []
    for j in range(256):
        n, c, i = j // 128, j % 128 // 32, j % 32
        byte = raw[64 * n + 32 * (c % 2) + i]
        low = byte & 15 if c < 2 else byte >> 4
        high = raw[128 + 32 * n + i] >> 2 * c & 3
        integers.append(
            ((low | high << 4) - 32) * int.from_bytes(raw[192 + j // 16 : 193 + j // 16], "little", signed=True)
        )
    return Block(integers, f16(raw, 208))


def block(name: str, raw: bytes) -> Block:
    """The block of a format, from its bytes."""
    if name == "Q8_0":
        return Block([(b ^ 128) - 128 for b in raw[2:]], f16(raw, 0))
    if name == "Q4_0":
        return Block([q - 8 for q in _nibbles(raw[2:])], f16(raw, 0))
    if name == "Q4_1":
        return Block(_nibbles(raw[4:]), f16(raw, 0), f16(raw, 2), (1,))
    if name == "Q5_0":
        fifth = _fifth_bits(raw[2:6])
        return Block([(q | b << 4) - 16 for q, b in zip(_nibbles(raw[6:]), fifth, strict=True)], f16(raw, 0))
    if name == "Q5_1":
        fifth = _fifth_bits(raw[4:8])
        return Block(
            [q | b << 4 for q, b in zip(_nibbles(raw[8:]), fifth, strict=True)], f16(raw, 0), f16(raw, 2), (1,)
        )
    return {"Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}[name](raw)


def weights(b: Block) -> list[float]:
    """The block's weights in float64."""
    if not b.minima:
        return [b.d * q for q in b.integers]
    size = len(b.integers) // len(b.minima)
    return [b.d * q + b.m * b.minima[j // size] for j, q in enumerate(b.integers)]


def add_product(total: float, b: Block, q: list[int], scale: float) -> float:
    """The int8 product of a block: total + the block's share, in the one expression that all paths must agree on."""
    acc = sum(w * x for w, x in zip(b.integers, q, strict=True))
    if not b.minima:
        return fma(float(acc) * b.d, scale, total)
    size = len(q) // len(b.minima)
    low = sum(m * sum(q[i * size : i * size + size]) for i, m in enumerate(b.minima))
    return fma(fma(float(acc), b.d, float(low) * b.m), scale, total)


def round_group(x: list[float]) -> tuple[list[int], float]:
    """Activations of one group as int8, and their scale: round-half-even(x * (127 / max |x|)), max |x| / 127."""
    top = max(abs(v) for v in x)
    if top == 0.0:
        return [0] * len(x), 0.0
    return [round(v * (127.0 / top)) for v in x], top / 127.0
