"""Reports, goals and comparisons of benchmark runs, on rows made up for the purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tools import bench_run, compare_bench
from tools.bench_goals import GOALS, Results
from tools.bench_plan import Case
from tools.bench_report import goal_lines, markdown, print_tables, read_run, write_reports
from tools.bench_run import add_ratios, finish
from tools.report import write_json


def made_row(engine: str, what: str, n: int, seconds: list[float], **values: Any) -> dict[str, Any]:
    """A row as a run leaves it."""
    unit = "s" if what.startswith("load") else "tokens/s"
    found = bench_run.row(made_case(), engine, 2, what, n, unit=unit, count=10)
    verdict = {"kl": 1e-3, "max_abs": 0.1, "agreed": 9, "positions": 9, "tokens": [1, 2], "wrong": "", "text": "KL"}
    found |= {"stamp": verdict, "settings": "defaults"} | values
    return finish(found, seconds)


def made_case() -> Case:
    return Case("smollm2-135m-instruct-q4_1", Path("model.gguf"))


HEAD: dict[str, Any] = {
    "report": "benchmark", "commit": "abc", "time": "2026-01-01 00:00 UTC", "processor": "a processor", "cores": 2,
    "threads": 2, "kernels": "release kernels", "system": "Linux", "python": "3.12", "versions": {}, "quick": False,
    "engines": ["rml", "llama.cpp"], "busy_before": 0.0, "load_average_before": [0.1], "minutes": 1.0, "rounds": 3,
    "models": {"smollm2-135m-instruct-q4_1": {"read_per_token": {"bytes": 100_000_000, "weights": 150_000_000}}},
}  # fmt: skip


def made_rows(factor: float = 1.0) -> list[dict[str, Any]]:
    """A small run: rml is twice as fast as llama.cpp, times a factor."""
    rows = []
    for n, slow in ((0, 1.0), (2048, 1.1)):
        base = [0.1 * slow, 0.101 * slow, 0.1 * slow]
        mine = [second / 2 / factor for second in base]
        rows += [
            made_row("rml", "decode", n, mine, ratio=2.0 * factor),
            made_row("llama.cpp", "decode", n, base, ratio=1.0),
        ]
    rows += [made_row("rml", "load warm", 1, [0.2]), made_row("llama.cpp", "load warm", 1, [0.3])]
    machine = bench_run.row(made_case(), "machine", 2, "read bandwidth", 0, unit="GB/s", value=30.0, spread=0.0)
    rows += [
        machine,
        bench_run.row(made_case(), "transformers f32", 0, "all", 0, note="skipped: torch is not installed"),
    ]
    add_ratios(rows)
    return rows


def test_ratios_above_one_are_better_times_and_smaller_sizes_below() -> None:
    rows = made_rows()
    assert [row["ratio"] for row in rows if row["what"] == "load warm"] == [pytest.approx(1.5), 1.0]


def test_goals_take_the_worst_place() -> None:
    lines = {line[0]: line[1:] for line in goal_lines(HEAD, made_rows())}
    decode = lines["decode, SmolLM2 and Gemma, against llama.cpp"]
    assert decode[:3] == ["at least 1.5", "2.00", "yes"]
    long = lines["decode after 2048 tokens against 0, SmolLM2"]
    assert long == ["at least 0.8", "0.91", "yes", "smollm2-135m-instruct-q4_1, decode 2048, 2 threads"]
    assert lines["prefill 512, Gemma, against llama.cpp"] == ["at least 1", "-", "not measured", ""]
    results = Results(made_rows(0.5), HEAD["models"])
    worst = GOALS[0].worst(results)
    assert worst is not None
    assert not GOALS[0].reached(worst[1])


def test_report_files(tmp_path: Path) -> None:
    written = write_reports(tmp_path / "run", HEAD, made_rows())
    assert [path.name for path in written[:2]] == ["run.json", "run.md"]
    head, rows = read_run(tmp_path / "run.json")
    assert (head["commit"], len(rows)) == ("abc", 8)
    text = (tmp_path / "run.md").read_text()
    assert "| decode 0 | 2 | tokens/s | 200 ± 0% | 100 ± 0% | 2.00 |" in text.replace("± 1%", "± 0%")
    assert "| smollm2-135m-instruct-q4_1 | 2 | rml | 100.0 | 20.0 | 30.0 | 67% |" in text
    assert "skipped: torch is not installed" in text
    assert "Quick" not in text


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_reports(tmp_path / "run", HEAD, made_rows())
    assert [path.name for path in written[2:]] == ["run-context.png", "run-roofline.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[2:])


def test_quick_and_busy_runs_say_so() -> None:
    text = markdown(HEAD | {"quick": True, "busy_before": 0.6}, made_rows(), [])
    assert "Quick run: it shows that everything works; its figures mean nothing." in text
    assert "60% of the machine was in use by others" in text


# ---- comparison ------------------------------------------------------------------------------------------------------


def compare(
    tmp_path: Path, old: Sequence[Any], new: Sequence[Any], capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    for name, rows in (("old", old), ("new", new)):
        write_json(tmp_path / f"{name}.json", HEAD | {"commit": name}, rows)
    yield compare_bench.main([str(tmp_path / "old.json"), str(tmp_path / "new.json"), "--all"])
    yield capsys.readouterr().out


def test_comparison_of_a_faster_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = compare(tmp_path, made_rows(), made_rows(1.25), capsys)
    assert code == 0
    assert "1.250" in text
    assert "3 rows of rml: 2 better, 0 worse, 0 lost" in text


def test_comparison_of_a_slower_run_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = compare(tmp_path, made_rows(1.25), made_rows(), capsys)
    assert code == 1
    assert "2 worse" in text


def test_comparison_on_another_machine_goes_by_the_ratio() -> None:
    slower = made_rows()
    for row in slower:
        if row["unit"] == "tokens/s" if "unit" in row else False:
            row["value"] /= 3
    verdicts = [c.verdict for c in compare_bench.changes(made_rows(), slower) if c.key[1] == "rml"]
    assert verdicts == ["", "", ""]


def test_a_lost_figure_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = made_rows()
    del new[0]["value"]
    new[0]["note"] = "wrong logits: KL"
    code, text = compare(tmp_path, made_rows(), new, capsys)
    assert code == 1
    assert "lost" in text


def test_only_benchmarks_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text('{"stamp": {}, "rows": []}')
    assert compare_bench.main([str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert "not a benchmark's report" in capsys.readouterr().err


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(HEAD, made_rows(), Console(width=160))
    text = capsys.readouterr().out
    assert "rml / llama.cpp" in text
    assert "goals" in text
