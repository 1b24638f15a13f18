"""Quantised tensors for the toys.

The 32-weight formats are quantised by the gguf package. It has no quantiser for the K formats, so there the stored
bytes are random: every bit pattern of codes and scales occurs, with block scales chosen so that the weights have a
useful size.
"""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt

from tools.fixture_weights import raw

Bytes = npt.NDArray[np.uint8]

# stored type: byte offsets of d and dmin, the spread of (weight / d) over random bytes, and dmin / d for a mean
# near zero
K_FORMATS = {
    "Q2_K": (80, 82, 14.0, 1.5),
    "Q3_K": (108, None, 43.0, 0.0),
    "Q4_K": (0, 2, 250.0, 7.5),
    "Q5_K": (0, 2, 510.0, 15.5),
    "Q6_K": (208, None, 1370.0, 0.0),
}


def random_blocks(label: str, blocks: int, kind: gguf.GGMLQuantizationType, spread: float) -> Bytes:
    """(blocks, bytes) random blocks whose weights have a standard deviation of about `spread`."""
    at, at_min, size, ratio = K_FORMATS[kind.name]
    nbytes = gguf.GGML_QUANT_SIZES[kind][1]
    out = (raw(label, blocks * nbytes) & np.uint64(255)).astype(np.uint8).reshape(blocks, nbytes)
    wobble = 0.5 + (raw(label + " d", blocks) % np.uint64(65)).astype(np.float64) / 64.0  # 0.5 to 1.5
    d = wobble * (spread / size)
    out[:, at : at + 2] = d.astype("<f2")[:, None].view(np.uint8)
    if at_min is not None:
        out[:, at_min : at_min + 2] = (d * ratio).astype("<f2")[:, None].view(np.uint8)
    return out


def quantise(name: str, value: npt.NDArray[np.float64], kind: gguf.GGMLQuantizationType) -> Bytes:
    """(..., columns) weights to (..., bytes per row) of `kind`."""
    if kind.name not in K_FORMATS:
        return np.asarray(gguf.quantize(value.astype(np.float32), kind)).view(np.uint8)
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_blocks(f"{name} {kind.name}", value.size // block, kind, float(np.sqrt(np.mean(value * value))))
    return blocks.reshape(*value.shape[:-1], value.shape[-1] // block * nbytes)
