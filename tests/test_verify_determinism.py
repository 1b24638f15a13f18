"""`rml verify determinism`: one hash per product on healthy models, and exit code 1 when a single bit differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from golden_cases import case

import rml
from rml import cli, verify_determinism
from rml.verify_determinism import FEEDINGS, determinism, pieces, run_cell
from rml.verify_text import random_ids

IDS = random_ids(64, 70)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dots", "threads"),
    [
        ("llama/model-q8_0.gguf", ("int8", "exact"), (1, 3)),
        ("llama-k/model.gguf", ("int8", "exact"), (1,)),
        ("gemma3/hf", ("exact",), (1,)),
    ],
)
def test_every_way_of_running_gives_the_same_bits(name: str, dots: tuple[str, ...], threads: tuple[int, ...]) -> None:
    found = determinism(case(name).model, IDS[:40], threads)
    assert tuple(matrix.dot for matrix in found) == dots
    for matrix in found:
        assert len(matrix.cells) == len(threads) * 3 * 2
        assert len(matrix.hashes) == 1, matrix
    assert len({matrix.hashes[0] for matrix in found}) == len(dots), "int8 and exact products differ"


def test_what_is_not_deterministic_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose long calls end in another last bit of one logit."""

    def load_ranks(path: Path, ranks: int, dot: str) -> rml.DecoderLM:
        model = rml.load(path, threads=ranks, dot=dot)
        forward = model.forward

        def rounded(tokens: list[int], cache: rml.KvCache, out: Any, **options: Any) -> Any:
            forward(tokens, cache, out=out, **options)
            if len(tokens) > 32:
                out[3, 5] = np.nextafter(out[3, 5], np.inf)

        model.forward = rounded  # type: ignore[method-assign, assignment]
        return model

    monkeypatch.setattr(verify_determinism, "load_ranks", load_ranks)
    (matrix,) = determinism(case("gemma3/hf").model, IDS, threads=(1,))
    assert len(matrix.hashes) > 1
    steps = {cell.sha256 for cell in matrix.cells if cell.feeding == "one by one"}
    assert len(steps) == 1, "single tokens are not touched"


@pytest.mark.parametrize("feeding", FEEDINGS)
def test_pieces_add_up_and_differ(feeding: str) -> None:
    sizes = list(pieces(70, feeding))
    assert sum(sizes) == 70
    assert len(set(sizes)) == (6 if feeding == "uneven" else 1)


def test_a_reused_cache_has_held_another_prompt() -> None:
    """The run before fills the whole cache, shares a third of the prompt and nothing after it."""
    model = rml.load(case("llama/hf").model, threads=1)
    calls: list[tuple[int, list[int]]] = []
    forward = model.forward

    def spy(tokens: list[int], cache: rml.KvCache, **options: Any) -> Any:
        calls.append((cache.size, list(tokens)))
        return forward(tokens, cache, **options)

    model.forward = spy  # type: ignore[method-assign, assignment]
    out = np.empty((70, 64))
    fresh = run_cell(model, IDS, "whole", model.new_cache(70), False, out)
    assert run_cell(model, IDS, "whole", model.new_cache(70), True, out) == fresh
    first, (_, other), (start, rest) = calls
    assert first == (0, IDS)
    assert (start, rest) == (23, IDS[23:])
    assert (len(other), other[:23]) == (70, IDS[:23])
    assert other[23] != IDS[23]


def run(*arguments: object) -> Any:
    return CliRunner().invoke(cli.main, ["verify", "determinism", *map(str, arguments)])


def test_the_command_prints_a_matrix_and_says_well() -> None:
    result = run(case("llama/model-q8_0.gguf").model, "--tokens", 20, "--threads", 1)
    assert result.exit_code == 0, result.output
    assert "21 tokens (the first 20 of the built-in text), cache f32" in result.stdout
    assert result.stdout.count("6 runs: the same bits in every run") == 2
    assert "exact: SHA-256" in result.stdout


@pytest.mark.parametrize("feeding", ["one by one", "uneven"])
def test_one_different_bit_is_found_and_is_an_error(feeding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Callable[..., str] = run_cell

    def faulty(model: Any, tokens: Any, way: str, cache: Any, reused: bool, out: Any) -> str:
        found = honest(model, tokens, way, cache, reused, out)
        return found if way != feeding or reused else found[:-1] + ("1" if found[-1] == "0" else "0")

    monkeypatch.setattr(verify_determinism, "run_cell", faulty)
    result = run(case("llama/hf").model, "--ids", "1,2,3,4,5", "--threads", 1, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["deterministic"]
    (product,) = report["products"]
    assert (product["dot"], len(product["hashes"])) == ("exact", 2)
    odd = [cell for cell in product["cells"] if cell["sha256"] == product["hashes"][1]]
    assert [(cell["feeding"], cell["cache"]) for cell in odd] == [(feeding, "fresh")]


def test_too_short_a_prompt_is_refused() -> None:
    result = run(case("llama/hf").model, "--ids", "1,2")
    assert (result.exit_code, "at least 3" in result.stderr) == (1, True)


def test_text_and_ids_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("some words")
    result = run(case("llama/hf").model, "--ids", "1,2,3", "--text", tmp_path / "t.txt")
    assert result.exit_code == 2
