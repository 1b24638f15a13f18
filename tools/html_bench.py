"""The page of a run of tools/benchmark.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools import bench_report, html_svg
from tools.bench_goals import GOALS, Results
from tools.html_page import Cell, Figure, Key, Page, Section, Table, Tile, Word
from tools.html_svg import short

Row = Mapping[str, Any]
COLOURS = {"rml": 4, "llama.cpp": 1, "transformers f32": 5, "transformers bf16": 3}
SPEEDS = ("prefill", "decode")


def page(head: Mapping[str, Any], rows: Sequence[Row], made_from: str) -> Page:
    """The whole page."""
    stamped = [row for row in rows if row["engine"] == "rml" and ("value" in row or is_wrong(row))]
    wrong = sum(is_wrong(row) for row in stamped)
    sections = [Section("Goals", GOALS_TEXT, tables=[goal_table(head, rows)])]
    for model in bench_report.models_of(rows):
        mine = [row for row in rows if row["model"] == model]
        found = list(model_figures(head, model, mine))
        if found:
            sections.append(Section(model, "", found, [cell_table(head, model, mine)]))
    sections.append(Section("Behind the figures", bench_report.HOW, tables=list(small_tables(head, rows))))
    tiles = list(tiles_of(head, rows))
    return Page(
        "Benchmark", "bench", "correctness stamps", wrong, len(stamped), head, made_from, tiles, sections,
        list(warnings(head)),
    )  # fmt: skip


GOALS_TEXT = "The worst place of each goal; ratios within this run, in which the machine cancels out."


def is_wrong(row: Row) -> bool:
    """Whether a row has no figure because its engine failed or its logits are wrong."""
    return "note" in row and not str(row["note"]).startswith("skipped")


def warnings(head: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know before the figures."""
    if head["quick"]:
        yield "Quick run: it shows that everything works; its figures mean nothing."
    if head["busy_before"] > 0.1:
        yield f"{head['busy_before']:.0%} of the machine was in use by others before the run: its figures are doubtful."


