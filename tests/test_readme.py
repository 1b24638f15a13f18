"""The README's code runs, and the commands and sessions it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rml import cli

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert getattr(names["logits"], "shape", None) == (64,)
    assert getattr(names["rows"], "shape", None) == (2, 64)
    assert getattr(names["cache"], "size", None) == 3


def test_commands_exist() -> None:
    commands = re.findall(r"^\$ rml ((?:verify )?\w+)", "\n".join(blocks("console")), re.M)
    assert len(commands) >= 5
    for command in commands:
        result = CliRunner().invoke(cli.main, [*command.split(), "--help"])
        assert result.exit_code == 0, f"rml {command}: {result.output}"


def test_sessions_exist() -> None:
    noxfile = (ROOT / "noxfile.py").read_text()
    for session in set(re.findall(r"nox -s (\w+)", TEXT)):
        assert f"def {session}(session: nox.Session)" in noxfile


def test_files_it_names_exist() -> None:
    for name in re.findall(r"`((?:rml|tests|tools|reference|fixtures)/[\w/]+\.py)`", TEXT):
        assert (ROOT / name).exists(), name
