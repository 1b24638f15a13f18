"""Joins two benchmark runs row by row.

    python -m tools.compare_bench OLD.json NEW.json           or: nox -s compare -- OLD.json NEW.json

Absolute figures move with the machine, so each row is compared twice: NEW over OLD, and NEW's ratio to llama.cpp over
OLD's, in which the machine cancels out. A change counts when it is larger than both runs' spreads together. Above 1 is
better in both columns, whatever the unit.

Ends with 1 when a row of rml has become worse, or has lost its figure (wrong logits, a crash).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench_goals import label
from tools.bench_report import read_run

KEY = ("model", "engine", "threads", "what", "n")
SMALLEST = 0.03  # a smaller change is noise, however small the spreads
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A row of both runs.

    factor: NEW over OLD, as times better. relative: the same of the ratios to llama.cpp. noise: the sum of the spreads.
    """

    key: tuple[Any, ...]
    old: Row
    new: Row
    factor: float | None
    relative: float | None
    noise: float

    @property
    def lost(self) -> bool:
        """There was a figure, and now there is a reason why there is none."""
        return "value" in self.old and "value" not in self.new

    @property
    def verdict(self) -> str:
        """In a word: better, worse, lost, or nothing that counts."""
        if self.lost:
            return "lost"
        factor = self.relative if self.relative is not None else self.factor
        if factor is None or abs(factor - 1) <= max(self.noise, SMALLEST):
            return ""
        return "better" if factor > 1 else "worse"


def better(old: float, new: float, more_is_better: bool) -> float:
    """How many times better the new value is."""
    return new / old if more_is_better else old / new


def changes(old: Sequence[Row], new: Sequence[Row]) -> Iterator[Change]:
    """Rows of one name in both runs; rows without a figure in either are left out."""
    before = {tuple(found[name] for name in KEY): found for found in old}
    for found in new:
        key = tuple(found[name] for name in KEY)
        was = before.get(key)
        if was is None or ("value" not in was and "value" not in found):
            continue
        factor = relative = None
        if "value" in was and "value" in found:
            factor = better(was["value"], found["value"], found["unit"] in ("tokens/s", "GB/s"))
            if "ratio" in was and "ratio" in found and found["engine"] != "llama.cpp":
                relative = better(was["ratio"], found["ratio"], found["unit"] != "MB")
        noise = was.get("spread", 0.0) + found.get("spread", 0.0)
        yield Change(key, was, found, factor, relative, noise)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What of the two runs' circumstances is not the same."""
    names = ("processor", "cores", "kernels", "python", "quick", "versions", "rounds")
    return [f"{name}: {old.get(name)} / {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def only_in(rows: Sequence[Row], others: Sequence[Row]) -> int:
    """How many figures have no counterpart in the other run."""
    keys = {tuple(found[name] for name in KEY) for found in others}
    return sum("value" in found and tuple(found[name] for name in KEY) not in keys for found in rows)


def figure(found: Row) -> str:
    """A value with its spread, or why there is none."""
    return f"{found['value']:.4g} ± {found['spread']:.0%}" if "value" in found else str(found.get("note", "-"))


def times(value: float | None) -> str:
    """A factor for a cell."""
    return "-" if value is None else f"{value:.3f}"


def show(console: Console, found: Sequence[Change]) -> None:
    """The table."""
    table = Table("model", "engine", "threads", "what", "unit", "old", "new", "new / old", "of llama.cpp", "")
    for column in table.columns[5:9]:
        column.justify = "right"
    colours = {"better": "green", "worse": "red", "lost": "red"}
    for change in found:
        model, engine, threads = change.key[:3]
        values = (figure(change.old), figure(change.new), times(change.factor), times(change.relative))
        unit = str(change.old.get("unit", change.new.get("unit", "")))
        table.add_row(
            model,
            engine,
            str(threads),
            label(change.new),
            unit,
            *values,
            change.verdict,
            style=colours.get(change.verdict, ""),
        )
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="nox -s compare --", description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("new", type=Path, metavar="NEW")
    parser.add_argument("--all", action="store_true", help="every row of every engine, not only rml's")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    try:
        (old_head, old_rows), (new_head, new_rows) = read_run(options.old), read_run(options.new)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = [c for c in changes(old_rows, new_rows) if options.all or c.key[1] == "rml"]
    if not found:
        print("the two runs have no row in common", file=sys.stderr)
        return 2
    console.print(f"old: {options.old.name}, commit {old_head['commit']}, {old_head['time']}")
    console.print(f"new: {options.new.name}, commit {new_head['commit']}, {new_head['time']}")
    for line in differences(old_head, new_head):
        console.print(f"not the same: {line}", style="yellow")
    show(console, found)
    verdicts = [change.verdict for change in found if change.key[1] == "rml"]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("better", "worse", "lost"))
    alone = f"only in old {only_in(old_rows, new_rows)}, only in new {only_in(new_rows, old_rows)}"
    console.print(f"{len(verdicts)} rows of rml: {counts}; {alone}")
    return 1 if "worse" in verdicts or "lost" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
