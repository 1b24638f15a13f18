"""What the crosscheck concludes from two sets of logits; its peers are not needed here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tools import crosscheck
from tools.crosscheck import LLAMA_CPP_DIFFERS, against_llama_cpp, compare, divergence, line, markdown, worst

ZEROS = np.zeros((20, 4))


def with_error(position: int, size: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    out = np.zeros((20, 4))
    out[position, 3] = size
    return out


def test_worst_names_the_place_and_finds_nan() -> None:
    assert worst(ZEROS, with_error(7, -0.5)) == (0.5, "position 7, token 3")
    error, where = worst(with_error(2, np.nan), with_error(7, -0.5))
    assert (np.isnan(error), where) == (True, "position 2, token 3")
    assert compare("m", "w", with_error(2, np.nan), ZEROS, 1.0).passed is False


def test_a_peer_within_the_limit_passes() -> None:
    assert against_llama_cpp("llama/model.gguf", "w", ZEROS, with_error(3, 9e-4), "llama").passed is True
    assert against_llama_cpp("llama/model.gguf", "w", ZEROS, with_error(3, 2e-3), "llama").passed is False
    assert against_llama_cpp("gemma3/model.gguf", "w", ZEROS, with_error(3, 2e-3), "gemma3_text").passed is True


def test_a_refusal_needs_a_reason() -> None:
    assert against_llama_cpp("llama/model.gguf", "w", ZEROS, None, "llama").passed is False
    row = against_llama_cpp("olmoe/model.gguf", "w", ZEROS, None, "olmoe")
    assert row.passed is True
    assert "key/value heads" in row.note


@pytest.mark.parametrize(
    ("position", "size", "passed", "note"),
    [
        (11, 1.0, True, "expected, equal up to position 10: llama.cpp has no sliding window"),
        (10, 1.0, False, "the first 11 positions differ too"),
        (11, 1e-4, False, "agrees although this was noted"),
    ],
)
def test_a_window_differs_from_its_length_on(position: int, size: float, passed: bool, note: str) -> None:
    row = against_llama_cpp("mistral/model.gguf", "w", ZEROS, with_error(position, size), "mistral")
    assert row.passed is passed
    assert row.note.startswith(note)


def test_divergence() -> None:
    """p = (1/2, 1/2) and q = (3/4, 1/4), whatever is added to the logits: ln 2 - ln 3 / 2."""
    p, q = np.array([[5.0, 5.0]]), np.array([[np.log(3.0) - 2.0, -2.0]])
    assert divergence(p, q) == pytest.approx(np.log(2.0) - np.log(3.0) / 2.0)
    assert divergence(q, q) == 0.0


def test_table_rows() -> None:
    row = compare("llama/hf", "reference, transformers", ZEROS, with_error(1, 2.0), 1e-10)
    assert line(row).split()[0] == "FAIL"
    assert "| llama/hf | reference, transformers | 2.0e+00 | 1e-10 | position 1, token 3 | **failed** |  |" in markdown(
        [row], "head"
    )


def test_reasons_are_for_toys_that_exist() -> None:
    manifest = json.loads((Path(crosscheck.FIXTURES) / "MANIFEST.json").read_text(encoding="utf-8"))
    files = {case["model"].split("/")[0] for case in manifest["cases"] if case["model"].endswith(".gguf")}
    assert set(LLAMA_CPP_DIFFERS) <= files
