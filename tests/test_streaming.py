"""The reference one layer at a time: in bounded memory, and resumed after a stop to the same bits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_cases import FIXTURES, case
from tolerances import REFERENCE_ORDERED

import reference
from tools import random_gguf
from tools.resumable import ReferenceRun, continuation, saved

TOKENS = [1, 5, 9, 2, 60, 33, 8]


class Stopped(Exception):
    """What a test stops a run with."""


def stop_after(monkeypatch: pytest.MonkeyPatch, layers: int) -> None:
    """Makes the reference stop when it begins this layer."""
    whole = reference.Model._block

    def block(model: reference.Model, layer: int, *rest: object) -> object:
        if layer == layers:
            raise Stopped
        return whole(model, layer, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reference.Model, "_block", block)


@pytest.mark.parametrize("name", ["gemma3/hf", "gemma3/model.gguf", "llama-shards/model-00001-of-00002.gguf"])
def test_a_pass_goes_on_from_any_layer(name: str) -> None:
    model = reference.load(FIXTURES / name)
    states = list(model.stream(TOKENS))
    assert [state.layer for state in states] == list(range(model.config.layers + 1))
    for start in states:
        *_, last = model.stream(TOKENS, start=start)
        np.testing.assert_array_equal(last.x, states[-1].x)
    np.testing.assert_array_equal(model.logits(model.normalised(states[-1])), model.forward(TOKENS))


def test_a_state_of_other_tokens_is_refused() -> None:
    model = reference.load(FIXTURES / "llama/hf")
    state = next(model.stream(TOKENS))
    with pytest.raises(ValueError, match="not one of these tokens"):
        next(model.stream(TOKENS[1:], start=state))
    with pytest.raises(ValueError, match="before layer 3"):
        next(model.stream(TOKENS, start=reference.State(3, state.x)))


def test_a_stopped_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = case("gemma3/model.gguf").model
    whole = ReferenceRun(model, TOKENS, "whole")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Stopped):
            ReferenceRun(model, TOKENS, "stopped", tmp_path)
    kept = list(tmp_path.iterdir())
    state = saved(kept[0])
    assert len(kept) == 1
    assert state is not None
    assert state.layer == 4
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 3)  # would stop a run that begins anew
        resumed = ReferenceRun(model, TOKENS, "resumed", tmp_path)
    np.testing.assert_array_equal(resumed.states, whole.states)
    assert "goes on after 4 layers" in capsys.readouterr().err
    resumed.forget()
    assert not list(tmp_path.iterdir())


def test_what_was_saved_for_another_file_or_prompt_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "passes"
    names = set()
    for name, tokens in (("llama/model.gguf", TOKENS), ("llama/model.gguf", TOKENS[:3]), ("llama/hf", TOKENS)):
        ReferenceRun(FIXTURES / name, tokens, name, folder)
        names |= {path.name for path in folder.iterdir()}
    assert len(names) == 3


def test_rows_are_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.resumable.HEAD_ROWS", 3)
    golden = case("qwen2/hf")
    tokens, want = golden.golden()
    run = ReferenceRun(golden.model, tokens, "")
    at = [0, 7, 8, 20, 40]
    assert np.abs(np.array(list(run.rows(at))) - want[at]).max() < REFERENCE_ORDERED


@pytest.mark.parametrize("wrong", [None, 0, 2, 4])
def test_the_reference_corrects_proposals(wrong: int | None) -> None:
    path = case("qwen2/hf").model
    right = reference.load(path).greedy(TOKENS, 5)

    def propose(ids: object, count: int) -> list[int]:
        """The right tokens, but for one the first time."""
        tokens = right[len(right) - count :]
        if count == len(right) and wrong is not None:
            tokens[wrong] = (tokens[wrong] + 1) % 64
        return tokens

    run, found, margins = continuation(propose, path, TOKENS, 5, "test")
    assert found == right
    top = [np.sort(row)[-2:] for row in run.rows(range(len(TOKENS) - 1, len(TOKENS) + 4))]
    assert margins == [two[1] - two[0] for two in top]
    assert len(run.states) == len(TOKENS) + 5


# ---------------------------------------------------------------------------------------------- random models


def test_random_files_are_the_same_everywhere_and_ordinary(tmp_path: Path) -> None:
    shape = random_gguf.shape_of("tiny", 4)
    one, two, other = (tmp_path / f"{name}.gguf" for name in ("one", "two", "other"))
    said: list[int] = []
    size = random_gguf.write(one, shape, done=said.append)
    random_gguf.write(two, shape)
    random_gguf.write(other, shape, "another seed")
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    assert sum(said) == sum(tensor.nbytes for tensor in random_gguf.tensors(shape)) < size < sum(said) + 8192
    model = reference.load(one)
    assert (model.config.layers, len(model.config.rope.divisors)) == (4, 8)
    logits = model.forward(range(100, 164))
    assert 1.0 < logits.std() < 6.0
    weights = model.weights.matrix("blk.2.ffn_up.weight", 160, 64).take(slice(None))
    assert abs(weights.mean()) < 0.05 * weights.std()
    assert 0.8 < weights.std() * 64**0.5 < 1.3


def test_a_file_that_was_not_finished_does_not_look_like_a_model(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        random_gguf.write(tmp_path / "model.gguf", random_gguf.shape_of("tiny", None), done=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf.part"]


MEMORY = """
import re, sys
from pathlib import Path
import reference
from tools import random_gguf

def peak():
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", text)[1]) / 1024

base = peak()
size = random_gguf.write(Path(sys.argv[1]), random_gguf.Shape("deep", 24, 512, 6144, 8, 8, 32768, 2048, 1e4))
written = peak() - base
model = reference.load(sys.argv[1])
states = model.states(list(range(8)))
print(size / 2**20, written, peak() - base)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_memory_is_that_of_a_layer_not_of_the_model(tmp_path: Path) -> None:
    """Writing and running a model of 160 MB: neither takes half of that, mapped pages included."""
    root = str(FIXTURES.parent)
    command = [sys.executable, "-c", f"import sys; sys.path.append({root!r})\n{MEMORY}", str(tmp_path / "model.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, written, run = map(float, re.findall(r"[\d.]+", done.stdout))
    assert size > 150
    assert written < size / 2
    assert run < size / 2
