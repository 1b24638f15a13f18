"""tools/big_model.py on a model of 200,000 weights: every step that the one of 8,000,000,000 takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools import big_model, html_report, llama_cpp_peer
from tools.peak_memory import PeakMemory

NAME = "random-tiny-3-layers-q4_0"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line that writes nowhere else, and no llama.cpp."""
    monkeypatch.setattr(llama_cpp_peer, "is_installed", lambda: False)
    folders = {"--models-dir": "models", "--report-dir": "reports", "--golden-dir": "goldens"}
    named = [word for option, folder in folders.items() for word in (option, str(tmp_path / folder))]
    return ["--shape", "tiny", "--threads", "1", *named]


@pytest.mark.slow
def test_golden_made_and_checked(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert big_model.main([*arguments, "--golden"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "3 passed, 0 failed"
    assert "reference, 72 tokens  100 %  3 of 3 layers" in err
    assert list((tmp_path / "models").iterdir()) == []  # neither the model nor a saved state is left
    golden = json.loads((tmp_path / "goldens" / f"{NAME}.json").read_text())
    assert len(golden["prompts"][0]["positions"]) == 64
    assert len(golden["prompts"][0]["greedy"]) == 8
    rows = {row["what"]: row for row in html_report.read(tmp_path / "reports" / "big_model.json")[1]}
    assert list(rows) == ["write", "reference", "exact f64", "exact f32", "int8 f32"]
    assert rows["exact f64"]["worst"] < 1e-12
    assert rows["exact f64"]["greedy"] == "equal"
    assert rows["int8 f32"]["mean_kl"] < 0.01

    assert big_model.main([*arguments, "--check", "--keep"]) == 0
    assert "reference" not in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{NAME}.gguf"]


@pytest.mark.slow
def test_a_wrong_golden_fails(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert big_model.main([*arguments, "--golden"]) == 0
    place = tmp_path / "goldens" / f"{NAME}.json"
    golden = json.loads(place.read_text())
    golden["prompts"][0]["positions"][40]["logits"][7] += 1e-3
    place.write_text(json.dumps(golden))
    assert big_model.main([*arguments, "--check"]) == 1
    assert "top-8 error above 1e-06" in capsys.readouterr().out


def test_what_cannot_be_done_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        big_model.main([*arguments, "--check"])
    assert f"there is no golden of {NAME}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        big_model.main([*arguments, "--layers", "0"])
    assert "0 layers" in capsys.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_peak_memory_counts_from_a_moment_on() -> None:
    before = PeakMemory()
    block = bytearray(64 << 20)
    first = before.bytes()
    del block
    second = PeakMemory().bytes()
    if first is None or second is None:
        pytest.skip("this system does not let a process reset its peak")
    assert first - second > 32 << 20
