"""Rotary tables, after transformers' modeling_rope_utils.py and `apply_rotary_pos_emb`.

Pair i of a head is (i, i + D/2): the Hugging Face order. GGUF files of the llama architecture store permuted rows;
the reference puts those back in place when it reads them (gguf_files.py), so there is one rotation here.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from reference.config import Rope
from reference.maths import Array, Maths, log, power


def plain_frequencies(theta: float, head_dim: int) -> list[float]:
    """theta^(-2i/D) for i = 0 .. D/2 - 1."""
    return [1.0 / power(theta, Fraction(2 * i, head_dim)) for i in range(head_dim // 2)]


def llama3_frequency(inv: float, rope: Rope) -> float:
    """Long wavelengths turn `factor` times slower, short ones as before, those between are blended."""
    wavelength = 2.0 * math.pi / inv
    if wavelength < rope.original_max / rope.high_freq_factor:
        return inv
    if wavelength > rope.original_max / rope.low_freq_factor:
        return inv / rope.factor
    smooth = (rope.original_max / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return (1.0 - smooth) * inv / rope.factor + smooth * inv


def yarn_frequencies(rope: Rope, head_dim: int) -> list[float]:
    """Ramp to inv / factor between the dimensions that turn beta_fast and beta_slow times over the old context."""

    def dimension(rotations: float) -> float:
        return head_dim * log(rope.original_max / (rotations * 2.0 * math.pi)) / (2.0 * log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    out = []
    for i, inv in enumerate(plain_frequencies(rope.theta, head_dim)):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append(inv / rope.factor * ramp + inv * (1.0 - ramp))
    return out


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * mscale * log(factor) + 1.0


def attention_factor(rope: Rope) -> float:
    """What cos and sin are multiplied by."""
    if rope.kind != "yarn":
        return rope.attention_scale
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return yarn_magnitude(rope.factor, rope.mscale) / yarn_magnitude(rope.factor, rope.mscale_all_dim)
    return yarn_magnitude(rope.factor) * rope.attention_scale


def frequencies(rope: Rope, head_dim: int) -> Array:
    """Radians per position of each pair: (D/2,)."""
    if rope.kind == "yarn":
        inv = yarn_frequencies(rope, head_dim)
    else:
        inv = plain_frequencies(rope.theta, head_dim)
    if rope.kind == "linear":
        inv = [f / rope.factor for f in inv]
    elif rope.kind == "llama3":
        inv = [llama3_frequency(f, rope) for f in inv]
    if rope.divisors:
        inv = [f / c for f, c in zip(inv, rope.divisors, strict=True)]
    return np.array(inv)


def tables(rope: Rope, head_dim: int, positions: int, maths: Maths) -> tuple[Array, Array]:
    """cos and sin of every pair at positions 0 .. positions - 1: each (positions, D/2)."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies(rope, head_dim)
    m = attention_factor(rope)
    return maths.cos(angles) * m, maths.sin(angles) * m


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """x (n, heads, D): (a, b) of each pair becomes (a cos - b sin, b cos + a sin)."""
    a, b = np.split(x, 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)
