"""Speed of whole models, side by side: rml, llama.cpp and transformers on the same weights, in the same run.

    python -m tools.benchmark             every model, 1 and 2 threads; reports/runs/bench-DATE-COMMIT.json, .md, -*.png
    python -m tools.benchmark --quick     two models in about a minute, marked quick: shows that everything works
    python -m tools.benchmark --models gemma3-270m-q4_k_m --threads 2 --engines rml llama.cpp
    python -m tools.benchmark --list      the models

Prefill of 16, 128 and 512 tokens, decoding after 0, 512 and 2048, load from disk and from memory, peak memory. Each row
carries a correctness stamp against rml's exact arithmetic (bench_stamp.py); a row whose logits are wrong has no speed.
Only ratios within one run count: `python -m tools.compare_bench OLD NEW` compares two runs by them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.bench_client import WorkerFailed
from tools.bench_goals import label
from tools.bench_machine import busy_share
from tools.bench_models import ensure
from tools.bench_plan import ENGINES, QUICK_ENGINES, Case, all_cases, find_cases, text_ids
from tools.bench_report import print_tables, write_reports
from tools.bench_run import Place, Row, Settings, add_ratios, measure_loads, measure_speed, row, weight_sizes, yardstick
from tools.fetch_real_models import store_dir
from tools.report import ROOT, RUNS, stamp

QUIET = 0.1  # a machine that is busier than this before the run makes figures of the run doubtful


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    from rml.threads import available_cores

    parser = argparse.ArgumentParser(
        prog="nox -s bench -- models", description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: few models, tokens and rounds; marked quick")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="only these; see --list")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="default 1 2")
    parser.add_argument(
        "--rounds", type=int, default=None, metavar="N", help="samples of each row, at most (default 7)"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="per row of all engines; at least 3 rounds are run")
    parser.add_argument("--no-load", action="store_true", help="leave the times of loading out")
    parser.add_argument(
        "--output", type=Path, default=None, metavar="STEM", help="where to: STEM.json, STEM.md, STEM.png"
    )
    parser.add_argument(
        "--allow-slow-kernels", action="store_true", help="run even with checked or interpreted kernels"
    )
    parser.add_argument("--list", action="store_true", help="show the models and end")
    options = parser.parse_args(arguments)
    most = min(2, available_cores())
    options.engines = options.engines or list(QUICK_ENGINES if options.quick else ENGINES)
    options.threads = options.threads or ([most] if options.quick else sorted({1, most}))
    return options


class Talk:
    """What the run says on stderr: where it is, and how long it has taken."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.start = time.monotonic()

    def say(self, text: str) -> None:
        """One line, with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        self.console.print(f"[dim]{minutes:2}:{seconds:02}[/] {text}", soft_wrap=True)

    def row(self, found: Row) -> None:
        """A finished row."""
        name = f"{found['engine']:18} {label(found)}"
        if "value" in found:
            ratio = f"  {found['ratio']:.2f} x llama.cpp" if "ratio" in found else ""
            self.say(f"  {name:36} {found['value']:10.2f} {found['unit']} ± {found['spread']:.0%}{ratio}")
        else:
            self.say(f"  {name:36} [yellow]{found['note']}[/]")


def place_of(case: Case, settings: Settings, talk: Talk) -> Place:
    """Makes what a case needs: a random model, a directory for transformers, tokens. Raises FileNotFoundError."""
    from rml.weight_source import open_weights

    if case.recipe is not None:
        ensure(case.recipe)
    if not case.path.exists():
        raise FileNotFoundError(f"{case.path} is not there: `python -m tools.fetch_real_models` fetches it")
    place = Place(
        case, case.path if case.is_directory else None, text_ids(case, open_weights(case.path).config.vocab_size)
    )
    if any("transformers" in engine for engine in place.runnable(settings)) and place.directory is None:
        place.directory = store_dir() / "float32" / case.path.stem
        if not place.directory.exists():
            talk.say("widening the weights into a directory for transformers (once)")
            command = [sys.executable, "-m", "tools.bench_convert", str(case.path), str(place.directory)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"failed: no float32 directory: {done.stderr.strip().splitlines()[-1]}"
                place.skipped = {engine: reason for engine in settings.engines if "transformers" in engine}
    return place


def measure(case: Case, settings: Settings, loads: bool, talk: Talk, scratch: Path) -> Iterator[Row]:
    """All rows of one model; what cannot be measured is a row that says why."""
    from rml.errors import RmlError

    try:
        place = place_of(case, settings, talk)
    except FileNotFoundError as error:
        yield row(case, "all", 0, "all", 0, note=f"skipped: {error}")
        return
    except RmlError as error:
        yield row(case, "rml", 0, "all", 0, note=f"failed: {error}")
        return
    for engine in settings.engines:
        if reason := place.reason(engine):
            note = reason if reason.startswith("failed") else f"skipped: {reason}"
            yield row(case, engine, 0, "all", 0, note=note)
    talk.say("yardstick")
    try:
        want = yardstick(place, max(settings.threads), talk.say)
    except WorkerFailed as error:
        yield row(case, "rml", 0, "all", 0, note=f"failed: no exact logits to compare with: {error}")
        return
    if loads:
        talk.say("load")
        yield from measure_loads(place, settings, want, scratch)
    yield from measure_speed(place, settings, want, scratch, talk.say)


@dataclass
class Run:
    """What has been measured so far: rows, and what is known of each model."""

    rows: list[Row] = field(default_factory=list)
    models: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False


def run(cases: list[Case], settings: Settings, loads: bool, talk: Talk) -> Run:
    """All rows of all models; those of the finished ones if the user has enough."""
    done = Run()
    try:
        measure_all(cases, settings, loads, talk, done)
    except KeyboardInterrupt:
        done.interrupted = True
    return done


def measure_all(cases: list[Case], settings: Settings, loads: bool, talk: Talk, done: Run) -> None:
    """Adds every model to `done`."""
    with tempfile.TemporaryDirectory(prefix="rml-bench-") as folder:
        for number, case in enumerate(cases, 1):
            talk.say(f"[bold]{case.name}[/] ({number} of {len(cases)})")
            mine: list[Row] = []
            for found in measure(case, settings, loads, talk, Path(folder) / "logits.npz"):
                mine.append(found)
                talk.row(found)
            add_ratios(mine)
            done.rows += mine
            if any("value" in found for found in mine):
                size = case.path.stat().st_size if case.path.is_file() else 0
                done.models[case.name] = {"file": case.path.name, "size": size, "read_per_token": weight_sizes(case)}


def head_of(options: argparse.Namespace, settings: Settings, busy: float) -> dict[str, Any]:
    """What the figures depend on besides the models."""
    return stamp(max(settings.threads)) | {
        "report": "benchmark",
        "quick": options.quick,
        "thread_counts": list(settings.threads),
        "engines": list(settings.engines),
        "rounds": settings.rounds,
        "seconds_per_row": settings.seconds,
        "busy_before": round(busy, 3),
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    talk = Talk()
    try:
        cases = find_cases(options.models, options.quick)
    except ValueError as error:
        talk.say(str(error))
        return 2
    if options.list:
        for case in all_cases():
            print(f"{case.name:34} {case.path}{'' if case.path.exists() else '  (not there yet)'}")
        return 0
    from rml.build_info import BUILD

    if BUILD.mode != "release" and not options.allow_slow_kernels:
        talk.say(
            f"{BUILD}: their speed means nothing. Install the project with RML_KERNELS=release, or --allow-slow-kernels"
        )
        return 2
    settings = Settings(
        engines=tuple(options.engines),
        threads=tuple(options.threads),
        rounds=options.rounds or (3 if options.quick else 7),
        seconds=1.0 if options.quick else options.seconds,
        loads=1 if options.quick else 3,
    )
    busy = busy_share()
    head = head_of(options, settings, busy)
    talk.say(f"{head['processor']}, {head['cores']} cores, {head['kernels']}")
    if busy > QUIET:
        talk.say(f"[yellow]{busy:.0%} of the machine is in use by others: figures of this run are doubtful[/]")
    done = run(cases, settings, not options.no_load, talk)
    rows = done.rows
    head |= {
        "models": done.models,
        "interrupted": done.interrupted,
        "load_average_after": [round(value, 2) for value in os.getloadavg()],
    }
    head["minutes"] = round((time.monotonic() - talk.start) / 60, 1)
    day = str(head["time"]).split(" ", 1)[0]
    stem = options.output or RUNS / f"bench-{day}-{head['commit']}{'-quick' if options.quick else ''}"
    print_tables(head, rows, Console(width=None if sys.stdout.isatty() else 160))
    for path in write_reports(stem, head, rows):
        talk.say(f"wrote {path}")
    measured = [found for found in rows if "value" in found and found["engine"] == "rml"]
    wrong = [
        found
        for found in rows
        if found["engine"] == "rml" and not str(found.get("note", "skipped")).startswith("skipped")
    ]
    return 0 if measured and not wrong and not done.interrupted else 1


if __name__ == "__main__":
    sys.exit(main())
