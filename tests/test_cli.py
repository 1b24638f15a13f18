"""The `rml` command on toy models: what it prints, where it prints it, and how it fails."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from pytest_regressions.file_regression import FileRegressionFixture

import rml
from rml import cli, cli_tables
from rml.tokenizer_files import open_tokenizer

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
GGUF = "llama/model.gguf"
HF = "qwen3_moe/hf"
PROMPT_IDS = "1,5,7,11,2,9"


@pytest.fixture(autouse=True)
def in_fixtures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Paths in outputs are relative to fixtures/; the command's way to show warnings ends with the test."""
    monkeypatch.chdir(FIXTURES)
    with warnings.catch_warnings():
        yield


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def without_workspace(text: str) -> str:
    """The workspace's size follows the engine's inner workings, so it is not pinned."""
    return re.sub(r"(?m)^workspace +[0-9.]+ [KMG]?B", "workspace ? MB", text)


# ---- inspect ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [GGUF, HF, "gemma3/model.gguf", "llama-yarn/hf", "llama-shards/hf"])
def test_inspect_prints(model: str, file_regression: FileRegressionFixture) -> None:
    result = run("inspect", model, "--context", 100)
    assert result.stderr == ""
    file_regression.check(without_workspace(result.stdout), extension=".txt")


def test_inspect_lists_every_tensor_when_asked() -> None:
    lines = run("inspect", GGUF, "--tensors").stdout.splitlines()
    assert len([line for line in lines if line.startswith("blk.1.")]) == 9
    assert not any("blk.*" in line for line in lines)


def test_inspect_as_json_holds_the_same() -> None:
    report = json.loads(run("inspect", GGUF, "--json", "--context", 100).stdout)
    config = rml.load(GGUF).config
    assert report["parameters"] == config.parameter_count
    assert report["config"]["head_dim"] == {"value": 16, "source": "metadata: llama.attention.key_length"}
    assert report["stored_weights"] == config.parameter_count + 8, "rope_freqs.weight holds divisors, not parameters"
    assert report["memory"]["cache"]["f32"] == 112 * 2 * 2 * config.kv_size * 4, (
        "whole pages of 16, two layers, k and v"
    )
    assert report["tokenizer"]["bos"] == 1


def test_inspect_lists_what_cannot_be_run(tmp_path: Path) -> None:
    """The toy's header with another architecture: its tensors are still shown, and the reason."""
    path = tmp_path / "model.gguf"
    path.write_bytes((FIXTURES / GGUF).read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
    text = run("inspect", path).stdout
    assert "cannot be run: " in text
    assert "mamba" in text
    assert "blk.*.attn_q.weight" in text
    assert json.loads(run("inspect", path, "--json").stdout)["problem"]


def test_inspect_of_rubbish_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"rubbish" * 10)
    result = run("inspect", path, code=1)
    assert result.stdout == ""
    assert re.fullmatch(r"Error: .*model\.gguf: not a GGUF file.*\n", result.stderr)


# ---- logits ----------------------------------------------------------------------------------------------------------


def test_logits_prints(file_regression: FileRegressionFixture) -> None:
    text = run("logits", GGUF, "--ids", PROMPT_IDS, "--all", "--top", 2).stdout
    file_regression.check(text, extension=".txt")


def expected_logits(ids: list[int], **options: Any) -> Any:
    model = rml.load(GGUF, **options)
    return model.forward(ids, model.new_cache(len(ids)), all_logits=True)


def test_logits_as_json_are_the_models() -> None:
    ids = [int(part) for part in PROMPT_IDS.split(",")]
    expected = expected_logits(ids)
    report = json.loads(run("logits", GGUF, "--ids", PROMPT_IDS, "--all", "--top", 3, "--json").stdout)
    assert report["tokens"] == ids
    for row, position in zip(expected, report["positions"], strict=True):
        assert position["ids"] == np.argsort(-row, kind="stable")[:3].tolist()
        assert position["logits"] == row[position["ids"]].tolist()
        assert math.isclose(position["log_sum_exp"], math.log(np.exp(row).sum()), rel_tol=1e-12)
    last = json.loads(run("logits", GGUF, "--ids", PROMPT_IDS, "--json").stdout)["positions"]
    assert [position["position"] for position in last] == [5]
    assert last[0]["logits"][0] == report["positions"][5]["logits"][0]


@pytest.mark.parametrize("all_positions", [True, False])
def test_logits_can_be_saved(all_positions: bool, tmp_path: Path) -> None:
    out = tmp_path / "logits.npy"
    run("logits", GGUF, "--ids", PROMPT_IDS, "--out", out, *(["--all"] if all_positions else []))
    expected = expected_logits([int(part) for part in PROMPT_IDS.split(",")])
    saved = np.load(out)
    assert saved.dtype == np.float64
    assert np.array_equal(saved, expected if all_positions else expected[-1:])


def test_logits_of_a_model_without_a_tokenizer() -> None:
    assert "next text" in run("logits", HF, "--ids", "1,2,3").stdout
    assert "no tokenizer.json" in run("logits", HF, "some text", code=1).stderr


