"""A model of Llama-3.1-8B's size on a small machine: random weights, the reference's goldens, the engine against both.

    python -m tools.big_model                     all of it: 4.5 GB written, about 10 minutes, then deleted
    python -m tools.big_model --layers 4          the same shape, cut down
    python -m tools.big_model --check             the engine against the committed golden; no run of the reference
    python -m tools.big_model --golden            also (re)writes fixtures/big/NAME.json

The file is written a few megabytes at a time. The reference streams it one layer at a time and saves its state after
each: stop it at any point, start the same command, and it goes on. Each step shows its progress and the time left. The
model lies in $RML_MODELS_DIR (default .models/) and is deleted in the end unless --keep is given.

Prints a table, writes big_model.md and big_model.json to reports/runs/, and ends with `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rml
from rml.cli_tables import size_text, table_text
from rml.generate import argmax
from rml.scoring import reduce_row
from tools import llama_cpp_peer, real_goldens, report
from tools.check_real_models import kept_error
from tools.checkpoints import models_dir
from tools.comparison import Divergence
from tools.fixture_weights import integers
from tools.peak_memory import PeakMemory
from tools.progress import Progress
from tools.random_gguf import SHAPES, Shape, parameters, shape_of, tensors, write_with_progress
from tools.real_goldens import GREEDY, TOP
from tools.real_limits import LIMITS, Limit
from tools.resumable import continuation

Logits = npt.NDArray[np.float64]
TOKENS = 64  # of the prompt: four pages of the cache
ROUNDED_ERROR = 3.0  # of the kept logits with int8 products, which are of size 11: seen 0.96 after 32 layers
PEER_FACTOR = 1.5  # int8's divergence over llama.cpp's: the same roundings, but random weights pass on every difference
STEP = 32  # of them at a time: one tile of the kernels


@dataclass
class Row:
    """One line of the result; None where a number does not apply. memory: bytes at the peak, mapped files included."""

    model: str
    what: str
    passed: bool | None
    seconds: float
    memory: int | None = None
    positions: int | None = None
    golden_error: float | None = None
    worst: float | None = None
    mean_kl: float | None = None
    top1: float | None = None
    greedy: str = ""
    note: str = ""


def rows(
    model: rml.DecoderLM, ids: Sequence[int], cache: rml.KvCache, what: str, last_only: bool = False
) -> Iterator[Logits]:
    """The engine's logits (vocab,) of each position, or of the last of every few, with progress."""
    with Progress(what, len(ids), "positions") as progress:
        for first in range(0, len(ids), STEP):
            piece = ids[first : first + STEP]
            yield from np.atleast_2d(model.forward(piece, cache, all_logits=not last_only))
            progress.advance(len(piece))


def greedy(model: rml.DecoderLM, logits: Logits, cache: rml.KvCache, count: int = GREEDY) -> list[int]:
    """The `count` likeliest tokens from these logits on."""
    added = [argmax(logits)]
    while len(added) < count:
        added.append(argmax(model.forward(added[-1:], cache)))
    return added


