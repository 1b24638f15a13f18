"""`rml verify kld` and `record`: against all logits at once, against the reference, and in bounded memory."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from golden_cases import case

import rml
from rml import cli
from rml.errors import BadFile, InvalidArgument
from rml.kv_cache import CacheType
from rml.verify_kld import Comparison, EngineSource, RecordedSource, Scoring, compare, record
from rml.verify_record import MAGIC, Full, NotFinite, log_softmax
from rml.verify_text import random_ids
from tools import verify_reference

MODEL = case("llama/model-q8_0.gguf").model
TOKENS = tuple(random_ids(64, 75))
SCORING = Scoring(TOKENS, window=32, skip=3, bos=1, source="test")


def source(dot: str, cache: CacheType = "f32") -> EngineSource:
    return EngineSource(rml.load(MODEL, threads=1, dot=dot), f"toy ({dot})", cache)


def all_log_p(dot: str, window: list[int]) -> Any:
    """Log-probabilities from all logits at once."""
    model = rml.load(MODEL, threads=1, dot=dot)
    logits = model.forward(window, model.new_cache(64), all_logits=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def test_windows_and_what_is_scored() -> None:
    windows = SCORING.windows()
    assert [len(window) for window in windows] == [32, 32, 14]
    assert all(window[0] == 1 for window in windows)
    assert tuple(token for window in windows for token in window[1:]) == TOKENS
    assert SCORING.positions == 28 + 28 + 10
    assert "3 of up to 32, each begins with BOS (1); scored: positions 3 to 30" in str(SCORING)
    whole = Scoring(TOKENS, window=100)
    assert (whole.windows(), whole.positions) == ([list(TOKENS)], 74)
    assert len(Scoring(TOKENS[:36], window=32, skip=3, bos=1).windows()) == 2, "5 tokens after BOS: two are scored"
    assert len(Scoring(TOKENS[:34], window=32, skip=3, bos=1).windows()) == 1, "a rest with nothing to score"


@pytest.mark.parametrize("options", [{"window": 4, "skip": 3}, {"window": 2, "bos": 1}, {"window": 8, "skip": -1}])
def test_protocols_that_score_nothing_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        Scoring(TOKENS, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="too few"):
        Scoring(TOKENS[:1])


def test_the_stream_is_the_definition() -> None:
    found = compare(source("exact"), source("int8"), SCORING)
    kl, loss_a, loss_b, best_a, at = [], [], [], [], []
    for index, window in enumerate(SCORING.windows()):
        a, b = all_log_p("exact", window), all_log_p("int8", window)
        for position in range(3, len(window) - 1):
            kl.append((np.exp(a[position]) * (a[position] - b[position])).sum())
            loss_a.append(-a[position, window[position + 1]])
            loss_b.append(-b[position, window[position + 1]])
            best_a.append(int(a[position].argmax()))
            at.append((index, position))
    assert found.at == at
    assert found.best_a == best_a
    for got, want in ((found.kl, kl), (found.loss_a, loss_a), (found.loss_b, loss_b)):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    summary = found.summary()
    assert summary["positions"] == SCORING.positions
    assert math.isclose(summary["kl_mean"], float(np.mean(kl)), rel_tol=1e-12)
    assert summary["kl_bound"] == 0
    assert math.isclose(summary["perplexity_b"], math.exp(np.mean(loss_b)), rel_tol=1e-12)
    assert [found.kl[i] for i in found.worst(4)] == sorted(found.kl, reverse=True)[:4]
    assert 0 < summary["kl_mean"] < 0.01


def test_a_model_does_not_differ_from_itself() -> None:
    found = compare(source("exact"), source("exact"), SCORING)
    assert set(found.kl) == {0.0}
    assert found.summary()["same_top"] == 1.0


@pytest.mark.parametrize(("tail", "top"), [(0.3, 64), (0.0, 64), (0.1, 7)])
def test_a_recorded_run_is_within_its_bound(tmp_path: Path, tail: float, top: int) -> None:
    path = tmp_path / "a.kld"
    kept = record(source("exact"), SCORING, path, tail, top)
    assert SCORING.positions <= kept <= top * SCORING.positions
    direct = compare(source("exact"), source("int8"), SCORING)
    stored = compare(RecordedSource(path), source("int8"), SCORING)
    for truth, value, bound in zip(direct.kl, stored.kl, stored.bound, strict=True):
        assert abs(truth - value) <= bound + 1e-12
    assert abs(direct.summary()["kl_mean"] - stored.summary()["kl_mean"]) <= stored.summary()["kl_bound"] + 1e-12
    assert stored.summary()["perplexity_a"] == direct.summary()["perplexity_a"]
    assert stored.best_a == direct.best_a
    if tail == 0.0:
        assert max(stored.bound) < 1e-5


def test_the_reference_agrees_with_exact_products() -> None:
    """The same words from the reference: nothing left of the divergence, and int8's is the one against `exact`."""
    reference = verify_reference.ReferenceSource(MODEL)
    exact = compare(reference, source("exact", "f64"), SCORING)
    assert max(np.abs(exact.kl)) < 1e-9
    int8 = compare(verify_reference.ReferenceSource(MODEL), source("int8"), SCORING)
    want = compare(source("exact", "f64"), source("int8"), SCORING)
    np.testing.assert_allclose(int8.kl, want.kl, rtol=0, atol=1e-9)


