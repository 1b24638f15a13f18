"""JSON files of a model directory: read within limits, every oddity a BadFile that names the file."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rml.errors import BadFile, InvalidArgument
from rml.mapped_file import but_it_is

MAX_JSON_BYTES = 100_000_000  # the limit of the safetensors package for a header


def parse_json(text: bytes, where: str) -> dict[str, object]:
    """A JSON object; BadFile if it is not one, if a key occurs twice, or if a number is NaN or infinite."""

    def unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise BadFile(f"{where}: key {twice!r} occurs twice")
        return result

    def refuse(constant: str) -> object:
        raise BadFile(f"{where}: {constant} is not a JSON number")

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError as error:
        raise BadFile(f"{where}: nested too deeply to be JSON of a model") from error
    except BadFile:
        raise
    except ValueError as error:  # also undecodable bytes, and integers of thousands of digits
        instead = "" if text[:1] in b"{[" else but_it_is(text)
        raise BadFile(f"{where}: not JSON ({error}){instead}") from error
    if not isinstance(value, dict):
        raise BadFile(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file; InvalidArgument if there is no such file."""
    if not path.is_file():
        raise InvalidArgument(f"{path}: no such file")
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise BadFile(f"{path}: {size} bytes are too many for JSON of a model (limit {MAX_JSON_BYTES})")
    return parse_json(path.read_bytes(), str(path))


def member(directory: Path, name: str) -> Path:
    """directory / name, for a name that may come from a file: BadFile if it leads out of the directory.

    A link may lead into the `blobs` of the Hugging Face cache whose snapshot the directory is, and nowhere else.
    """
    if not name or name in (".", "..") or "\0" in name or name != os.path.basename(name) or "\\" in name:
        raise BadFile(f"{directory}: {name!r} is not a plain file name; nothing outside the directory is opened")
    path = directory / name
    if path.is_symlink():
        target, home = path.resolve(), directory.resolve()
        roots = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
        if not any(target.is_relative_to(root) for root in roots):
            raise BadFile(f"{path}: a link out of the directory, to {target}; copy the file into the directory")
    return path