class Run:
    """One model from its first byte to the table."""

    def __init__(self, shape: Shape, folder: Path, golden: Path, threads: int | None) -> None:
        self.shape, self.folder, self.golden_path, self.threads = shape, folder, golden, threads
        self.name = f"random-{shape.name}-{shape.layers}-layers-q4_0"
        self.path = folder / f"{self.name}.gguf"
        self.rows: list[Row] = []

    def write(self) -> None:
        """The model's file, unless it is there."""
        wanted = sum(tensor.nbytes for tensor in tensors(self.shape))
        if self.path.exists() and self.path.stat().st_size >= wanted:
            return
        clock, peak = time.monotonic(), PeakMemory()
        size = write_with_progress(self.path, self.shape)
        note = f"{parameters(self.shape) / 1e9:.2f} G weights, {size_text(size)}"
        self.rows.append(Row(self.name, "write", None, time.monotonic() - clock, peak.bytes(), note=note))

    def prompt(self) -> list[int]:
        """Random tokens."""
        return list(map(int, integers(f"big model {self.shape.vocab}", TOKENS, 0, self.shape.vocab - 1)))

    def propose(self, ids: Sequence[int], count: int) -> list[int]:
        """The engine's greedy continuation, for the reference to confirm."""
        model = rml.load(self.path, self.threads, dot="exact")
        cache = model.new_cache(len(ids) + count, "f64")
        *_, last = rows(model, ids, cache, "engine, proposal", last_only=True)
        return greedy(model, last, cache, count)

    def reference(self) -> tuple[dict[str, Any], Logits]:
        """The golden, and all logits (tokens, vocab), from the reference."""
        proposal = self.propose(self.prompt(), GREEDY)
        clock, peak = time.monotonic(), PeakMemory()
        first = True

        def propose(ids: Sequence[int], count: int) -> list[int]:
            nonlocal first
            found, first = (proposal if first else self.propose(ids, count)), False
            return found

        ids = self.prompt()
        run, added, margins = continuation(propose, self.path, ids, GREEDY, f"{len(ids) + GREEDY} tokens", self.folder)
        logits = np.array(list(run.rows(range(len(ids)))))
        note = f"{len(ids) + GREEDY} tokens through {self.shape.layers} layers; numpy's BLAS"
        self.rows.append(Row(self.name, "reference", None, time.monotonic() - clock, peak.bytes(), note=note))
        run.forget()
        return self.golden(ids, added, margins, logits), logits

    def golden(self, ids: list[int], added: list[int], margins: list[float], logits: Logits) -> dict[str, Any]:
        """What is committed: as in tools/real_goldens.py, without what a model without words has none of."""
        return {
            "checkpoint": self.name,
            "file": {"size": self.path.stat().st_size, "written_by": "tools/random_gguf.py", "seed": ""},
            "made": {"by": "tools/big_model.py", "commit": report.commit(), "numpy": np.__version__},
            "prompts": [
                {
                    "name": "random",
                    "ids": ids,
                    "greedy": added,
                    "margins": margins,
                    "positions": [reduce_row(at, row, TOP).as_dict() for at, row in enumerate(logits)],
                }
            ],
        }

    def engine(self, limit: Limit, golden: Mapping[str, Any], wanted: Logits | None, peer_kl: float | None) -> None:
        """One way of running the engine, against the golden and, if they are there, all logits of the reference."""
        prompt = golden["prompts"][0]
        clock, peak = time.monotonic(), PeakMemory()
        model = rml.load(self.path, self.threads, dot=limit.dot)
        found, golden_error = Divergence(), 0.0
        cache = model.new_cache(len(prompt["ids"]) + GREEDY, limit.cache)
        for at, logits in enumerate(rows(model, prompt["ids"], cache, f"engine, {limit.name}")):
            golden_error = max(golden_error, kept_error(prompt["positions"][at], logits))
            if wanted is not None:
                found.add(at, wanted[at], logits)
        equal = greedy(model, logits, cache) == prompt["greedy"]
        row = Row(self.name, limit.name, True, time.monotonic() - clock, peak.bytes(), len(prompt["ids"]), golden_error)
        row.greedy = "equal" if equal else "differs"
        if wanted is not None:
            row.worst, row.mean_kl, row.top1 = found.worst, max(found.mean_kl, 0.0), found.top1
        # random weights have near ties: a path that rounds may take another token
        judged = 0.0 if equal or limit.logits is None else math.inf
        bounds = replace(limit, peer_factor=PEER_FACTOR if limit.peer_factor else None)
        failures = list(bounds.failures(row.golden_error, row.worst, row.mean_kl, peer_kl, judged))
        if limit.logits is None and not golden_error < ROUNDED_ERROR:
            failures.append(f"top-8 error above {ROUNDED_ERROR:g}")
        threads = f"{model.threads} thread{'s' * (model.threads > 1)}"
        row.passed, row.note = not failures, "; ".join([threads, *failures])
        self.rows.append(row)

    def peer(self, golden: Mapping[str, Any], wanted: Logits | None) -> float | None:
        """llama.cpp's mean divergence on the same file, if it is installed: what int8 is held to."""
        if wanted is None or not llama_cpp_peer.is_installed():
            return None
        ids = golden["prompts"][0]["ids"]
        clock, found = time.monotonic(), Divergence()
        for at, logits in enumerate(llama_cpp_peer.logits(self.path, ids)):
            found.add(at, wanted[at], logits)
        row = Row(self.name, "llama.cpp", None, time.monotonic() - clock, None, len(ids))
        row.worst, row.mean_kl, row.top1 = found.worst, max(found.mean_kl, 0.0), found.top1
        row.note = f"{llama_cpp_peer.describe()}, 1 thread"
        self.rows.append(row)
        return found.mean_kl

    def compare(self, golden: Mapping[str, Any], wanted: Logits | None) -> None:
        """All ways of running the engine."""
        peer_kl = self.peer(golden, wanted)
        for limit in LIMITS:
            self.engine(limit, golden, wanted, peer_kl)


