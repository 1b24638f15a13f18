"""Every toy model in both formats: the engine's logits against the float64 reference's, at every position."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from golden_cases import CASES, FIXTURES, MANIFEST, Case
from tolerances import ENGINE_EXACT_F32, ENGINE_EXACT_F64

import rml
from rml.kv_cache import CacheType

Logits = npt.NDArray[np.float64]
LIMITS = {"f64": ENGINE_EXACT_F64, "f32": ENGINE_EXACT_F32}
PIECES = [1, 16, 3, 15, 1, 2, 33]  # uneven: around a page of 16 and a tile of 32


def whole(model: rml.DecoderLM, tokens: list[int], cache: rml.KvCache) -> Logits:
    """The prompt in one call."""
    return model.forward(tokens, cache, all_logits=True)


def one_by_one(model: rml.DecoderLM, tokens: list[int], cache: rml.KvCache) -> Logits:
    """The prompt token by token."""
    return np.array([model.forward([token], cache) for token in tokens])


def in_pieces(model: rml.DecoderLM, tokens: list[int], cache: rml.KvCache) -> Logits:
    """The prompt in uneven calls."""
    rows, at = [], 0
    for size in PIECES:
        if at < len(tokens):
            rows.append(model.forward(tokens[at : at + size], cache, all_logits=True))
        at += size
    assert at >= len(tokens)
    return np.concatenate(rows)


FEEDS: list[Callable[[rml.DecoderLM, list[int], rml.KvCache], Logits]] = [whole, one_by_one, in_pieces]


def report(got: Logits, want: Logits) -> str:
    """Where two sets of logits differ most, both values, and how many differ."""
    error = np.abs(got - want)
    position, token = np.unravel_index(np.nanargmax(error), error.shape)
    return (
        f"worst at position {position}, token {token}: engine {got[position, token]!r}, reference "
        f"{want[position, token]!r}; first position that differs by more than 1e-9: "
        f"{next((i for i, row in enumerate(error) if row.max() > 1e-9), None)} of {len(want)}"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", list(LIMITS))
def test_exact_logits_are_the_references(case: Case, dtype: CacheType) -> None:
    tokens, want = case.golden()
    assert len(tokens) > 32, "a prompt shorter than a tile and two pages hides faults"
    assert np.abs(want).max() > 1.0, "logits near zero hide faults"
    model = rml.load(case.model, threads=1, dot="exact")
    first: Logits | None = None
    for feed in FEEDS:
        got = feed(model, tokens, model.new_cache(64, dtype))
        assert got.shape == want.shape
        assert np.isfinite(got).all()
        assert np.abs(got - want).max() < LIMITS[dtype], f"{feed.__name__}: {report(got, want)}"
        if first is not None:
            np.testing.assert_array_equal(got, first, err_msg=f"{feed.__name__} gives other bits than one call")
        first = got


def test_every_committed_fixture_is_the_one_in_the_manifest() -> None:
    hashes: dict[str, str] = MANIFEST["sha256"]
    assert len(hashes) > 100
    for name, expected in hashes.items():
        assert hashlib.sha256((FIXTURES / name).read_bytes()).hexdigest() == expected, name


def test_all_eight_families_are_there_in_both_formats() -> None:
    both = {(case.family, case.model.suffix == ".gguf") for case in CASES}
    families = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "olmoe")
    assert both == {(family, gguf) for family in families for gguf in (True, False)}
