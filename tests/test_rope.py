"""Rotary frequencies of every scaling scheme, angles, and the rotation in both pairings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from cache_shapes import shape
from tolerances import ROPE_FREQUENCIES

from reference.config import Rope as ReferenceRope
from reference.rope import attention_factor as reference_factor
from reference.rope import frequencies as reference_frequencies
from rml.config import RopeConfig
from rml.errors import InvalidArgument
from rml.native import buffer, kernel
from rml.rope import Rope, attention_factor, frequencies

Floats = npt.NDArray[np.float64]
LLAMA3 = RopeConfig(
    500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
)
YARN = RopeConfig(1e6, "yarn", factor=4.0, original_max_position=32768)


def same_as_reference(config: RopeConfig, dim: int) -> None:
    theirs = ReferenceRope(
        theta=config.theta, kind=config.type, factor=config.factor, low_freq_factor=config.low_freq_factor,
        high_freq_factor=config.high_freq_factor, original_max=config.original_max_position,
        beta_fast=config.beta_fast, beta_slow=config.beta_slow, truncate=config.truncate, mscale=config.mscale,
        mscale_all_dim=config.mscale_all_dim, attention_factor=config.attention_factor,
    )  # fmt: skip
    np.testing.assert_allclose(frequencies(config, dim), reference_frequencies(theirs, dim), rtol=ROPE_FREQUENCIES)
    assert attention_factor(config) == pytest.approx(reference_factor(theirs), rel=ROPE_FREQUENCIES)


@pytest.mark.parametrize("dim", [16, 80, 128])
@pytest.mark.parametrize(
    "config",
    [
        RopeConfig(10000.0),
        RopeConfig(1e6, "linear", factor=8.0),
        LLAMA3,
        replace(LLAMA3, factor=32.0),
        YARN,
        replace(YARN, truncate=False),
        replace(YARN, beta_fast=16.0, beta_slow=2.0),
        replace(YARN, original_max_position=64),
    ],
)
def test_schemes_agree_with_the_reference(config: RopeConfig, dim: int) -> None:
    same_as_reference(config, dim)


def test_default_is_powers_of_theta() -> None:
    assert frequencies(RopeConfig(10000.0), 8) == pytest.approx([1.0, 0.1, 0.01, 0.001])
    assert frequencies(RopeConfig(10000.0, "linear", factor=4.0), 8) == pytest.approx([0.25, 0.025, 0.0025, 0.00025])


def test_llama3_blends_between_the_wavelengths() -> None:
    # a theta and head_dim whose second pair has a wavelength of 4096 positions
    inv = 2 * math.pi / 4096
    config = replace(LLAMA3, theta=inv**-2.0)
    assert frequencies(config, 4)[1] == pytest.approx(2 / 3 * inv / 8 + 1 / 3 * inv)
    assert frequencies(config, 4)[1] == pytest.approx(inv / 2.4)  # what a GGUF's rope_freqs says for it
    plain = frequencies(RopeConfig(500000.0), 128)
    scaled = frequencies(LLAMA3, 128)
    wavelength = 2 * math.pi / plain
    assert np.array_equal(scaled[wavelength < 2048], plain[wavelength < 2048])
    assert np.array_equal(scaled[wavelength > 8192], plain[wavelength > 8192] / 8)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 1.138629),
        ({"attention_factor": 1.0}, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 1.0}, 1.138629),
        ({"factor": 64.0}, 1.415888),
        ({"factor": 0.5}, 1.0),
    ],
)
def test_yarn_magnitude(change: dict[str, float], expected: float) -> None:
    assert attention_factor(replace(YARN, **change)) == pytest.approx(expected, abs=5e-7)  # type: ignore[arg-type]


def test_divisors_of_a_gguf_file_equal_llama3_scaling() -> None:
    plain = RopeConfig(500000.0)
    divisors = frequencies(plain, 128) / frequencies(LLAMA3, 128)
    assert divisors.min() == 1.0
    assert divisors.max() == pytest.approx(8.0)
    np.testing.assert_allclose(frequencies(plain, 128, divisors), frequencies(LLAMA3, 128), rtol=ROPE_FREQUENCIES)
    with pytest.raises(InvalidArgument, match=r"\(3,\).*\(64,\)"):
        frequencies(plain, 128, [1.0, 2.0, 3.0])


def test_local_layers_have_their_own_base_and_are_never_scaled() -> None:
    model = replace(shape(), rope=RopeConfig(1e6, "linear", factor=8.0), rope_local_theta=10000.0)
    assert np.array_equal(Rope.local(model).inv_freq, frequencies(RopeConfig(10000.0), 16))
    assert np.array_equal(Rope(model).inv_freq, frequencies(RopeConfig(1e6), 16) / 8)
    with pytest.raises(InvalidArgument, match="rope_local_theta"):
        Rope.local(shape())


def angles(rope: Rope, position: int, n: int) -> Floats:
    table = np.zeros((n, 2 * len(rope.inv_freq)))
    rope.angles(position, n, table[:, : len(rope.inv_freq)], table[:, len(rope.inv_freq) :])
    return table


def test_angles_are_cos_and_sin_times_the_factor() -> None:
    rope = Rope(replace(shape(), rope=YARN))
    turned = np.arange(30, 35)[:, None] * rope.inv_freq
    np.testing.assert_allclose(
        angles(rope, 30, 5), np.hstack([np.cos(turned), np.sin(turned)]) * 1.1386294361119891, rtol=1e-14
    )


def test_angles_do_not_depend_on_chunks() -> None:
    rope = Rope(replace(shape(dim=80), rope=YARN))
    one_by_one = np.vstack([angles(rope, position, 1) for position in range(1000, 1040)])
    assert angles(rope, 1000, 40).tobytes() == one_by_one.tobytes()


def rotated(x: Floats, table: Floats, interleaved: bool) -> Floats:
    """The kernel on heads x (heads, dim) and one table row (dim,)."""
    f = buffer(x.size + table.size, np.float64)
    f[: x.size], f[x.size :] = x.ravel(), table
    kernel("rope.rotate")(f, 0, len(x), x.shape[1], x.size, int(interleaved))
    return f[: x.size].reshape(x.shape).copy()


@pytest.mark.parametrize("dim", [2, 16, 80, 128])
def test_rotation_in_both_pairings(dim: int) -> None:
    x = np.random.default_rng(3).standard_normal((3, dim))
    row = angles(Rope(shape(dim=dim)), 7, 1)[0]
    turn = (row[: dim // 2] + 1j * row[dim // 2 :])[None]
    halves = (x[:, : dim // 2] + 1j * x[:, dim // 2 :]) * turn
    np.testing.assert_allclose(rotated(x, row, False), np.hstack([halves.real, halves.imag]), atol=1e-15)
    pairs = (x[:, 0::2] + 1j * x[:, 1::2]) * turn
    np.testing.assert_allclose(
        rotated(x, row, True), np.stack([pairs.real, pairs.imag], -1).reshape(3, dim), atol=1e-15
    )


def test_scores_depend_on_distance_only() -> None:
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((2, 1, 64))
    rope = Rope(shape(dim=64))
    scores = [
        float((rotated(q, angles(rope, p + 5, 1)[0], True) * rotated(k, angles(rope, p, 1)[0], True)).sum())
        for p in (0, 9, 1000)
    ]
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-11)