def tiles_of(head: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[Tile]:
    """Goals reached, and the ratios to llama.cpp in a number each."""
    results = Results(rows, head["models"])
    worst = [(goal, goal.worst(results)) for goal in GOALS]
    measured = [goal.reached(found[1]) for goal, found in worst if found is not None]
    if measured:
        yield Tile("goals reached", f"{sum(measured)} of {len(measured)}", f"{len(GOALS) - len(measured)} not measured")
    for what in SPEEDS:
        ratios = [row["ratio"] for row in rows if row["engine"] == "rml" and row["what"] == what and "ratio" in row]
        if ratios:
            note = f"llama.cpp\nfrom {short(min(ratios))} to {short(max(ratios))}"
            yield Tile(f"{what}, middle", f"{sorted(ratios)[len(ratios) // 2]:.2f} times", note, "c4")


def goal_table(head: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    """Every goal with its bar: full is twice the target."""
    results = Results(rows, head["models"])
    lines, unknown, missed = list[list[Cell]](), list[list[Cell]](), 0
    for goal in GOALS:
        worst = goal.worst(results)
        bound = Cell(f"{'at most' if goal.most else 'at least'} {goal.target:g}")
        if worst is None:
            unknown.append([Cell(goal.text), bound, Cell("-"), Cell("-"), Cell("not measured")])
            continue
        place, value = worst
        reached = goal.reached(value)
        missed += not reached
        bar = Cell(f"{value:.2f}", "", min(value / goal.target / 2, 1.0), "c0" if reached else "c3")
        mark = Cell("✓", "good") if reached else Cell("✗ missed", "bad")
        lines.append([Cell(goal.text), bound, bar, mark, Cell(place)])
    words = [Word(f"{missed} missed", "bad") if missed else Word("all that were measured are reached", "good")]
    words += [Word(f"{len(unknown)} not measured")] if unknown else []
    columns = ["goal", "target", "worst", "reached", "where"]
    return Table("Goals", columns, [*lines, *unknown], ["worst"], words, open=True)


# ---- one model -------------------------------------------------------------------------------------------------------


def speeds(row: Row) -> list[float]:
    """A row's samples in its own unit."""
    return [row["count"] / seconds for seconds in row.get("samples", [])] if row["unit"] == "tokens/s" else []


def model_figures(head: Mapping[str, Any], model: str, rows: Sequence[Row]) -> Iterator[Figure]:
    """Prefill and decode by engine, decode against the context, time to load."""
    engines = bench_report.engines_of(head, rows)
    for what in SPEEDS:
        for threads in sorted({row["threads"] for row in rows if row["what"] == what and "value" in row}):
            mine = [row for row in rows if (row["what"], row["threads"]) == (what, threads)]
            yield bar_figure(model, what, threads, mine, engines)
    loads = [row for row in rows if row["what"].startswith("load") and "value" in row]
    if loads:
        groups = [(what, [bar_of(row) for row in loads if row["what"] == what]) for what in ("load cold", "load warm")]
        svg = html_svg.bars([group for group in groups if group[1]], f"{model}: seconds to the first logits", "s")
        yield Figure(svg, "Load to first logits, seconds", legend(engines))
    yield from context_figure(model, rows)


def legend(engines: Sequence[str]) -> list[Key]:
    """Engines and their colours."""
    return [Key(engine, f"c{COLOURS.get(engine, 2)}") for engine in engines if engine != "machine"]


def bar_of(row: Row) -> html_svg.Bar:
    """One engine's bar, or why it has none."""
    note = "wrong logits, no speed" if is_wrong(row) else "not measured"
    return html_svg.Bar(row["engine"], COLOURS.get(row["engine"], 2), row.get("value"), speeds(row), note)


def bar_figure(model: str, what: str, threads: int, rows: Sequence[Row], engines: Sequence[str]) -> Figure:
    """A group of bars per prompt length or context."""
    name = {"prefill": "prompt of {} tokens", "decode": "after {} tokens"}[what]
    sizes = dict.fromkeys(row["n"] for row in rows)
    groups = [(name.format(n), [bar_of(row) for row in rows if row["n"] == n]) for n in sizes]
    svg = html_svg.bars(groups, f"{model}: {what}, tokens per second", "tokens/s")
    title = f"{what.capitalize()}, tokens/s, {threads} thread{'s' * (threads > 1)}"
    return Figure(svg, title, legend(engines), "A bar is the median; dots are the samples.")


def context_figure(model: str, rows: Sequence[Row]) -> Iterator[Figure]:
    """Decoding speed against the context."""
    decoded = [row for row in rows if row["what"] == "decode" and "value" in row]
    if len({row["n"] for row in decoded}) < 2:
        return
    series = []
    for engine, threads in dict.fromkeys((row["engine"], row["threads"]) for row in decoded):
        mine = [row for row in decoded if (row["engine"], row["threads"]) == (engine, threads)]
        name = f"{engine}, {threads} thread{'s' * (threads > 1)}"
        colour, places = COLOURS.get(engine, 2), [float(row["n"]) for row in mine]
        series.append(html_svg.Series(name, colour, [row["value"] for row in mine], places, True, threads == 1))
    svg = html_svg.lines(series, f"{model}: decoding speed by context", "tokens of context", decades=False)
    keys = legend(list(dict.fromkeys(row["engine"] for row in decoded)))
    yield Figure(svg, "Decode against context, tokens/s", keys, "Dashed: one thread.")


def cell_table(head: Mapping[str, Any], model: str, rows: Sequence[Row]) -> Table:
    """All figures of a model, as the Markdown report has them."""
    for _, columns, lines in bench_report.speed_tables(head, rows):
        named = ["what", *columns[1:]]
        return Table(f"{model}, all figures", named, text_rows(lines), named[1:], [Word(f"{len(lines)} rows")])
    return Table(model, ["nothing was measured"], [])


# ---- the rest --------------------------------------------------------------------------------------------------------


def text_rows(lines: Sequence[Sequence[str]]) -> list[list[Cell]]:
    """Lines of text as cells."""
    return [[Cell(text) for text in line] for line in lines]


def small_tables(head: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[Table]:
    """Bandwidth, correctness stamps, what was not measured, settings."""
    named: list[tuple[str, list[str], list[list[str]], list[str]]] = [
        (
            "Weight bytes against the read bandwidth",
            ["model", "threads", "engine", "MB per token", "GB/s", "read GB/s", "share"],
            bench_report.roofline_lines(head, rows),
            ["threads", "MB per token", "GB/s", "read GB/s", "share"],
        ),
        (
            "Correctness stamps",
            ["model", "engine", "threads", "what", "KL, nats", "max abs", "tokens", "likeliest"],
            bench_report.stamp_lines(rows),
            ["threads", "KL, nats", "max abs", "tokens"],
        ),
        ("Not measured", ["model", "engine", "what", "why"], bench_report.note_lines(rows), []),
        ("Settings", ["engine", "settings"], bench_report.setting_lines(rows), []),
    ]
    for title, columns, lines, right in named:
        if lines:
            yield Table(title, columns, text_rows(lines), right, [Word(f"{len(lines)} rows")])
