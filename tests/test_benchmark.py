"""The benchmark on a tiny model: what is measured, and what is refused. No peer is needed."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from rml.build_info import BuildInfo
from rml.weight_source import open_weights
from tools import bench_models, bench_plan, bench_run, benchmark
from tools.bench_client import Client, WorkerFailed
from tools.bench_engines import KINDS, Logits
from tools.bench_machine import Bandwidth, forget, resident_share, warm
from tools.bench_models import Recipe, Shape, ensure, hf_name, random_matrix
from tools.bench_plan import Case, find_cases, reason_to_skip
from tools.bench_report import value_text
from tools.bench_run import Group, Place, Settings
from tools.bench_stamp import judge
from tools.bench_worker import Session, serve

SHAPE = Shape(hidden=64, width=96, layers=2, heads=4, kv_heads=2, vocab=160)
LIMIT = 0.1


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RML_MODELS_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def case(models: Path) -> Case:
    """A tiny random model and a few short measurements on it."""
    recipe = Recipe("tiny-q8_0", SHAPE, "Q8_0")
    return Case(recipe.name, recipe.path, recipe, prompts=(4, 8), contexts=(0, 8), steps=3)


# ---- random models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["Q8_0", "Q4_0"])
def test_random_gguf_is_what_the_shape_says(models: Path, stored: str) -> None:
    path = ensure(Recipe("tiny", SHAPE, stored))
    assert [file.name for file in models.iterdir()] == [f"tiny-v{bench_models.VERSION}.gguf"]
    config = open_weights(path).config
    assert (config.hidden_size, config.num_layers, config.vocab_size, config.tied_head) == (64, 2, 160, False)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    names = {name for name, _, _ in SHAPE.matrices()} | set(SHAPE.norms())
    assert set(tensors) == names
    wide = gguf.dequantize(tensors["output.weight"].data, tensors["output.weight"].tensor_type)
    assert wide.std() == pytest.approx(bench_models.HEAD_SPREAD / math.sqrt(64), rel=0.1)


def test_random_directory_holds_the_same_weights(models: Path) -> None:
    tied = replace(SHAPE, tied=True)
    source = open_weights(ensure(Recipe("tiny", tied, "BF16")))
    assert source.config.tied_head
    matrix = source.matrix("blk.1.ffn_down.weight", 64, 96)
    got = (np.asarray(matrix.data).view("<u2").astype(np.uint32) << 16).view(np.float32)
    seeds = {name: (seed, size, spread) for seed, (name, size, spread) in enumerate(tied.matrices())}
    want = random_matrix(*seeds["blk.1.ffn_down.weight"])
    assert np.allclose(got.reshape(64, 96), want, rtol=2**-7)


def test_random_model_is_written_once_and_whole(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("tiny", SHAPE, "BF16")

    def broken(path: Path, *_: object) -> None:
        path.mkdir()
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(bench_models, "write_hf", broken)
        with pytest.raises(OSError, match="disk full"):
            ensure(recipe)
    assert list(models.iterdir()) == []
    when = ensure(recipe).stat().st_mtime_ns
    assert ensure(recipe).stat().st_mtime_ns == when


def test_hf_names_are_those_of_the_loader() -> None:
    assert hf_name("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    assert hf_name("output_norm.weight") == "model.norm.weight"


# ---- the stamp -------------------------------------------------------------------------------------------------------


def yardstick(logits: Logits) -> dict[str, Any]:
    """As a worker writes it, for two positions with the same logits."""
    kept = np.argsort(-logits)[:64]
    token = int(logits.argmax())
    return {
        "first": logits,
        "last": logits,
        "tokens": np.array([token, token]),
        "kept": np.stack([kept, kept]),
        "values": np.stack([logits[kept]] * 2),
    }


LOGITS = np.random.default_rng(0).standard_normal(200) * 3
LOGITS[[7, 8]] = 12.0, 11.99  # a close call


def test_stamp_of_right_logits() -> None:
    near = {"first": LOGITS + 0.01, "last": LOGITS + 1e-3 * np.sign(LOGITS)}
    verdict = judge(yardstick(LOGITS), near, [7, 8], LIMIT)
    assert (verdict.wrong, verdict.agreed, verdict.positions) == ("", 1, 2)
    assert verdict.max_abs == pytest.approx(0.01)
    assert verdict.kl < 1e-4
    assert verdict.text.endswith("tokens 1/2")


@pytest.mark.parametrize(
    ("last", "tokens", "reason"),
    [
        (LOGITS[::-1], [7, 7], "KL"),
        (np.where(np.arange(200) == 3, np.nan, LOGITS), [7, 7], "not finite"),
        (LOGITS + 1e-4, [7, 9], "token 9 at position 1 was no close call"),
        (LOGITS + 1e-4, [7, int(np.argmin(LOGITS))], "inf behind"),
        (LOGITS[:100], [7, 7], "shapes"),
    ],
)
def test_stamp_of_wrong_logits(last: Logits, tokens: list[int], reason: str) -> None:
    verdict = judge(yardstick(LOGITS), {"first": LOGITS, "last": last}, tokens, LIMIT)
    assert reason in verdict.wrong
    assert verdict.text.startswith("WRONG")


# ---- the worker ------------------------------------------------------------------------------------------------------


class Counting:
    """An engine whose logits prefer token (sum of all tokens) % 10, and that counts what it ran."""

    settings = "none"

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ran: list[int] = []

    @property
    def size(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.ran.append(len(tokens))

    def rewind(self, size: int) -> None:
        del self.tokens[size:]

    def logits(self) -> Logits:
        out: Logits = np.zeros(10)
        out[sum(self.tokens) % 10] = 1.0
        return out


def session() -> tuple[Session, Counting]:
    engine = Counting()
    found = Session(engine)
    found.ids = list(range(1, 30))
    return found, engine


def test_contexts_are_run_once_and_decoded_from_again() -> None:
    found, engine = session()
    assert len(found.timed("decode", 20, [5, 6])) == 2
    assert engine.ran == [20, 1, 1]
    found.timed("decode", 20, [5, 6])
    assert engine.ran[3:] == [1, 1]
    found.timed("decode", 25, [5])
    assert engine.ran[5:] == [5, 1]
    assert engine.tokens == [*range(1, 26), 5]


def test_prefill_starts_from_nothing_in_one_call() -> None:
    found, engine = session()
    found.timed("decode", 20, [5])
    engine.ran.clear()
    assert len(found.timed("prefill", 12, [])) == 1
    assert engine.ran == [12]
    assert engine.tokens == list(range(1, 13))
    found.timed("decode", 20, [5])  # the earlier context is gone with the prefill
    assert engine.tokens == [*range(1, 21), 5]


@pytest.mark.parametrize(("what", "calls"), [("prefill", [6, 1, 1]), ("decode", [5, 1, 1, 1])])
def test_burn_runs_the_prompt_in_the_way_that_is_timed(what: str, calls: list[int]) -> None:
    found, engine = session()
    first, tokens, last = found.burn(what, 6, [3, 4])
    assert engine.ran == calls
    assert tokens == [21 % 10, 24 % 10, 28 % 10]
    assert [int(first.argmax()), int(last.argmax())] == [1, 8]


def test_decoding_without_context_starts_after_one_token() -> None:
    found, engine = session()
    found.timed("decode", 0, [9])
    assert engine.tokens == [1, 9]


def test_serving_answers_errors_and_stops() -> None:
    class Fake:
        def answer(self, command: dict[str, Any]) -> dict[str, Any]:
            raise KeyError(command["do"])

    answers = io.StringIO()
    lines = io.StringIO('{"do": "dance"}\n{"do": "stop"}\n{"do": "late"}\n')
    serve(Fake(), lines, answers)  # type: ignore[arg-type]  # only `answer` is called
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [{"error": "KeyError: 'dance'"}]


def test_a_worker_that_cannot_load_says_why(models: Path) -> None:
    with Client("rml", models / "absent.gguf", 1, 64) as client:
        client.ready()
        with pytest.raises(WorkerFailed, match="no such file"):
            client.ask("load", token=1, save=str(models / "x.npz"))
        with pytest.raises(WorkerFailed, match="load comes first"):
            client.ask("tokens", ids=[1])


def test_a_worker_that_dies_is_reported(models: Path) -> None:
    with Client("no such engine", models, 1, 64) as client, pytest.raises(WorkerFailed, match=r"status 1: KeyError"):
        client.ready()
    with Client("rml", models, 1, 64) as client:
        client.ready()
        client.process.kill()
        with pytest.raises(WorkerFailed, match="SIGKILL"):
            client.ask("memory")
        with pytest.raises(WorkerFailed, match="gone"):
            client.ask("memory")


# ---- plan and machine ------------------------------------------------------------------------------------------------


def test_plan_covers_what_the_benchmark_promises(models: Path) -> None:
    cases = {case.name: case for case in bench_plan.all_cases()}
    assert {"smollm2-135m-instruct-q4_1", "gemma3-270m-q4_k_m", "random-tinyllama-q8_0"} <= set(cases)
    small = cases["smollm2-135m-instruct-q4_1"]
    assert [*small.cells()] == [
        (w, n) for w, ns in (("prefill", (16, 128, 512)), ("decode", (0, 512, 2048))) for n in ns
    ]
    assert small.probes() == {1: 32, 16: 8, 128: 8, 512: 32, 2048: 32}
    assert small.capacity >= 2048 + 32
    assert all(1 in case.probes() for case in [*cases.values(), *find_cases([], True)])
    with pytest.raises(ValueError, match="unknown model 'nope'; known are smollm2"):
        find_cases(["nope"], False)


def test_reasons_to_skip(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason_to_skip(case, "rml") == ""
    monkeypatch.setattr(bench_plan, "find_spec", lambda name: None)
    assert reason_to_skip(case, "llama.cpp") == "llama_cpp is not installed: `nox -s bench` installs it"
    monkeypatch.setattr(bench_plan, "find_spec", lambda name: object())
    assert reason_to_skip(replace(case, path=case.path.with_suffix("")), "llama.cpp").endswith("directories")


def test_bandwidth_and_page_cache(tmp_path: Path) -> None:
    bandwidth = Bandwidth(1 << 20, 2)
    assert bandwidth.sample() > 1e6
    assert bandwidth.best == bandwidth.median == bandwidth.samples[0]
    file = tmp_path / "file.bin"
    file.write_bytes(bytes(1 << 20))
    warm(file)
    assert resident_share(file) == 1.0
    assert 0.0 <= forget(file) <= 1.0


# ---- a run -----------------------------------------------------------------------------------------------------------


def settings(**changes: Any) -> Settings:
    return replace(Settings(engines=("rml",), threads=(1,), rounds=3, seconds=0.0, loads=1), **changes)


@pytest.mark.slow
def test_run_of_a_tiny_model(case: Case, models: Path) -> None:
    done = benchmark.run([case], settings(), True, benchmark.Talk())
    measured = {(row["what"], row["n"]): row for row in done.rows if row["engine"] == "rml"}
    assert list(measured) == [
        *(("load cold", 1), ("load warm", 1), ("prefill", 4), ("prefill", 8), ("decode", 0), ("decode", 8)),
        ("peak memory", 0),
    ]
    for row in measured.values():
        if row["what"] != "load cold":  # another process may use the file
            assert row["value"] > 0
    assert len(measured["decode", 8]["samples"]) == 3
    assert measured["decode", 8]["count"] == 2  # three steps, the first is not counted
    stamp = measured["prefill", 4]["stamp"]
    assert stamp["wrong"] == ""
    assert stamp["positions"] == 9
    assert stamp["kl"] < 0.01
    assert done.models["tiny-q8_0"]["read_per_token"]["weights"] == 160 * 64 + 2 * (64 * 64 * 3 + 64 * 96 * 3) + 64 * 5
    assert list((models / "yardsticks").glob("*.npz"))
    assert not list((models / "yardsticks").glob("*part*"))


def test_a_missing_checkpoint_is_a_row(models: Path) -> None:
    absent = Case("absent", models / "absent.gguf")
    rows = benchmark.run([absent], settings(), True, benchmark.Talk()).rows
    assert [row["note"] for row in rows] == [
        f"skipped: {models / 'absent.gguf'} is not there: `python -m tools.fetch_real_models` fetches it"
    ]


@pytest.mark.slow
def test_a_model_that_does_not_load_is_a_row_and_not_the_end(case: Case, models: Path) -> None:
    (models / "broken.gguf").write_bytes(b"GGUF" + bytes(60))
    broken = Case("broken", models / "broken.gguf")
    rows = benchmark.run([broken, replace(case, contexts=(0,), prompts=(4,))], settings(), False, benchmark.Talk()).rows
    assert rows[0]["note"].startswith("failed: ")
    assert any("value" in row for row in rows[1:])


def test_what_was_finished_survives_an_interrupt(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(place: Case, *_: object) -> Iterator[dict[str, Any]]:
        if place.name == "second":
            raise KeyboardInterrupt
        yield bench_run.row(place, "rml", 1, "decode", 0, note="skipped: a test")

    monkeypatch.setattr(benchmark, "measure", stop)
    done = benchmark.run([case, replace(case, name="second")], settings(), False, benchmark.Talk())
    assert done.interrupted
    assert [row["model"] for row in done.rows] == [case.name]


class Broken(Client):
    """A worker whose untimed runs find other tokens than the model does."""

    def ask(self, do: str, patience: float = 1.0, **arguments: Any) -> dict[str, Any]:
        assert do != "time", "an engine with wrong logits must not be timed"
        answer = super().ask(do, 60.0, **arguments)
        if do == "burn":
            stored = dict(np.load(arguments["save"]))
            np.savez(arguments["save"], first=stored["first"][::-1], last=stored["last"])
        return answer


@pytest.mark.slow
def test_no_speed_for_wrong_logits(case: Case, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_run, "Client", Broken)
    rows = benchmark.run([replace(case, contexts=(0,))], settings(), False, benchmark.Talk()).rows
    mine = [row for row in rows if row["engine"] == "rml"]
    assert len(mine) == 4
    for row in mine:
        assert "value" not in row
        assert row["note"].startswith("wrong logits")
        assert value_text(row) == "wrong"


def test_engines_take_turns_and_ratios_are_paired(case: Case, models: Path) -> None:
    ensure_ids = list(range(3, 11))
    group = Group(Place(case, None, ensure_ids), settings(engines=("rml", "llama.cpp")), 1, {}, models / "x.npz")
    log: list[str] = []

    class Fake:
        def __init__(self, name: str, seconds: float) -> None:
            self.name, self.seconds = name, seconds

        def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
            if do == "burn":
                np.savez(arguments["save"], first=LOGITS, last=LOGITS)
                return {"tokens": [7, 7]}
            log.append(self.name)
            return {"seconds": [self.seconds], "top": 7}

    group.clients = {"rml": Fake("rml", 1.0), "llama.cpp": Fake("llama.cpp", 3.0)}  # type: ignore[dict-item]
    group.want = {8: yardstick(LOGITS)}
    rows = {row["engine"]: row for row in group.cell("prefill", 8)}
    assert log == ["rml", "llama.cpp", "llama.cpp", "rml", "rml", "llama.cpp"]
    assert rows["rml"]["value"] == 8.0
    assert rows["rml"]["ratio"] == 3.0


def test_command_line(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert benchmark.main(["--models", "nope"]) == 2
    assert "unknown model 'nope'" in capsys.readouterr().err
    assert benchmark.main(["--list"]) == 0
    assert "random-tinyllama-q8_0" in capsys.readouterr().out
    monkeypatch.setattr("rml.build_info.BUILD", BuildInfo("interpreted"))
    assert benchmark.main(["--quick"]) == 2
    assert "their speed means nothing" in capsys.readouterr().err
    assert benchmark.parse(["--quick"]).engines == ["rml", "llama.cpp", "transformers f32"]


def test_every_engine_has_a_limit() -> None:
    assert all(kind.kl_limit > 0 for name, kind in KINDS.items() if name in bench_plan.ENGINES)
