"""Quantised tensors for the toys.

The 32-weight formats are quantised here, from their definitions and in float64, because gguf's quantisers change
between versions of the package and the fixtures must not. The K formats, for which gguf has no quantiser either, get
random blocks: every bit pattern of codes and scales occurs, with block scales chosen so that the weights have a useful
size.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import numpy.typing as npt

from tools.fixture_weights import raw

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# stored type: byte offsets of d and dmin, the spread of (weight / d) over random bytes, and dmin / d for a mean of zero
K_FORMATS = {
    "Q2_K": (80, 82, 14.0, 1.5),
    "Q3_K": (108, None, 43.0, 0.0),
    "Q4_K": (0, 2, 250.0, 7.5),
    "Q5_K": (0, 2, 510.0, 15.5),
    "Q6_K": (208, None, 1370.0, 0.0),
}


def half(values: Array) -> Bytes:
    """(blocks, 1) values as the bytes of float16: (blocks, 2)."""
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8)


def codes(values: Array, largest: int) -> Bytes:
    """Rounded half up, from 0 to `largest`."""
    return np.clip(np.floor(values + 0.5), 0, largest).astype(np.uint8)


def packed(q: Bytes, bits: int) -> Bytes:
    """(blocks, 32) codes of 4 or 5 bits: the fifth bits as a 32-bit word, if there are any, then the nibbles."""
    low: Bytes = (q[:, :16] & np.uint8(15)) | (q[:, 16:] << np.uint8(4))
    if bits == 4:
        return low
    return np.concatenate([np.packbits(q >> 4, axis=1, bitorder="little"), low], axis=1)


def safe(d: Array) -> Array:
    """A divisor in place of the scale of a block of zeros."""
    return np.where(d == 0.0, 1.0, d)


def q8_0(x: Array) -> Bytes:
    """w = d q: the largest size becomes 127."""
    d = np.abs(x).max(axis=1, keepdims=True) / 127.0
    return np.concatenate([half(d), np.rint(x / safe(d)).astype(np.int8).view(np.uint8)], axis=1)


def symmetric(x: Array, bits: int) -> Bytes:
    """Q4_0, Q5_0: w = d (q - 2^(bits - 1)); the weight of the largest size becomes code 0."""
    zero = 2.0 ** (bits - 1)
    d = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1) / -zero
    return np.concatenate([half(d), packed(codes(x / safe(d) + zero, int(2 * zero) - 1), bits)], axis=1)


def shifted(x: Array, bits: int) -> Bytes:
    """Q4_1, Q5_1: w = d q + m, from the smallest weight to the largest."""
    m, largest = x.min(axis=1, keepdims=True), 2**bits - 1
    d = (x.max(axis=1, keepdims=True) - m) / largest
    return np.concatenate([half(d), half(m), packed(codes((x - m) / safe(d), largest), bits)], axis=1)


BLOCK_FORMATS: dict[str, Callable[[Array], Bytes]] = {
    "Q8_0": q8_0,
    "Q4_0": lambda x: symmetric(x, 4),
    "Q4_1": lambda x: shifted(x, 4),
    "Q5_0": lambda x: symmetric(x, 5),
    "Q5_1": lambda x: shifted(x, 5),
}


def random_blocks(label: str, blocks: int, name: str, spread: float) -> Bytes:
    """(blocks, bytes) random blocks of a K format whose weights have a standard deviation of about `spread`."""
    at, at_min, size, ratio = K_FORMATS[name]
    nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    out = (raw(label, blocks * nbytes) & np.uint64(255)).astype(np.uint8).reshape(blocks, nbytes)
    wobble = 0.5 + (raw(label + " d", blocks) % np.uint64(65)).astype(np.float64) / 64.0  # 0.5 to 1.5
    d = wobble[:, None] * (spread / size)
    out[:, at : at + 2] = half(d)
    if at_min is not None:
        out[:, at_min : at_min + 2] = half(d * ratio)
    return out


def quantise(label: str, value: Array, name: str) -> Bytes:
    """(..., columns) weights to (..., bytes per row) of the stored type `name`."""
    if name == "BF16":
        upper = (np.ascontiguousarray(value, dtype=np.float32).view(np.uint32) >> 16).astype("<u2")
        return upper.view(np.uint8)
    if name in BLOCK_FORMATS:
        blocks = BLOCK_FORMATS[name](value.reshape(-1, 32))
    else:
        spread = float(np.ldexp(1.0, round(np.log2(np.abs(value).mean()))))  # a power of two: the same on every machine
        blocks = random_blocks(f"{label} {name}", value.size // 256, name, spread)
    return blocks.reshape(*value.shape[:-1], -1)