def test_options_reach_the_model() -> None:
    by_options = [
        run("logits", "llama/model-q8_0.gguf", "--ids", PROMPT_IDS, "--json", *options).stdout
        for options in ([], ["--dot", "exact"], ["--cache", "int8"], ["--threads", 1])
    ]
    default, exact, int8_cache, one_thread = (json.loads(text)["positions"] for text in by_options)
    assert default != exact
    assert default != int8_cache
    assert default == one_thread


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["logits", GGUF], 2, "give either PROMPT or --ids"),
        (["logits", GGUF, "text", "--ids", "1"], 2, "give either PROMPT or --ids"),
        (["logits", GGUF, "--ids", "1,x"], 2, "--ids takes numbers"),
        (["logits", GGUF, "--ids", ""], 1, "the prompt is empty"),
        (["logits", GGUF, "--ids", "1,64"], 1, "outside the vocabulary"),
        (["logits", "nowhere.gguf", "--ids", "1"], 2, "does not exist"),
        (["logits", GGUF, "--ids", "1", "--threads", "0"], 1, "threads=0"),
        (["generate", GGUF, "text", "--chat"], 1, "no chat template"),
        (["generate", GGUF, "--chat"], 2, "--chat needs PROMPT"),
        (["generate", GGUF, "--ids", "1", "--temperature", "-1"], 1, "temperature is -1"),
    ],
)
def test_mistakes_are_one_line_on_stderr(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert message in result.stderr
    assert "Traceback" not in result.stderr


# ---- generate --------------------------------------------------------------------------------------------------------


def greedy(ids: list[int], count: int) -> list[int]:
    """The likeliest tokens, one after the other, from whole forward passes."""
    model, added = rml.load(GGUF), list[int]()
    for _ in range(count):
        logits = model.forward([*ids, *added], model.new_cache(100))
        added.append(int(np.argmax(logits)))
    return added


def test_generate_streams_the_likeliest_tokens_to_stdout_and_speeds_to_stderr() -> None:
    expected = greedy([1, 5, 7], 6)
    result = run("generate", GGUF, "--ids", "1,5,7", "-n", 6, "--ignore-eos")
    tokenizer = open_tokenizer(GGUF)
    controls = {token for token in range(64) if tokenizer.is_control(token)}
    text = b"".join(tokenizer.piece(token) for token in expected if token not in controls).decode(errors="replace")
    assert result.stdout == text + "\n"
    assert "6 new" in result.stderr
    assert "tokens/s" in result.stderr
    assert run("generate", GGUF, "--ids", "1,5,7", "-n", 6, "--ignore-eos", "--quiet").stderr == ""


def test_generate_as_json() -> None:
    report = json.loads(run("generate", GGUF, "--ids", "1,5,7", "-n", 6, "--ignore-eos", "--json").stdout)
    assert report["tokens"] == greedy([1, 5, 7], 6)
    assert (report["prompt_tokens"], report["stopped_by"]) == ([1, 5, 7], "max_tokens")


def test_a_seed_repeats_a_draw() -> None:
    options = ["generate", GGUF, "--ids", "1,5", "-n", 12, "--temperature", 3, "--ignore-eos", "--json", "--seed"]
    first, again, other = (json.loads(run(*options, seed).stdout)["tokens"] for seed in (1, 1, 2))
    assert first == again != other


def test_a_prompt_from_stdin_is_the_same_prompt() -> None:
    by_argument = json.loads(run("generate", GGUF, "abc", "-n", 2, "--json").stdout)
    by_stdin = json.loads(run("generate", GGUF, "-", "-n", 2, "--json", stdin="abc").stdout)
    assert by_argument["prompt_tokens"] == by_stdin["prompt_tokens"] == open_tokenizer(GGUF).encode("abc")


def test_control_tokens_in_a_prompt_count_only_when_asked() -> None:
    def prompt(*options: str) -> list[int]:
        report = json.loads(run("generate", GGUF, "</s>", "-n", 1, "--json", *options).stdout)
        return list(report["prompt_tokens"])

    assert 2 not in prompt()
    assert prompt("--special") == [1, 2]


# ---- around ----------------------------------------------------------------------------------------------------------


def test_version_says_which_kernels_run() -> None:
    assert str(rml.BUILD) in run("--version").stdout


def test_help_of_every_command() -> None:
    for command in ("inspect", "generate", "logits", "verify"):
        assert run(command, "--help").stdout.startswith("Usage:")


def test_verify_commands_are_imported_when_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "some_check.py").write_text(
        "import click\n@click.command()\ndef command() -> None:\n    '''Some check.'''\n    click.echo('checked')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.VERIFY_COMMANDS, "some", "some_check:command")
    assert "Some check." in run("verify", "--help").stdout
    assert run("verify", "some").stdout == "checked\n"
    assert "No such command" in run("verify", "other", code=2).stderr


def test_warnings_are_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def warn() -> None:
        warnings.simplefilter("always")
        warnings.warn("something is unusual", stacklevel=1)

    monkeypatch.setitem(cli.main.commands, "warn", warn)
    assert run("warn").stderr == "warning: something is unusual\n"


def test_the_installed_command_stops_quietly_when_its_reader_does() -> None:
    command = [sys.executable, "-c", "from rml.cli import main; main()", "inspect", GGUF]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=FIXTURES)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (96_576_768, "96.6 MB"), (4.5e9, "4.5 GB"), (123e10, "1230 GB")],
)
def test_sizes(count: float, text: str) -> None:
    assert cli_tables.size_text(count) == text


def test_ranges() -> None:
    assert cli_tables.ranges_text([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"
    assert cli_tables.value_text("sliding_layers", [True, False, True, True]) == "0, 2-3"
    assert cli_tables.value_text("eos_ids", []) == "none"