FIGURES = ("seconds", "peak memory", "top-8 error", "worst error", "mean KL", "top-1")
COLUMNS = ("what", "verdict", *FIGURES, "greedy", "note")


def cells(row: Row) -> tuple[str, ...]:
    """A row as it is shown."""
    return (
        row.what,
        "-" if row.passed is None else "passed" if row.passed else "FAILED",
        f"{row.seconds:.1f}",
        "-" if row.memory is None else size_text(row.memory),
        report.number_text(row.golden_error),
        report.number_text(row.worst),
        report.number_text(row.mean_kl),
        "-" if row.top1 is None else f"{100 * row.top1:.1f} %",
        row.greedy or "-",
        row.note,
    )


def write_reports(folder: Path, run: Run) -> None:
    """big_model.md and big_model.json."""
    stamp = report.stamp(run.threads)
    text = (
        f"# {run.name}\n\n"
        + report.stamp_text(stamp)
        + "\n"
        + report.markdown_table(COLUMNS, map(cells, run.rows), FIGURES)
        + EXPLANATION
    )
    report.write_text(folder / "big_model.md", text)
    report.write_json(folder / "big_model.json", stamp, [asdict(row) for row in run.rows])


EXPLANATION = """
- **peak memory**: of the whole process during this step, mapped pages of the model's file included.
- **top-8 error**: largest difference from the eight largest logits, or from the log-sum-exp, of the golden.
- **worst error**, **mean KL** (nats), **top-1**: against all logits of the float64 reference, at every position.
"""


def verdict(run: Run) -> int:
    """Prints the table and the last line; the exit code."""
    judged = [row for row in run.rows if row.passed is not None]
    failed = sum(not row.passed for row in judged)
    print(table_text(run.name, COLUMNS, map(cells, run.rows), FIGURES))
    print(f"{len(judged) - failed} passed, {failed} failed")
    return 1 if failed or not judged else 0


def main(argv: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="llama-3.1-8b")
    parser.add_argument("--layers", type=int, help="instead of the shape's own number")
    parser.add_argument("--threads", type=int, help="of the engine; the reference's are BLAS's ($OPENBLAS_NUM_THREADS)")
    parser.add_argument("--check", action="store_true", help="only the engine, against the committed golden")
    parser.add_argument("--golden", action="store_true", help="write the golden too")
    parser.add_argument("--golden-dir", type=Path, default=report.ROOT / "fixtures" / "big", help="where goldens are")
    parser.add_argument("--keep", action="store_true", help="do not delete the model")
    parser.add_argument("--models-dir", type=Path, help="where the model is written (default: $RML_MODELS_DIR)")
    parser.add_argument("--report-dir", type=Path, default=report.RUNS, help="where reports go")
    options = parser.parse_args(argv)
    try:
        shape = shape_of(options.shape, options.layers)
    except ValueError as error:
        parser.error(str(error))
    run = Run(shape, options.models_dir or models_dir(), options.golden_dir, options.threads)
    place = options.golden_dir / f"{run.name}.json"
    if options.check and not place.is_file():
        parser.error(f"there is no golden of {run.name}; --golden makes it")
    run.write()
    golden, wanted = (json.loads(place.read_text(encoding="utf-8")), None) if options.check else run.reference()
    if options.golden:
        report.write_text(place, real_goldens.laid_out(golden) + "\n")
    run.compare(golden, wanted)
    write_reports(options.report_dir, run)
    if not options.keep:
        run.path.unlink()
    return verdict(run)


if __name__ == "__main__":
    sys.exit(main())
