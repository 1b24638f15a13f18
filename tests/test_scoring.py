"""Logits reduced to their largest entries, and the memory estimate against what a run allocates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rml
from rml.memory import estimate
from rml.scoring import LogitsFile, largest, reduce_row, score

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50), st.integers(1, 60))
def test_largest_is_a_stable_sort(values: list[int], count: int) -> None:
    logits = np.array(values, dtype=np.float64)
    assert largest(logits, count).tolist() == np.argsort(-logits, kind="stable")[:count].tolist()


def test_reduced_rows_keep_probabilities() -> None:
    logits = np.array([700.0, 701.0, -1e9, 699.5])
    row = reduce_row(3, logits, 2)
    assert (row.index, row.ids, row.values) == (3, [1, 0], [701.0, 700.0])
    probabilities = np.exp(logits - row.log_sum_exp)
    assert abs(probabilities.sum() - 1) < 1e-13


def test_scores_are_the_forward_passs_and_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rml.scoring.TOKENS_AT_ONCE", 64)
    model = rml.load(FIXTURES / "llama/model.gguf")
    tokens = [1 + i % 60 for i in range(150)]
    expected = model.forward(tokens, model.new_cache(150), all_logits=True)
    watched: list[int] = []
    with LogitsFile(tmp_path / "out.npy", 150, 64) as file:
        rows = score(model, tokens, on_rows=file.write, on_tokens=watched.append)
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected)
    assert [row.index for row in rows] == list(range(150))
    assert [row.ids[0] for row in rows] == expected.argmax(1).tolist()
    assert watched == [64, 64, 22]
    last = score(model, tokens, all_positions=False)
    assert [(row.index, row.values) for row in last] == [(149, rows[-1].values)]


@pytest.mark.parametrize("dot", ["int8", "exact"])
@pytest.mark.parametrize(
    "path", ["llama/model-q8_0.gguf", "llama/model.gguf", "gemma3/model.gguf", "qwen3_moe/hf", "llama-k/model.gguf"]
)
def test_the_workspace_is_estimated_within_five_percent(path: str, dot: str) -> None:
    model = rml.load(FIXTURES / path, threads=2, dot=dot)
    cache = model.new_cache(40)
    model.forward([1] * 5, cache)
    engine = model.engine
    used = sum(array.nbytes for array in (engine.f, engine.h, engine.k, engine.ids, engine.program))
    memory = estimate(model.weights, 2, tokens=5, exact=dot == "exact")
    assert abs(memory.workspace - used) < 0.05 * used
    in_panels = model.layers.head.file.data.nbytes if dot == "int8" and model.layers.head.file.mapping is None else 0
    assert memory.panels <= in_panels <= memory.panels + 1024
    assert memory.cache_bytes("f32", 40) == cache.arena.nbytes
