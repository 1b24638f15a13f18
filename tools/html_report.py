"""One HTML page per run: tables, error per layer as pictures, distributions. Opens from disk, on a phone too.

    python -m tools.html_report                       every JSON report in reports/runs/, each page beside its file
    python -m tools.html_report goldens real_models   only these (bench: the newest benchmark)
    python -m tools.html_report FILE.json ...         these files
    python -m tools.html_report FILE.json -o OUT.html

The pages are made from what the sessions write: goldens.json (tools/check_goldens.py), real_models.json
(tools/check_real_models.py) with real_layers.json (tools/real_layers.py) and big_model.json (tools/big_model.py)
beside it, if they are there, and bench-*.json (tools/benchmark.py). Nothing is fetched, then or later.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import html_bench, html_goldens, html_real
from tools.html_page import Page, render
from tools.report import RUNS, write_text

Row = Mapping[str, Any]
NAMES = ("goldens", "real_models", "bench")
BESIDE = ("real_layers", "big_model")  # shown on the page of real_models, and on no page of their own


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Stamp and rows of a report. Raises ValueError for a file that is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        head, rows = content["stamp"], content["rows"]
        commit, first = head["commit"], rows[0]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path}: not a report, or one without rows ({type(error).__name__}: {error})") from None
    assert isinstance(commit, str)
    assert isinstance(first, dict)
    return head, rows


def kind_of(head: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Which session wrote the report: its stamp says so, or its rows."""
    if head.get("report") in ("goldens", "benchmark", *BESIDE):
        return str(head["report"])
    return "real_models" if "checkpoint" in rows[0] else "big_model" if "model" in rows[0] else "unknown"


def page_of(path: Path) -> Page:
    """The page of one report. Raises ValueError for a file of no known kind."""
    head, rows = read(path)
    kind = kind_of(head, rows)
    if kind == "goldens":
        return html_goldens.page(head, rows, path.name)
    if kind == "benchmark":
        return html_bench.page(head, rows, path.name)
    if kind == "real_models":
        beside = {name: path.with_name(f"{name}.json") for name in BESIDE}
        found = {name: read(file)[1] for name, file in beside.items() if file.exists()}
        made_from = ", ".join([path.name, *(beside[name].name for name in found)])
        return html_real.page(head, rows, found.get("real_layers", []), found.get("big_model", []), made_from)
    raise ValueError(f"{path}: there is no page for a report of this kind ({kind})")


def chosen(names: Sequence[str], folder: Path) -> list[Path]:
    """The reports that are asked for; without names all that have a page of their own."""
    benches = sorted(folder.glob("bench-*.json"), key=lambda path: path.stat().st_mtime)
    if not names:
        ours = [folder / f"{name}.json" for name in ("goldens", "real_models")]
        return [path for path in [*ours, *benches] if path.exists()]
    newest = benches[-1] if benches else folder / "bench.json"
    return [newest if name == "bench" else folder / f"{name}.json" if name in NAMES else Path(name) for name in names]


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 1 if a report could not be read, or there was none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", metavar="NAME or FILE", help=f"{', '.join(NAMES)}, or JSON files")
    parser.add_argument("--report-dir", type=Path, default=RUNS, help="where the named reports are")
    parser.add_argument("-o", "--output", type=Path, help="the page's file, where there is one report")
    options = parser.parse_args(argv)
    paths = chosen(options.reports, options.report_dir)
    if options.output and len(paths) != 1:
        parser.error(f"--output is for one report; there are {len(paths)}")
    failed = 0
    for path in paths:
        try:
            text = render(page_of(path))
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
            continue
        place = options.output or path.with_suffix(".html")
        write_text(place, text)
        print(f"{place} ({len(text.encode()) / 1000:.0f} KB)")
    if not paths:
        print(f"no reports in {options.report_dir}: `nox -s goldens` writes one", file=sys.stderr)
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