class Fake:
    """Distributions over a large vocabulary, without a model."""

    def __init__(self, vocab: int, seed: int) -> None:
        self.name, self.vocab = "fake", vocab
        self._random = np.random.default_rng(seed)

    def distributions(self, window: Sequence[int], skip: int) -> Iterator[Full]:
        for _ in range(len(window) - 1 - skip):
            yield log_softmax(self._random.normal(0, 3, self.vocab), self.name)


def test_memory_grows_with_the_vocabulary_and_not_with_the_text() -> None:
    vocab, peaks = 20_000, []
    for count in (50, 400):
        scoring = Scoring(tuple([1] * count))
        tracemalloc.start()
        compare(Fake(vocab, 1), Fake(vocab, 2), scoring)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 10 * 8 * vocab, "ten rows"
    assert peaks[1] - peaks[0] < 350 * 500, "some numbers a position"


def test_broken_logits_are_named() -> None:
    broken = source("exact")
    forward = broken.model.forward

    def fail(*arguments: Any, **options: Any) -> Any:
        rows = forward(*arguments, **options)
        rows[..., 5] = np.nan
        return rows

    broken.model.forward = fail  # type: ignore[method-assign]
    with pytest.raises(NotFinite, match=r"toy \(exact\), position 3: 1 of 64"):
        compare(broken, source("exact"), SCORING)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="not the same vocabulary"):
        compare(Fake(63, 0), source("exact"), SCORING)
    record(source("exact"), SCORING, tmp_path / "a.kld")
    other = Scoring(TOKENS, window=32, skip=2, bos=1)
    with pytest.raises(InvalidArgument, match="another protocol"):
        compare(RecordedSource(tmp_path / "a.kld"), source("exact"), other)
    with pytest.raises(InvalidArgument, match="record of a record"):
        record(RecordedSource(tmp_path / "a.kld"), SCORING, tmp_path / "b.kld")


@pytest.mark.parametrize(
    "protocol",
    [None, {"tokens": 5}, {"tokens": ["x"]}, {"tokens": [1, 2], "window": "wide"}, {"tokens": [1, 2, 3], "x": 1}],
)
def test_lies_in_a_recorded_protocol(tmp_path: Path, protocol: object) -> None:
    text = json.dumps({"vocab": 64, "positions": 1, "protocol": protocol}).encode()
    (tmp_path / "x.kld").write_bytes(MAGIC + struct.pack("<Q", len(text)) + text)
    with pytest.raises(BadFile, match="protocol"):
        RecordedSource(tmp_path / "x.kld")


def test_perplexity_of_hopeless_losses_does_not_overflow() -> None:
    found = Comparison()
    log_p = np.array([0.0, -2000.0])
    found.add((0, 0), Full(log_p), Full(log_p), 1)
    assert found.summary()["perplexity_a"] == math.inf


# ---- commands --------------------------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli.main, ["verify", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_commands_record_and_compare(tmp_path: Path) -> None:
    options = ("--tokens", 60, "--window", 32, "--threads", 1)
    direct = json.loads(run("kld", MODEL, MODEL, "--dot-a", "exact", *options, "--json").stdout)
    assert direct["protocol"]["window"] == 32
    assert direct["protocol"]["bos"] == 1
    assert direct["a"].endswith("(exact products, cache f32)")
    assert len(direct["worst"]) == 5
    path = tmp_path / "a.kld"
    made = json.loads(run("record", MODEL, "--dot", "exact", "--out", path, *options, "--json").stdout)
    assert made["positions"] == direct["summary"]["positions"]
    stored = json.loads(run("kld", path, MODEL, "--threads", 1, "--json").stdout)
    assert stored["protocol"] == direct["protocol"]
    assert abs(stored["summary"]["kl_mean"] - direct["summary"]["kl_mean"]) <= stored["summary"]["kl_bound"]
    text = run("kld", path, MODEL, "--threads", 1).stdout
    assert "lower bounds" in text
    assert "recorded in a.kld" in text
    assert "windows: 2 of up to 32, each begins with BOS (1)" in text


def test_a_text_file_is_scored(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b c d e f g h")
    text = run("kld", MODEL, MODEL, "--text", tmp_path / "t.txt", "--no-bos", "--threads", 1).stdout
    assert "t.txt" in text
    assert "no BOS" in text
    (tmp_path / "t.txt").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in run("kld", MODEL, MODEL, "--text", tmp_path / "t.txt", code=1).stderr
    (tmp_path / "t.txt").write_text("")
    assert "is empty" in run("kld", MODEL, MODEL, "--text", tmp_path / "t.txt", code=1).stderr


def test_ids_outside_the_vocabulary_are_refused() -> None:
    assert "token id 64" in run("kld", MODEL, MODEL, "--ids", "1,64", code=1).stderr
    assert "expected numbers" in run("kld", MODEL, MODEL, "--ids", "1,x", code=1).stderr


def test_the_reference_program_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tokens", "40", "--window", "32"]
    assert verify_reference.main(["record", str(MODEL), "--out", str(tmp_path / "r.kld"), *options]) == 0
    assert verify_reference.main(["kld", str(MODEL), *options]) == 0
    assert "reference of" in capsys.readouterr().out
    assert "recorded in r.kld" in run("kld", tmp_path / "r.kld", MODEL, "--threads", 1).stdout
