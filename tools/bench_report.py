"""A benchmark run as JSON, Markdown and pictures. The JSON is the run; the rest is made from it.

python -m tools.bench_report RUN.json         writes RUN.md and the pictures again
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench_goals import GOALS, Results, label, weight_bytes
from tools.bench_plots import plot_contexts, plot_roofline
from tools.report import markdown_table, number_text, stamp_text, write_json, write_text

Row = Mapping[str, Any]

HOW = """\
Engines take turns, each in a process of its own (A B C, B C A, ...). A figure is the median of its samples with half
of their range; the ratio to llama.cpp is the median over the turns. Prefill: tokens of one call on an empty cache.
Decode: tokens one by one after so many tokens of context, each a whole forward pass with logits; the first token of a
sample is not counted. Load: from the call that opens the model to the logits of one token; cold: its file was dropped
from the page cache before. Memory: the process's peak resident size over all of this, mapped weights and the
interpreter included. Each figure's logits were compared with rml's exact arithmetic on the same weights; where they are
wrong there is no figure.
"""


def engines_of(head: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """The engines that have a value somewhere, in the run's order."""
    measured = {found["engine"] for found in rows if "value" in found}
    return [engine for engine in head["engines"] if engine in measured]


def models_of(rows: Sequence[Row]) -> list[str]:
    """The models, in the order of the rows."""
    return list(dict.fromkeys(found["model"] for found in rows))


def value_text(found: Row | None) -> str:
    """A cell: value and spread, or that there is none."""
    if found is None:
        return "-"
    if "value" not in found:
        note = str(found.get("note", ""))
        return "wrong" if note.startswith("wrong") else note.split(":")[0] or "-"
    text = number_text(found["value"], 3)
    return f"{text} ± {found['spread']:.0%}" if found["spread"] else text


def ratio_text(found: Row | None) -> str:
    """rml's ratio to llama.cpp."""
    return f"{found['ratio']:.2f}" if found is not None and "ratio" in found else "-"


def pivot(rows: Sequence[Row], engines: Sequence[str]) -> Iterator[tuple[list[str], dict[str, Row]]]:
    """What was measured, in words (what, threads, unit), and the rows of it by engine."""
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for found in rows:
        if found["engine"] in engines and found["what"] != "all":
            words = (label(found), str(found["threads"]), str(found["unit"]))
            cells.setdefault(words, {})[found["engine"]] = found
    for name, by_engine in cells.items():
        yield list(name), by_engine


