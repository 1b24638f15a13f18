"""The report of the determinism matrices: a line per product, and exit code 1 when a line has two hashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_cases import case

from rml.verify_determinism import Cell, Matrix
from tools import determinism_report


@pytest.mark.slow
def test_a_line_per_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinism_report, "THREADS", (1,))
    out = tmp_path / "matrix"
    model = case("llama/model-q8_0.gguf").model
    assert determinism_report.main([str(model), "--tokens", "7", "--output", str(out)]) == 0
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert [(row["model"], row["product"]) for row in rows] == [
        ("fixtures/llama/model-q8_0.gguf", "int8"),
        ("fixtures/llama/model-q8_0.gguf", "exact"),
    ]
    assert all(row["hashes"] == 1 and row["runs"] == 6 and row["tokens"] == 7 for row in rows)
    assert rows[0]["sha256"] != rows[1]["sha256"]
    assert rows[0]["sha256"][:16] in out.with_suffix(".md").read_text()


def test_two_hashes_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (Cell(1, "whole", "fresh", "aa"), Cell(2, "whole", "fresh", "bb"))
    monkeypatch.setattr(determinism_report, "determinism", lambda *_: [Matrix("int8", cells)])
    model = case("llama/hf").model
    assert determinism_report.main([str(model), "--output", str(tmp_path / "matrix")]) == 1


def test_all_toys_are_found_in_both_formats() -> None:
    toys = [determinism_report.name_of(path) for path in determinism_report.toys()]
    assert len(toys) == len(set(toys)) == 59
    for family in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3", "olmoe"):
        assert {f"fixtures/{family}/hf", f"fixtures/{family}/model.gguf"} <= set(toys)
