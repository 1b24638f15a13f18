"""The matrix of `rml verify determinism` for every toy model and for real checkpoints, one line per product.

    python -m tools.determinism_report                    all of fixtures/, and the checkpoints that have been fetched
    python -m tools.determinism_report --tokens 40 MODEL  other models, a shorter prompt

Each product of a model is run with 1 to 4 threads, the prompt whole, one by one and in uneven pieces, in a fresh cache
and in one that was used before. All runs of a line must give the same bytes: the hash is the SHA-256 of the logits.
Writes a Markdown table and a JSON file; ends with 1 if any line has two hashes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rml
from rml.verify_determinism import THREADS, Matrix, determinism, prompt_length
from rml.verify_text import random_ids
from tools.fetch_real_models import store_dir
from tools.report import ROOT, RUNS, markdown_table, stamp, stamp_text, write_json, write_text

COLUMNS = ("model", "product", "tokens", "runs", "hashes", "SHA-256 of the logits")


def toys() -> Iterator[Path]:
    """Every toy model in both formats: directories with a config.json, single GGUF files, the first of split ones."""
    fixtures = ROOT / "fixtures"
    found = [path.parent for path in fixtures.glob("*/**/config.json")]
    found += [path for path in fixtures.glob("*/*.gguf") if "-of-" not in path.name or "-00001-of-" in path.name]
    yield from sorted(found)


def checkpoints() -> Iterator[Path]:
    """GGUF files among the fetched models; those with random weights are there for speed alone."""
    yield from sorted(path for path in store_dir().glob("*.gguf") if not path.name.startswith("random-"))


def name_of(path: Path) -> str:
    """As the report calls it: relative to the project where it lies there."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def measure(path: Path, tokens: int | None) -> Iterator[dict[str, Any]]:
    """One row per product of the model."""
    vocab = rml.load(path, threads=1).config.vocab_size
    ids = random_ids(vocab, tokens or prompt_length(vocab))
    for matrix in determinism(path, ids, THREADS):
        yield row(name_of(path), len(ids), matrix)


def row(name: str, tokens: int, matrix: Matrix) -> dict[str, Any]:
    """What is kept of a matrix: how many ways gave how many different results, and the first one's hash."""
    return {
        "model": name, "product": matrix.dot, "tokens": tokens, "runs": len(matrix.cells), "hashes": len(matrix.hashes),
        "sha256": matrix.hashes[0],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="determinism_report", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: all toys and fetched models")
    parser.add_argument("--tokens", type=int, help="of the prompt (default: 150, fewer for big vocabularies)")
    parser.add_argument("--output", type=Path, default=RUNS / "determinism", help="path of the reports, without suffix")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for path in options.models or [*toys(), *checkpoints()]:
        for found in measure(path, options.tokens):
            rows.append(found)
            print(f"{found['model']} {found['product']}: {found['hashes']} of {found['runs']}", file=sys.stderr)
    head = stamp()
    cells = [(*list(found.values())[:-1], found["sha256"][:16]) for found in rows]
    text = f"# The same bits however a prompt is run\n\n{stamp_text(head)}\n{markdown_table(COLUMNS, cells)}"
    write_text(options.output.with_suffix(".md"), text)
    write_json(options.output.with_suffix(".json"), head, rows)
    several = sum(found["hashes"] != 1 for found in rows)
    print(f"{len(rows)} lines, {several} with more than one hash; wrote {options.output.with_suffix('.md')}")
    return 1 if several else 0


if __name__ == "__main__":
    sys.exit(main())
