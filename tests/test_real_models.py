"""The tools around real checkpoints, on a toy in the place of one: goldens, checks, limits, reports."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
from rml.scoring import reduce_row
from rml.tokenizer_files import open_tokenizer
from tools import check_real_models, checkpoints, comparison, make_real_model_goldens, progress, real_goldens, report
from tools.check_real_models import Row
from tools.checkpoints import Checkpoint
from tools.real_limits import LIMITS, Limit

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
IDS = [1, 5, 7, 11, 9, 30, 41, 12, 3, 17]
TOY = Checkpoint("toy", "toy.gguf", "a toy")
ABSENT = Checkpoint("absent", "Absent-1B", "the Hugging Face directory of Absent-1B")


def toy_golden(model: Path) -> dict[str, Any]:
    """A golden of the toy, from the reference."""
    decoder, tokenizer = reference.load(model), open_tokenizer(model)
    logits = decoder.forward(IDS)
    return {
        "checkpoint": "toy",
        "file": {"size": model.stat().st_size, "sha256": hashlib.sha256(model.read_bytes()).hexdigest()},
        "made": {"by": "test"},
        "tokenizer": {
            "source": "itself",
            "cases": [{"text": "abc", "special": False, "ids": tokenizer.encode("abc", bos=False)}],
        },
        "chat": None,
        "prompts": [
            {
                "name": "short",
                "ids": IDS,
                "greedy": decoder.greedy(IDS, real_goldens.GREEDY),
                "margins": [0.75] * real_goldens.GREEDY,
                "peer": {"source": "nobody", "mean_kl": 1.0, "top1": 1.0, "worst": 1.0},
                "positions": [reduce_row(at, logits[at], real_goldens.TOP).as_dict() for at in range(len(IDS))],
            }
        ],
    }


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A models directory with one checkpoint in it and one missing, and the golden of the first."""
    models, goldens = tmp_path / "models", tmp_path / "real"
    models.mkdir()
    shutil.copy(FIXTURES / "llama/model-q8_0.gguf", models / "toy.gguf")
    monkeypatch.setenv("RML_MODELS_DIR", str(models))
    monkeypatch.setattr(checkpoints, "CHECKPOINTS", (TOY, ABSENT))
    monkeypatch.setattr(real_goldens, "FOLDER", goldens)
    golden = toy_golden(models / "toy.gguf")
    real_goldens.write_golden(TOY, golden)
    return golden


