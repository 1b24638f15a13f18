"""Writes fixtures/: toy models of every family in both formats, and the reference's logits for them.

    python tools/make_llm_fixtures.py             rewrite everything, byte for byte the same unless something changed
    python tools/make_llm_fixtures.py llama       only the toys whose name begins so
    python tools/make_llm_fixtures.py --check     write nothing; compare a fresh set with what is there

Weights come from seeds (fixture_weights.py), files from the safetensors and gguf packages, logits from reference/
in its ordered arithmetic, so the bytes do not depend on the machine. A toy's files all hold the same model and
share logits.json, unless a file cannot hold it exactly (quantised weights, frequencies in float32): such a file has
NAME.logits.json beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file, this finds the packages beside it

import reference  # noqa: E402
from tools import fixture_gguf, fixture_hf  # noqa: E402
from tools.fixture_list import TOYS  # noqa: E402
from tools.fixture_toys import PROMPT_LENGTH, Toy  # noqa: E402
from tools.fixture_weights import prompt, weights  # noqa: E402

FIXTURES = ROOT / "fixtures"
SAME_MODEL = 1e-11  # between logits of two files of one model: GGUF keeps the eps of the norms in float32


def models(directory: Path) -> list[Path]:
    """What can be loaded in a toy's directory: hf/, and each GGUF file that is not a later part of a split set."""
    parts = sorted(p for p in directory.glob("*.gguf") if "-of-" not in p.name or "-00001-of-" in p.name)
    return ([directory / "hf"] if (directory / "hf").is_dir() else []) + parts


def logits_file(model: Path) -> Path:
    """The golden logits of a model path: NAME.logits.json beside a GGUF file if there is one, else logits.json."""
    own = model.with_name(model.name.removesuffix(".gguf") + ".logits.json")
    return own if own.exists() else model.parent / "logits.json"


def golden_text(name: str, tokens: list[int], logits: np.ndarray[Any, Any]) -> str:
    """JSON with one line of logits per position; repr gives back the same doubles."""
    rows = ",\n".join(json.dumps(row.tolist()) for row in logits)
    head = {"model": name, "generator": "tools/make_llm_fixtures.py", "made": "reference/, float64, ordered"}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**head, "tokens": tokens}.items()]
    return "{\n" + ",\n".join(lines) + ',\n"logits": [\n' + rows + "\n]\n}\n"


def make(root: Path, toy: Toy) -> None:
    """One directory: the model files, then their logits."""
    directory = root / toy.name
    shutil.rmtree(directory, ignore_errors=True)
    config = toy.config()
    tensors = weights(toy.seed or toy.family, config)
    if toy.hf:
        fixture_hf.write(directory / "hf", toy, tensors)
    if toy.gguf:
        fixture_gguf.write(directory / "model.gguf", toy, tensors, {})
    for stem, types in toy.quantised.items():
        fixture_gguf.write(directory / f"{stem}.gguf", toy, tensors, types)
    tokens = prompt(PROMPT_LENGTH, config["vocab_size"])
    shared = None
    for model in models(directory):
        logits = reference.load(model, ordered=True).forward(tokens)
        name = f"{toy.name}/{model.name}"
        if shared is None:
            shared = logits
            (directory / "logits.json").write_text(golden_text(name, tokens, logits), encoding="utf-8")
        elif np.abs(logits - shared).max() > SAME_MODEL:
            own = directory / (model.name.removesuffix(".gguf") + ".logits.json")
            own.write_text(golden_text(name, tokens, logits), encoding="utf-8")


def manifest(root: Path) -> dict[str, Any]:
    """Hashes of all files, and each model path with its golden logits. real/ and big/ have generators of their own."""
    suffixes, others = (".json", ".gguf", ".safetensors"), (root / "real", root / "big")
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.suffix in suffixes and p.parent not in others)
    hashes = {
        p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in files
        if p.name != "MANIFEST.json"
    }
    cases = [
        {
            "model": model.relative_to(root).as_posix(),
            "logits": logits_file(model).relative_to(root).as_posix(),
            "family": toy.family,
            "note": toy.note,
        }
        for toy in TOYS
        for model in models(root / toy.name)
    ]
    return {"generator": "tools/make_llm_fixtures.py", "cases": cases, "sha256": hashes}


def write_all(root: Path, names: list[str]) -> None:
    for toy in TOYS:
        if not names or any(toy.name.startswith(name) for name in names):
            make(root, toy)
            print(f"{toy.name}: {toy.note}", file=sys.stderr)
    known = {toy.name for toy in TOYS}
    for directory in (p for p in root.iterdir() if p.is_dir()):
        if directory.name not in known and (directory / "logits.json").exists():
            shutil.rmtree(directory)  # a toy that the list no longer has
    (root / "MANIFEST.json").write_text(json.dumps(manifest(root), indent=1) + "\n", encoding="utf-8")


def differences(fresh: dict[str, str], here: dict[str, str], listed: dict[str, str]) -> list[str]:
    """One line for each file whose three hashes (made now, on disk, in the manifest) are not the same."""
    lines = []
    for name in sorted({*fresh, *here, *listed}):
        hashes = [("made now", fresh.get(name)), ("on disk", here.get(name)), ("MANIFEST.json", listed.get(name))]
        if len({value for _, value in hashes}) > 1:
            lines.append(f"{name}: " + ", ".join(f"{label} {(value or 'missing')[:12]}" for label, value in hashes))
    return lines


def check(root: Path) -> int:
    """Makes a fresh set in a temporary directory and prints what differs. Returns the exit code."""
    listed = json.loads((root / "MANIFEST.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        write_all(Path(place), [])
        fresh = manifest(Path(place))
    lines = differences(fresh["sha256"], manifest(root)["sha256"], listed["sha256"])
    if fresh["cases"] != listed["cases"]:
        lines.append("MANIFEST.json: the list of cases differs")
    print("\n".join([*lines, f"{len(fresh['sha256'])} files, {len(lines)} differences"]))
    if lines:
        print(", ".join(f"{name} {version(name)}" for name in ("gguf", "safetensors", "numpy")))
    return 1 if lines else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make_llm_fixtures", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only toys whose names begin so")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if anything would change")
    options = parser.parse_args(arguments)
    if options.check:
        return check(FIXTURES)
    FIXTURES.mkdir(exist_ok=True)
    write_all(FIXTURES, options.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
