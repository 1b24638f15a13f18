"""Every toy model of fixtures/ against its golden logits and, activation by activation, against the reference.

    python -m tools.check_goldens                 all toys; a table, then `N passed, N failed`
    python -m tools.check_goldens gemma3 llama    only toys whose names begin so
    python -m tools.check_goldens --quiet         only the last line

tests/test_goldens.py judges the same logits, in more ways of feeding them; this says how far within its limits every
toy is, and at which layer what error there is begins. Exact products with a cache of float64 and of float32 have limits
(tests/tolerances.py). Caches of float16 and int8 and int8 products round by design: they are measured, not judged.
Writes goldens.md and goldens.json to reports/runs/; `python -m tools.html_report goldens` makes a page of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools import report
from tools.checkpoints import ROOT
from tools.layer_errors import histogram, histogram_row, layers_row, tap_errors
from tools.progress import Progress

sys.path.append(str(ROOT / "tests"))  # behind what is installed

from tolerances import ENGINE_EXACT_F32, ENGINE_EXACT_F64

import reference
import rml
from rml.cli_tables import table_text
from rml.kv_cache import CacheType
from tools.comparison import Divergence

Array = npt.NDArray[np.float64]
FIXTURES = ROOT / "fixtures"
FLOATS = {"F32", "F16", "BF16"}


@dataclass(frozen=True)
class Way:
    """One way of running the engine, and the largest error it may have; None where it rounds by design."""

    name: str
    dot: str
    cache: CacheType
    limit: float | None = None


WAYS = (
    Way("exact, f64 cache", "exact", "f64", ENGINE_EXACT_F64),
    Way("exact, f32 cache", "exact", "f32", ENGINE_EXACT_F32),
    Way("exact, f16 cache", "exact", "f16"),
    Way("exact, int8 cache", "exact", "int8"),
    Way("int8, f32 cache", "int8", "f32"),  # only where weights are quantised: elsewhere it is exact
)


class Toy:
    """One file or directory: its golden, and the reference's activations."""

    def __init__(self, case: dict[str, str]) -> None:
        golden = json.loads((FIXTURES / case["logits"]).read_text(encoding="utf-8"))
        self.name, self.family, self.path = case["model"], case["family"], FIXTURES / case["model"]
        self.tokens: list[int] = golden["tokens"]
        self.logits = np.array(golden["logits"])
        self.taps: dict[str, Array] = {}
        reference.load(self.path).forward(self.tokens, self.taps)

    def about(self, way: Way) -> dict[str, Any]:
        """What every row of this toy begins with."""
        form = "gguf" if self.path.suffix == ".gguf" else "safetensors"
        return {"case": self.name, "family": self.family, "format": form, "way": way.name}

    def rows(self, totals: dict[str, npt.NDArray[np.int64]]) -> Iterator[dict[str, Any]]:
        """A row of figures and a row of layers for every way of running it; adds to each way's histogram."""
        for way in WAYS:
            model = rml.load(self.path, threads=1, dot=way.dot)
            stored = {tensor.type.name for tensor in model.weights.tensors.values()}
            if way.dot == "int8" and stored <= FLOATS:
                continue
            got = model.forward(self.tokens, model.new_cache(len(self.tokens), way.cache), all_logits=True)
            totals[way.name] = totals.get(way.name, 0) + histogram(got, self.logits)
            yield {"kind": "logits", **self.about(way), "stored": sorted(stored), **self.figures(got, way)}
            yield layers_row(tap_errors(model, self.tokens, way.cache, self.taps).errors(), **self.about(way))

    def figures(self, got: Array, way: Way) -> dict[str, Any]:
        """How far the logits are from the golden ones, and whether that is near enough."""
        found = Divergence()
        for position, (want, row) in enumerate(zip(self.logits, got, strict=True)):
            found.add(position, want, row)
        return {
            "worst": found.worst,
            "position": found.worst_at[0],
            "token": found.worst_at[1],
            "mean_kl": max(found.mean_kl, 0.0),
            "top1": found.top1,
            "limit": way.limit,
            "passed": None if way.limit is None else found.worst < way.limit,
        }


def all_rows(names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the chosen toys, and the histograms over all of them."""
    cases = json.loads((FIXTURES / "MANIFEST.json").read_text(encoding="utf-8"))["cases"]
    chosen = [case for case in cases if not names or case["model"].startswith(tuple(names))]
    rows: list[dict[str, Any]] = []
    totals: dict[str, npt.NDArray[np.int64]] = {}
    with Progress("goldens", len(chosen), "files") as progress:
        for case in chosen:
            rows += Toy(case).rows(totals)
            progress.advance()
    return rows + [histogram_row(counts, way=name) for name, counts in totals.items()]


FIGURES = ("worst error", "limit", "mean KL", "top-1")
COLUMNS = ("toy", "way", "verdict", *FIGURES, "where")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of figures as it is shown."""
    verdict = {None: "-", True: "passed", False: "FAILED"}[row["passed"]]
    return (
        row["case"],
        row["way"],
        verdict,
        report.number_text(row["worst"]),
        report.number_text(row["limit"]),
        report.number_text(row["mean_kl"]),
        f"{100 * row['top1']:.1f} %",
        f"position {row['position']}, token {row['token']}",
    )


def write_reports(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """goldens.md and goldens.json."""
    stamp = report.stamp(1) | {"report": "goldens"}
    lines = [cells(row) for row in rows if row["kind"] == "logits"]
    text = f"# Goldens\n\n{report.stamp_text(stamp)}\n{report.markdown_table(COLUMNS, lines, FIGURES)}"
    report.write_text(folder / "goldens.md", text)
    report.write_json(folder / "goldens.json", stamp, rows)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 1 if a limit was broken or nothing was there to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only toys whose names begin so")
    parser.add_argument("--quiet", action="store_true", help="print only the last line")
    parser.add_argument("--report-dir", type=Path, default=report.RUNS, help="where reports go")
    options = parser.parse_args(argv)
    rows = all_rows(options.names)
    write_reports(options.report_dir, rows)
    judged = [row for row in rows if row["kind"] == "logits"]
    failed = sum(row["passed"] is False for row in judged)
    if not options.quiet:
        print(table_text("Goldens", COLUMNS, map(cells, judged), FIGURES))
    print(f"{sum(row['passed'] is True for row in judged)} passed, {failed} failed")
    return 1 if failed or not judged else 0


if __name__ == "__main__":
    sys.exit(main())
