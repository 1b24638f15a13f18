"""The profile of a forward pass, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_cases import case

from rml.build_info import BUILD
from tools import step_profile


@pytest.mark.skipif(BUILD.mode == "interpreted", reason="every step is run many times")
@pytest.mark.parametrize("name", ["llama/model-q8_0.gguf", "mixtral/hf", "gemma3-softcap/model.gguf"])
def test_every_step_is_counted_and_timed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(step_profile, "TRIES", 1)
    monkeypatch.setattr(step_profile, "TOKENS", 2)
    out = tmp_path / "profile.md"
    assert step_profile.main([str(case(name).model), "--context", "5", "--output", str(out)]) == 0
    text = out.read_text()
    assert text in capsys.readouterr().out
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.strip("| ").split(" | "))}
    layers = int(rows["attention"][0])
    assert layers >= 2
    assert int(rows["norm"][0]) >= 2 * layers + 1
    assert int(rows["gate"][0]) == layers
    assert ("experts, up" in rows) == ("mixtral" in name)
    assert ("soft cap" in rows) == ("softcap" in name)
    assert any(" x " in row for row in rows)
    assert float(rows["native run"][1]) < float(rows["forward"][1])
