"""The kernel benchmark: no speed for a wrong result, and a small run from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rml.build_info import BUILD
from tools import kernel_benchmark
from tools.kernel_benchmark import Contender, as_row, main, table


def contender(name: str, wrong: str = "") -> Contender:
    """A contender that took two milliseconds for a million weights."""
    return Contender(name, "one token", "cache", [lambda: None], 500_000, 1_000_000, 1e-16, wrong, 1, [0.002, 0.003])


def test_a_right_result_is_shown_with_its_share_of_the_bandwidth() -> None:
    reading = Contender("-", "only reading", "cache", [lambda: None], 500_000, 62_500, samples=[0.001])
    text = table([as_row(contender("Q4_0"), reading)])
    assert text.splitlines()[2] == "| Q4_0 | one token | cache | 1 | 0.5 | 0.2 | 50% | 1.00 | 1.0e-16 |"


def test_a_wrong_result_has_no_speed() -> None:
    row = as_row(contender("Q4_0", "0.5 from the float64 product"), contender("-"))
    assert table([row]).splitlines()[2] == (
        "| Q4_0 | one token | cache | 1 | - | - | - | - | WRONG: 0.5 from the float64 product |"
    )


def test_kernels_that_are_not_release_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    if BUILD.mode == "release":
        pytest.skip("these are release kernels")
    assert main([]) == 2
    assert "their speed means nothing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "BF16"])
def test_a_small_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_benchmark, "CACHED", 1 << 14)
    monkeypatch.setattr(kernel_benchmark, "MEMORY", 1 << 16)
    monkeypatch.setattr(kernel_benchmark, "COLS", 256)
    monkeypatch.setattr(kernel_benchmark, "LEAST_SECONDS", 1e-5)
    status = main(["--quick", "--formats", name, "--output", str(tmp_path / "kernels"), "--allow-slow-kernels"])
    assert status == 0
    rows = json.loads((tmp_path / "kernels.json").read_text())["rows"]
    assert {row["threads"] for row in rows} == {1, 2}
    assert {row["place"] for row in rows} == {"cache", "memory"}
    assert all(row["error"] <= kernel_benchmark.LIMIT for row in rows)
    assert f"| {name} | one token | memory | 2 |" in (tmp_path / "kernels.md").read_text()


def test_a_kernel_with_other_bits_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_benchmark, "CACHED", 1 << 14)
    monkeypatch.setattr(kernel_benchmark, "COLS", 256)
    found = kernel_benchmark.contenders("Q8_0", "int8", "cache", 1 << 14, 8)
    assert [c.wrong for c in found] == ["", ""]
    monkeypatch.setattr(kernel_benchmark, "LIMIT", 0.0)
    assert "from the float64 product" in kernel_benchmark.contenders("Q8_0", "one", "cache", 1 << 14, 1)[0].wrong
