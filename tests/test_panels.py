"""Panels: factors in 16 bits of their own, pieces of any size, models whose factors need all of f16."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from golden_cases import case
from planted import Copy
from tolerances import KERNEL_PRODUCT

import rml
from rml import native, panels
from rml.decoder import DecoderLM
from rml.memory import estimate
from rml.weight_source import open_weights
from tools.kernel_case import HALF, Floats

QUANTISED = ["llama/model-q8_0.gguf", "llama-blocks/model.gguf", "llama-k/model.gguf", "mixtral/model-q8_0.gguf"]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def logits(model: DecoderLM) -> Floats:
    """(8, vocabulary)"""
    return np.array(model.forward(TOKENS, model.new_cache(8), all_logits=True))


def test_every_f16_below_128_has_a_code_and_no_other() -> None:
    code_of = native.kernel("pack.factor_code")
    codes = np.array([int(code_of(half)) for half in range(65536)])
    exponent, fraction = codes >> 10 & 31, codes & 1023
    value = np.where(exponent == 0, 0.0, (1 + fraction / 1024) * 2.0 ** (exponent - 25))
    value = np.where(codes & 32768, -value, value)
    small = np.abs(HALF) < 128
    assert np.array_equal(value[small], HALF[small])
    assert np.array_equal(np.signbit(value[small]), np.signbit(HALF[small]))
    assert (codes[~small] == -1).all()
    assert (fraction[small & (exponent == 0)] == 0).all(), "a subnormal f32 would come of it"


@pytest.mark.parametrize("name", QUANTISED)
def test_the_size_of_the_pieces_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = case(name).model
    whole = logits(rml.load(path, threads=2))
    monkeypatch.setattr(panels, "PIECE_BYTES", 1)
    assert np.array_equal(logits(rml.load(path, threads=1)), whole)


@pytest.mark.parametrize("name", QUANTISED)
def test_panels_take_what_the_estimate_says(name: str) -> None:
    model = rml.load(case(name).model, threads=1)
    memory = estimate(model.weights, 1)
    held = next(file for file in model.layers.files() if file.mapping is None and file.size >= memory.panels > 0)
    assert held.size == memory.panels + 256, "what kernels may read beyond the last panel"
    exact = estimate(model.weights, 1, exact=True)
    assert exact.panels == 0
    assert exact.weights == sum(tensor.nbytes for tensor in model.weights.tensors.values())


def with_factor(folder: Path, value: float) -> DecoderLM:
    """A toy whose head has another factor in row 5."""
    copy = Copy("llama/model-q8_0.gguf", folder / str(value))
    head = open_weights(copy.path).matrix("output.weight", 64, 32)
    with copy.path.open("r+b") as file:
        file.seek(head.offset + 5 * 34)
        file.write(struct.pack("<e", value))
    return rml.load(copy.path, threads=2)


def test_a_factor_beyond_the_codes_is_followed(tmp_path: Path) -> None:
    """The logit of its row is linear in it; all others keep their bits, though every factor is written as f16 now."""
    for name in ("0.0", "100.0", "200.0", "inf"):
        (tmp_path / name).mkdir()
    none, known, large, infinite = (with_factor(tmp_path, value) for value in (0.0, 100.0, 200.0, np.inf))
    assert [model.layers.wide_factors for model in (none, known, large, infinite)] == [False, False, True, True]
    a, b, c, d = (logits(model) for model in (none, known, large, infinite))
    others = np.arange(64) != 5
    assert np.array_equal(c[:, others], a[:, others])
    assert np.array_equal(d[:, others], a[:, others])
    expected = a[:, 5] + 2 * (b[:, 5] - a[:, 5])
    assert (np.abs(c[:, 5] - expected) <= KERNEL_PRODUCT * np.abs(b[:, 5]).max()).all()
    assert not np.isfinite(d[:, 5]).any()