def check(tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = check_real_models.main(["--report-dir", str(tmp_path / "reports"), *arguments])
    return code, json.loads((tmp_path / "reports" / "real_models.json").read_text())["rows"]


def test_a_right_checkpoint_passes_and_a_missing_one_is_listed(
    toy: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = check(tmp_path)
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.splitlines()[-1] == "4 passed, 0 failed"
    assert "skipped absent: place the Hugging Face directory of Absent-1B at $RML_MODELS_DIR/Absent-1B" in out
    assert [row["what"] for row in rows] == ["tokenizer", *(f"short, {limit.name}" for limit in LIMITS)]
    assert rows[1]["worst"] < 1e-12
    assert rows[1]["positions"] == len(IDS)
    assert str(tmp_path) not in (tmp_path / "reports" / "real_models.md").read_text()


def test_the_reference_runs_once(toy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path)
    kept = list((tmp_path / "models" / "reference").iterdir())
    assert len(kept) == 1

    def forbidden(*_: Any) -> None:
        raise AssertionError("the reference ran again")

    monkeypatch.setattr(check_real_models, "compute_reference", forbidden)
    assert check(tmp_path)[0] == 0
    assert list((tmp_path / "models" / "reference").iterdir()) == kept


def test_without_the_reference_the_golden_is_enough(toy: dict[str, Any], tmp_path: Path) -> None:
    code, rows = check(tmp_path, "--reference", "never")
    assert code == 0
    assert rows[1]["worst"] is None
    assert rows[1]["golden_error"] < 1e-12
    assert not (tmp_path / "models" / "reference").exists()


def spoil_logits(golden: dict[str, Any]) -> None:
    golden["prompts"][0]["positions"][4]["logits"][7] += 1e-3


def spoil_normaliser(golden: dict[str, Any]) -> None:
    golden["prompts"][0]["positions"][9]["log_sum_exp"] -= 1e-3


def spoil_greedy(golden: dict[str, Any]) -> None:
    golden["prompts"][0]["greedy"][7] ^= 1


def spoil_tokenizer(golden: dict[str, Any]) -> None:
    golden["tokenizer"]["cases"][0]["ids"].append(5)


def spoil_peer(golden: dict[str, Any]) -> None:
    golden["prompts"][0]["peer"]["mean_kl"] = 1e-12


def spoil_size(golden: dict[str, Any]) -> None:
    golden["file"]["size"] += 1


@pytest.mark.parametrize(
    ("spoil", "failed", "note"),
    [
        (spoil_logits, ["exact f64", "exact f32"], "top-8 error above"),
        (spoil_normaliser, ["exact f64", "exact f32"], "top-8 error above"),
        (spoil_greedy, ["exact f64", "exact f32", "int8 f32"], "another greedy continuation"),
        (spoil_tokenizer, ["tokenizer"], "1 of 1 texts have other ids, the first 'abc'"),
        (spoil_peer, ["int8 f32"], "mean KL above 1.5 times llama.cpp's"),
        (spoil_size, ["file"], "the golden is of"),
    ],
)
def test_what_is_wrong_fails_and_is_named(
    spoil: Any, failed: Sequence[str], note: str, toy: dict[str, Any], tmp_path: Path
) -> None:
    spoil(toy)
    real_goldens.write_golden(TOY, toy)
    code, rows = check(tmp_path)
    bad = [row for row in rows if not row["passed"]]
    assert code == 1
    assert [row["what"].removeprefix("short, ") for row in bad] == list(failed)
    assert all(note in row["note"] for row in bad)


def test_a_checkpoint_without_a_golden_fails(toy: dict[str, Any], tmp_path: Path) -> None:
    real_goldens.golden_path(TOY).unlink()
    code, rows = check(tmp_path)
    assert code == 1
    assert "make_real_model_goldens" in rows[0]["note"]


def test_nothing_to_check_is_a_failure(toy: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "absent")[0] == 1
    assert "fetch_real_models" in capsys.readouterr().out


def test_a_broken_checkpoint_is_a_row_and_the_others_go_on(toy: dict[str, Any], tmp_path: Path) -> None:
    model = tmp_path / "models" / "toy.gguf"
    raw = model.read_bytes()
    model.write_bytes(b"FUGG" + raw[4:])
    code, rows = check(tmp_path)
    assert code == 1
    assert "not a GGUF file" in rows[0]["note"]


# ---- goldens ---------------------------------------------------------------------------------------------------------


def test_goldens_are_read_back_to_the_last_bit_and_laid_out_in_lines(toy: dict[str, Any]) -> None:
    text = real_goldens.golden_path(TOY).read_text()
    assert real_goldens.read_golden(TOY) == toy
    assert max(map(len, text.splitlines())) < 400
    assert len(text.splitlines()) > len(IDS)


def test_committed_goldens_say_where_they_come_from() -> None:
    paths = sorted((FIXTURES / "real").glob("*.json"))
    assert paths
    known = {checkpoint.name: checkpoint for checkpoint in checkpoints.CHECKPOINTS}
    for path in paths:
        golden = json.loads(path.read_text())
        checkpoint = known[golden["checkpoint"]]
        assert (golden["file"]["size"], golden["file"]["sha256"]) == (checkpoint.size, checkpoint.sha256)
        assert "llama.cpp" in golden["tokenizer"]["source"]
        short = golden["prompts"][0]
        assert len(short["ids"]) >= real_goldens.SHORT_TOKENS
        assert [position["position"] for position in short["positions"]] == list(range(len(short["ids"])))
        for prompt in golden["prompts"]:
            assert len(prompt["greedy"]) == len(prompt["margins"]) == real_goldens.GREEDY
            for position in prompt["positions"]:
                assert position["logits"] == sorted(position["logits"], reverse=True)
                assert position["logits"][0] < position["log_sum_exp"] + 1e-9


def test_the_engine_proposes_and_the_reference_decides(toy: dict[str, Any], tmp_path: Path) -> None:
    class Stubborn:
        """Proposes token 3 for ever, and is right by accident at most."""

        def new_cache(self, *_: Any) -> None: ...

        def forward(self, *_: Any) -> Any:
            return np.eye(64)[3]

    model = tmp_path / "models" / "toy.gguf"
    engine: Any = Stubborn()
    run, greedy, margins = make_real_model_goldens.continuation(engine, model, IDS, "test")
    assert greedy == toy["prompts"][0]["greedy"]
    assert len(margins) == real_goldens.GREEDY
    assert min(margins) > 0
    rows = np.array(list(run.rows(range(len(IDS)))))
    assert np.abs(rows - reference.load(model).forward(IDS)).max() < 1e-12


def test_kept_positions_cover_the_place_where_the_window_fills() -> None:
    assert real_goldens.kept_positions(real_goldens.SHORT, 5, 0) == [0, 1, 2, 3, 4]
    kept = real_goldens.kept_positions(real_goldens.LONG, 675, 512)
    assert set(range(508, 520)) | {0, 8, 672, 674} <= set(kept)
    assert len(kept) < 110


def test_a_change_of_the_golden_is_seen(toy: dict[str, Any]) -> None:
    other = json.loads(json.dumps(toy))
    assert make_real_model_goldens.unchanged(toy, other)
    other["prompts"][0]["positions"][2]["logits"][0] += 1e-6
    assert not make_real_model_goldens.unchanged(toy, other)
    assert not make_real_model_goldens.unchanged(None, toy)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_divergence() -> None:
    """p = (1/2, 1/2) and q = (3/4, 1/4), whatever is added to the logits: ln 2 - ln 3 / 2."""
    found = comparison.Divergence()
    found.add(7, np.array([5.0, 5.0]), np.array([math.log(3.0) - 2.0, -2.0]))
    assert found.mean_kl == pytest.approx(math.log(2.0) - math.log(3.0) / 2.0)
    assert (found.top1, found.worst_at) == (1.0, (7, 1))
    found.add(8, np.array([1.0, 0.0]), np.array([np.nan, 0.0]))
    assert (found.worst, found.worst_at) == (math.inf, (8, 0))


def test_limits_name_what_is_out_of_bounds() -> None:
    limit = Limit("n", "exact", "f64", 1e-6, peer_factor=2.0)
    assert list(limit.failures(1e-7, 1e-7, 1.0, 0.6, 0.0)) == []
    assert list(limit.failures(float("nan"), 1e-5, 1.0, 0.4, 0.25)) == [
        "top-8 error above 1e-06",
        "worst error above 1e-06",
        "mean KL above 2 times llama.cpp's",
        "another greedy continuation, at a margin of 0.25",
    ]


def test_progress_lines() -> None:
    work = progress.Progress("work", 200, "steps")
    work.done = 50
    assert work.line(10.0) == "work   25 %  50 of 200 steps in 10.0 s, 30.0 s left"
    work.done = 200
    assert work.line(70.0) == "work  100 %  200 of 200 steps in 1 min 10 s"
    data = progress.Progress("data", 2e6, "bytes")
    assert data.line(0.0) == "data    0 %  0.0 of 2.0 MB in 0.0 s"


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_the_stamp_says_what_ran_and_names_no_place() -> None:
    stamp = report.stamp(threads=3)
    assert stamp["threads"] == 3
    assert {"commit", "processor", "kernels", "python"} <= stamp.keys()
    assert stamp["versions"]["numpy"] == np.__version__
    assert stamp["versions"].items() >= report.blas().items()
    text = report.stamp_text(stamp)
    assert stamp["kernels"] in text
    assert str(Path.home()) not in json.dumps(stamp)


def test_json_holds_what_python_gives(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.json"
    row = {"a": np.float64(0.1), "b": np.array([1, 2]), "c": float("nan"), "d": Path("x"), "e": None}
    report.write_json(path, {"commit": "c"}, [row, row])
    data = json.loads(path.read_text())
    assert data["rows"][1] == {"a": 0.1, "b": [1, 2], "c": "nan", "d": "x", "e": None}
    report.append_jsonl(path.with_suffix(".jsonl"), {"commit": "c"}, [row])
    report.append_jsonl(path.with_suffix(".jsonl"), {"commit": "c"}, [row])
    lines = path.with_suffix(".jsonl").read_text().splitlines()
    assert [json.loads(line)["stamp"] for line in lines] == [{"commit": "c"}] * 2


def test_markdown_tables() -> None:
    table = report.markdown_table(["a", "b"], [["x|y", 1], ["two\nlines", 2]], ["b"])
    assert table == "| a | b |\n| --- | --: |\n| x\\|y | 1 |\n| two lines | 2 |\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (1.4321e-6, "1.4e-06"),
        (0.03141, "0.031"),
        (12.52, "13"),
        (math.inf, "inf"),
        (1.5e7, "1.5e+07"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert report.number_text(value) == text


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plots" / "lines.png"
    assert report.plot_lines(path, "t", ("x", "y"), {"a": ([1, 2], [3, 4]), "b": ([1, 2], [1, 10])}, log="xy")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_row_is_shown_with_dashes_where_nothing_was_measured() -> None:
    assert check_real_models.cells(Row("c", "w", True)) == ("c", "w", "passed", *["-"] * 7, "")
