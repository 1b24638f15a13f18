"""Rotary frequencies and their scaling schemes, and the cos and sin of every pair at a position.

Pair i of a head turns at inv_freq[i] = theta^(-2i / head_dim) radians per position (Su et al. 2021), so a score depends
only on the distance between two tokens. The schemes stretch the slow pairs, for positions beyond those of the training:

- linear: every frequency divided by `factor` (position interpolation, Chen et al. 2023);
- llama3: pairs with wavelengths above original / low_freq_factor slowed by `factor`, below original / high_freq_factor
  kept, blended between (transformers' `_compute_llama3_parameters`);
- yarn: a ramp between the dimensions that turn beta_fast and beta_slow times over the original context, and cos and sin
  multiplied by a magnitude (Peng et al. 2023; transformers' `_compute_yarn_parameters`).

Which dimensions form a pair (halves or neighbours) is the kernel's affair, and the same for all of these.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig, RopeConfig
from rml.errors import InvalidArgument

Floats = npt.NDArray[np.float64]


def plain_frequencies(theta: float, head_dim: int) -> Floats:
    """(head_dim / 2,) theta^(-2i / head_dim)."""
    # Python's power is correctly rounded by more C libraries than numpy's vectorised one
    return np.array([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])


def _llama3(inv: Floats, c: RopeConfig) -> Floats:
    wavelength = 2 * math.pi / inv
    original = c.original_max_position
    smooth = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor)
    blended = (1 - smooth) * inv / c.factor + smooth * inv
    slowed = np.where(wavelength > original / c.low_freq_factor, inv / c.factor, blended)
    return np.where(wavelength < original / c.high_freq_factor, inv, slowed)


def _yarn(inv: Floats, c: RopeConfig, head_dim: int) -> Floats:
    def dimension(turns: float) -> float:
        """The dimension whose pair turns that many times over the original context."""
        return head_dim * math.log(c.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(c.theta))

    low, high = dimension(c.beta_fast or 32.0), dimension(c.beta_slow or 1.0)
    if c.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    ramp: Floats = np.clip((np.arange(len(inv)) - low) / (high - low), 0, 1)
    return inv * (1 - ramp) + inv / c.factor * ramp


def _magnitude(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def attention_factor(c: RopeConfig) -> float:
    """What cos and sin are multiplied by: as given, else 1, or yarn's 0.1 ln(factor) + 1 (with its mscale pair)."""
    if c.attention_factor is not None:
        return c.attention_factor
    if c.type != "yarn":
        return 1.0
    if c.mscale and c.mscale_all_dim:
        return _magnitude(c.factor, c.mscale) / _magnitude(c.factor, c.mscale_all_dim)
    return _magnitude(c.factor, 1.0)


def frequencies(c: RopeConfig, head_dim: int, divisors: npt.ArrayLike | None = None) -> Floats:
    """(head_dim / 2,) radians per position of each pair.

    divisors: (head_dim / 2,) of a GGUF file's rope_freqs.weight, Llama 3.1's scaling computed beforehand. Raises
    InvalidArgument when they have another shape.
    """
    inv = plain_frequencies(c.theta, head_dim)
    if divisors is not None:
        by = np.asarray(divisors, np.float64)
        if by.shape != inv.shape:
            raise InvalidArgument(f"rope_freqs.weight has shape {by.shape}: expected {inv.shape}, half of head_dim")
        inv = inv / by
    if c.type == "linear":
        return inv / c.factor
    if c.type == "llama3":
        return _llama3(inv, c)
    if c.type == "yarn":
        return _yarn(inv, c, head_dim)
    return inv


class Rope:
    """The frequencies of one kind of layer; gives cos and sin at any position."""

    def __init__(self, config: ModelConfig, divisors: npt.ArrayLike | None = None) -> None:
        """The RoPE of a model's global layers (of all, unless it has rope_local_theta)."""
        self._set(config.rope, config.head_dim, divisors)

    @classmethod
    def local(cls, config: ModelConfig) -> Rope:
        """The RoPE of sliding layers with a base of their own (Gemma 3): never scaled."""
        if config.rope_local_theta is None:
            raise InvalidArgument("this model has no rope_local_theta: its sliding layers use the global RoPE")
        rope = cls.__new__(cls)
        rope._set(RopeConfig(config.rope_local_theta), config.head_dim, None)
        return rope

    def _set(self, config: RopeConfig, head_dim: int, divisors: npt.ArrayLike | None) -> None:
        self.inv_freq = frequencies(config, head_dim, divisors)
        self.attention_factor = attention_factor(config)
        self._row = np.empty_like(self.inv_freq)

    def angles(self, position: int, n: int, cosine: Floats, sine: Floats) -> None:
        """Writes cos and sin of every pair at positions position .. position + n - 1, times the attention factor.

        cosine, sine: (n, head_dim / 2), written in place. One position at a time, so that a row's bits do not depend
        on how many are asked for together; allocates nothing that lasts.
        """
        for i in range(n):
            np.multiply(self.inv_freq, float(position + i), out=self._row)
            np.cos(self._row, out=cosine[i])
            np.sin(self._row, out=sine[i])
        if self.attention_factor != 1.0:
            cosine *= self.attention_factor
            sine *= self.attention_factor