def speed_tables(head: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Per model: its name, columns, lines."""
    for model in models_of(rows):
        mine = [found for found in rows if found["model"] == model]
        engines = engines_of(head, mine)
        columns = ["", "threads", "unit", *engines, "rml / llama.cpp"]
        lines = [
            [*words, *(value_text(cells.get(engine)) for engine in engines), ratio_text(cells.get("rml"))]
            for words, cells in pivot(mine, engines)
        ]
        if lines:
            yield model, columns, lines


def roofline_lines(head: Mapping[str, Any], rows: Sequence[Row]) -> list[list[str]]:
    """Decoding without context: bytes of weights per token and second, beside what the memory gives."""
    results = Results(rows, head["models"])
    lines = []
    for found in rows:
        size = weight_bytes(head["models"], found)
        if found["what"] != "decode" or found["n"] or "value" not in found or size is None:
            continue
        machine = results.twin(found, engine="machine", what="read bandwidth", n=0)
        share = results.read_share(found)
        rate = found["value"] * size / 1e9
        lines.append([
            found["model"], str(found["threads"]), found["engine"], f"{size / 1e6:.1f}", f"{rate:.1f}",
            f"{machine['value']:.1f}" if machine else "-", f"{share:.0%}" if share is not None else "-",
        ])  # fmt: skip
    return lines


def goal_lines(head: Mapping[str, Any], rows: Sequence[Row]) -> list[list[str]]:
    """The goals and the worst of what was measured."""
    results = Results(rows, head["models"])
    lines = []
    for goal in GOALS:
        worst = goal.worst(results)
        bound = f"{'at most' if goal.most else 'at least'} {goal.target:g}"
        if worst is None:
            lines.append([goal.text, bound, "-", "not measured", ""])
        else:
            place, value = worst
            lines.append([goal.text, bound, f"{value:.2f}", "yes" if goal.reached(value) else "**no**", place])
    return lines


def stamp_lines(rows: Sequence[Row]) -> list[list[str]]:
    """The correctness stamp of every row that has one."""
    lines = []
    for found in rows:
        if "kl" in found.get("stamp", {}):
            stamp = found["stamp"]
            tokens = " ".join(str(token) for token in stamp["tokens"][:4])
            lines.append([
                found["model"], found["engine"], str(found["threads"]), label(found), number_text(float(stamp["kl"])),
                number_text(float(stamp["max_abs"])), f"{stamp['agreed']}/{stamp['positions']}", tokens,
            ])  # fmt: skip
    return lines


def note_lines(rows: Sequence[Row]) -> list[list[str]]:
    """What was not measured, and why."""
    return [[found["model"], found["engine"], label(found), found["note"]] for found in rows if "note" in found]


def setting_lines(rows: Sequence[Row]) -> list[list[str]]:
    """How each engine was set, where it differs by model."""
    pairs = dict.fromkeys((found["engine"], found["settings"]) for found in rows if found.get("settings"))
    return [list(pair) for pair in pairs]


def warnings(head: Mapping[str, Any]) -> str:
    """What a reader must know before the figures."""
    text = ""
    if head["quick"]:
        text += "**Quick run: it shows that everything works; its figures mean nothing.**\n\n"
    if head.get("interrupted"):
        text += "**Interrupted: models that were not finished are missing.**\n\n"
    if head["busy_before"] > 0.1:
        share = f"{head['busy_before']:.0%}"
        text += f"**{share} of the machine was in use by others before the run: its figures are doubtful.**\n\n"
    return text


def markdown(head: Mapping[str, Any], rows: Sequence[Row], pictures: Sequence[str]) -> str:
    """The report."""
    text = f"# Benchmark\n\n{warnings(head)}{stamp_text(head)}\n{HOW}\n"
    text += f"{head['minutes']} minutes; load average {head['load_average_before'][0]} before the run.\n\n"
    text += markdown_table(["engine", "settings"], setting_lines(rows)) + "\n"
    text += "## Goals\n\nThe worst place of each; ratios within this run.\n\n"
    text += markdown_table(["goal", "target", "worst", "reached", "where"], goal_lines(head, rows), ["worst"])
    for model, columns, lines in speed_tables(head, rows):
        text += f"\n## {model}\n\n" + markdown_table(columns, lines, columns[1:])
    text += "\n## Weight bytes against the read bandwidth\n\nDecoding without context.\n\n"
    columns = ["model", "threads", "engine", "MB per token", "GB/s", "read GB/s", "share"]
    text += markdown_table(columns, roofline_lines(head, rows), columns[3:])
    text += "".join(f"\n![{name}]({name})\n" for name in pictures)
    if lines := note_lines(rows):
        text += "\n## Not measured\n\n" + markdown_table(["model", "engine", "what", "why"], lines)
    text += (
        "\n## Correctness stamps\n\nLogits of the last prompt token and of the last one fed, against exact ones; how\n"
    )
    text += "often the likeliest token is the same; the first of them.\n\n"
    columns = ["model", "engine", "threads", "what", "KL, nats", "max abs", "tokens", "likeliest"]
    return text + markdown_table(columns, stamp_lines(rows), columns[4:7])


def print_tables(head: Mapping[str, Any], rows: Sequence[Row], console: Console) -> None:
    """The tables and the goals, on a terminal."""
    for model, columns, lines in speed_tables(head, rows):
        table = Table(*columns, title=model, title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for line in lines:
            table.add_row(*line)
        console.print(table)
    if not head["quick"]:
        table = Table("goal", "target", "worst", "reached", "where", title="goals", title_justify="left")
        for line in goal_lines(head, rows):
            if line[2] == "-":
                continue
            table.add_row(*(cell.replace("**", "") for cell in line))
        console.print(table)


def write_reports(stem: Path, head: Mapping[str, Any], rows: Sequence[Row]) -> list[Path]:
    """Writes STEM.json, STEM.md and, with matplotlib, STEM-context.png and STEM-roofline.png; returns the paths."""
    write_json(stem.with_name(stem.name + ".json"), head, rows)
    return [stem.with_name(stem.name + ".json"), *write_pages(stem, head, rows)]


def write_pages(stem: Path, head: Mapping[str, Any], rows: Sequence[Row]) -> list[Path]:
    """Everything but the JSON."""
    pictures = []
    for suffix, plot in (("context", plot_contexts), ("roofline", plot_roofline)):
        path = stem.with_name(f"{stem.name}-{suffix}.png")
        if plot(path, head, rows):
            pictures.append(path)
    page = stem.with_name(stem.name + ".md")
    write_text(page, markdown(head, rows, [path.name for path in pictures]))
    return [page, *pictures]


def read_run(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run's stamp and rows. Raises ValueError for a file that is not a benchmark run."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        head, rows = content["stamp"], content["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a report: {error}") from None
    if head.get("report") != "benchmark":
        raise ValueError(f"{path}: not a benchmark's report; expected one that `nox -s bench` wrote")
    return head, rows


def main() -> int:
    """The command; see the module's docstring."""
    if len(sys.argv) != 2:
        print(str(__doc__), file=sys.stderr)
        return 2
    path = Path(sys.argv[1])
    try:
        head, rows = read_run(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for written in write_pages(path.with_suffix(""), head, rows):
        print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
