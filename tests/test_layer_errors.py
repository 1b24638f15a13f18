"""Errors along the layers: the right order of rows, the right activation named, and what reports keep of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import case

import reference
import rml
from tools import check_goldens, real_layers
from tools.checkpoints import Checkpoint
from tools.layer_errors import Watch, histogram, histogram_row, layers_row, positions_row, tap_errors


def taps_of(name: str) -> tuple[rml.DecoderLM, list[int], dict[str, Any]]:
    """The engine, the prompt and the reference's activations of a toy."""
    toy = case(name)
    tokens, _ = toy.golden()
    taps: dict[str, Any] = {}
    reference.load(toy.model).forward(tokens, taps)
    return rml.load(toy.model, threads=1, dot="exact"), tokens, taps


@pytest.mark.parametrize("name", ["llama/model.gguf", "llama/hf", "qwen3_moe/hf", "gemma3/model.gguf", "olmoe/hf"])
def test_every_activation_is_the_references(name: str) -> None:
    """Rows of q and k too: GGUF files of the llama architecture hold them in another order."""
    model, tokens, taps = taps_of(name)
    errors = tap_errors(model, tokens, "f64", taps).errors()
    assert [error.name for error in errors] == list(taps)
    for error in errors:
        assert error.relative < 1e-10, error


def test_the_error_begins_where_the_cache_rounds() -> None:
    model, tokens, taps = taps_of("llama/model.gguf")
    errors = tap_errors(model, tokens, "f16", taps).errors()
    first = next(error for error in errors if error.relative > 1e-10)
    assert first.name == "blk.0.attn_out"
    assert 1e-5 < first.relative < 1e-2


def test_a_planted_fault_is_seen_at_its_tap() -> None:
    model, tokens, taps = taps_of("qwen3_moe/hf")
    watch = Watch(model.config, taps)

    def fault(name: str, values: Any) -> Any:
        watch(name, values)
        return values * 1.001 if name == "blk.1.ffn_norm" else None

    model.forward(tokens, model.new_cache(64, "f64"), all_logits=True, taps=fault)
    wrong = [error.name for error in watch.errors() if error.relative > 1e-10]
    assert wrong[0] == "blk.1.router_probs"  # the first that is computed from it


def test_choices_are_counted_not_measured() -> None:
    model, _, taps = taps_of("mixtral/hf")
    watch = Watch(model.config, {"blk.0.router_choice": np.array([[0.0, 1.0], [3.0, 1.0]])})
    watch("blk.0.router_choice", np.array([[0.0, 1.0]]))
    watch("blk.0.router_choice", np.array([[2.0, 1.0]]))  # a call in pieces taps each of them
    assert [(error.relative, error.worst) for error in watch.errors()] == [(0.25, 0.25)]
    with pytest.raises(ValueError, match=r"no activation 'blk\.9\.q'"):
        tap_errors(model, [1, 2], "f64", {name: value[:2] for name, value in taps.items()} | {"blk.9.q": taps["embed"]})


def test_no_number_is_the_worst_number() -> None:
    watch = Watch(case_config(), {"embed": np.ones((2, 3))})
    watch("embed", np.array([[1.0, np.nan, 1.0], [1.0, 1.0, 1.0]]))
    (error,) = watch.errors()
    assert error.worst == math.inf
    assert math.isnan(error.relative)


def case_config() -> rml.ModelConfig:
    return rml.load(case("llama/hf").model, threads=1).config


def test_rows_are_short() -> None:
    model, tokens, taps = taps_of("llama-tied/hf")
    row = layers_row(tap_errors(model, tokens, "f32", taps).errors(), case="x")
    assert row["kind"] == "layers"
    assert len(row["taps"]) == len(row["relative"]) == len(row["worst"])
    assert all(float(f"{value:.2e}") == value for value in row["relative"])
    got = np.array([[1.0, 2.0], [0.0, 5.0]])
    assert positions_row(got, got + np.array([[0.0, 0.5], [0.25, 0.25]]), case="x")["worst"] == [0.5, 0.25]


def test_histogram_counts_every_logit_in_its_half_decade() -> None:
    want = np.zeros((1, 6))
    counts = histogram(np.array([[0.0, 2e-18, 5e-10, 3e-10, 0.5, 1e9]]), want)
    row = histogram_row(counts)
    assert counts.sum() == 6
    found = {row["lowest"] + i / row["per_decade"]: n for i, n in enumerate(counts.tolist()) if n}
    assert found == {-18.0: 2, -10.0: 1, -9.5: 1, -0.5: 1, 1.5: 1}


@pytest.mark.slow
def test_check_goldens_prints_and_keeps_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_goldens.main(["llama/", "--report-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "6 passed, 0 failed"
    rows = json.loads((tmp_path / "goldens.json").read_text())["rows"]
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in ("logits", "layers", "histogram")] == [13, 13, 5]
    ways = [row["way"] for row in rows if row["kind"] == "logits" and row["case"] == "llama/model-q8_0.gguf"]
    assert ways[-1] == "int8, f32 cache"  # only where weights are quantised
    assert "llama/model.gguf" in (tmp_path / "goldens.md").read_text()
    assert check_goldens.main(["nothing", "--quiet", "--report-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "0 passed, 0 failed\n"


def test_real_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A toy in place of a checkpoint; what is missing is said."""
    toy = case("gemma3/model.gguf").model
    known = [Checkpoint("here", toy.name, ""), Checkpoint("missing", "nowhere.gguf", "a file")]
    monkeypatch.setattr(real_layers, "find", lambda _: known)
    monkeypatch.setattr(real_layers, "models_dir", lambda: toy.parent)
    monkeypatch.setattr(real_layers, "prompt_text", lambda _: "the rain in the")
    assert real_layers.main(["--report-dir", str(tmp_path)]) == 0
    assert "missing: skipped" in capsys.readouterr().out
    rows = json.loads((tmp_path / "real_layers.json").read_text())["rows"]
    assert [row["kind"] for row in rows] == ["layers", "positions", "histogram"] * 3
    assert max(rows[0]["relative"]) < 1e-12
