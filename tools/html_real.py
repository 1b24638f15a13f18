"""The page of a run of tools/check_real_models.py, with error along the layers where tools/real_layers.py was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools import html_layers, html_svg
from tools.html_page import (
    Cell,
    Figure,
    Key,
    Page,
    Section,
    Table,
    Tile,
    Word,
    as_number,
    decade_share,
    verdict_cell,
    worst_of,
)
from tools.html_svg import short

Row = Mapping[str, Any]
LOW, HIGH = -15.0, 1.0  # decades of the bars in tables
RIGHT = ("positions", "top-8 error", "worst error", "mean KL", "llama.cpp KL", "top-1")
COLUMNS = ("what", "verdict", *RIGHT, "greedy", "note")


def page(
    head: Mapping[str, Any], rows: Sequence[Row], layers: Sequence[Row], big: Sequence[Row], made_from: str
) -> Page:
    """The whole page. layers, big: rows of real_layers.json and big_model.json, if there are any."""
    names = list(dict.fromkeys(row["checkpoint"] for row in rows))
    sections = [Section("What was checked", CHECKS, tables=[table(name, rows) for name in names])]
    for name in dict.fromkeys(row["checkpoint"] for row in layers):
        mine = [row for row in layers if row["checkpoint"] == name]
        sections.append(Section(name, LAYERS, figures(name, mine)))
    if big:
        sections.append(Section("A model of eight billion weights", BIG, tables=[big_table(big)]))
    failed = sum(not row["passed"] for row in rows)
    tiles = [tile for name in names for tile in tiles_of(name, rows)]
    return Page("Real checkpoints", "real models", "checks", failed, len(rows), head, made_from, tiles, sections)


CHECKS = (
    "Token ids, chat prompt, logits of every position and a greedy continuation, against the committed goldens and the "
    "float64 reference. Mean KL is the Kullback-Leibler divergence from the reference's distribution in nats, beside "
    "that of llama.cpp on the same file and tokens."
)
LAYERS = (
    "Relative error (root mean square) against the float64 reference, every position of the short prompt. Exact "
    "products stay on the floor of float64; int8 products err by what one rounding of the activations costs."
)
BIG = "Random weights in a real shape: the reference streams them one layer at a time."


def tiles_of(name: str, rows: Sequence[Row]) -> list[Tile]:
    """A checkpoint in two numbers: exact arithmetic's worst logit, int8's divergence."""
    mine = [row for row in rows if row["checkpoint"] == name]
    exact = worst_of(as_number(row["worst"]) for row in mine if "exact f64" in row["what"] and row["worst"] is not None)
    kl = worst_of(row["mean_kl"] for row in mine if "int8" in row["what"])
    peer = worst_of(row["peer_kl"] for row in mine if "int8" in row["what"])
    tiles = []
    if exact is not None:
        tiles.append(Tile(name, short(exact), "worst logit\nexact f64", "c0"))
    if kl is not None:
        beside = "" if peer is None else f"\nllama.cpp: {short(peer)}"
        tiles.append(Tile(name, short(kl), f"mean KL, int8{beside}", "c4"))
    return tiles


def table(name: str, rows: Sequence[Row]) -> Table:
    """All checks of a checkpoint."""
    mine = [row for row in rows if row["checkpoint"] == name]
    failed = sum(not row["passed"] for row in mine)
    summary = [Word(f"{len(mine)} checks"), Word(f"✗ {failed} failed", "bad") if failed else Word("✓ passed", "good")]
    return Table(name, COLUMNS, [cells(row) for row in mine], RIGHT, summary, open=True)


def figure_cell(value: Any, colour: str) -> Cell:
    """A figure with a bar over decades; empty for none."""
    if value is None:
        return Cell("")
    return Cell(short(as_number(value)), "", decade_share(as_number(value), LOW, HIGH), colour)


def cells(row: Row) -> list[Cell]:
    """One line of the table."""
    colour = "c4" if "int8" in row["what"] else "c1" if "f32" in row["what"] else "c0"
    return [
        Cell(row["what"]),
        verdict_cell(row["passed"]),
        Cell("" if row["positions"] is None else str(row["positions"])),
        figure_cell(row["golden_error"], colour),
        figure_cell(row["worst"], colour),
        figure_cell(row["mean_kl"], colour),
        Cell("" if row["peer_kl"] is None else short(row["peer_kl"])),
        Cell("" if row["top1"] is None else f"{100 * row['top1']:.1f} %"),
        Cell(row["greedy"]),
        Cell(row["note"]),
    ]


def colours(rows: Sequence[Row]) -> dict[str, int]:
    """Ways of running and their colours: the same as on the page of goldens, where they are the same ways."""
    fixed = {"exact f64": 0, "exact f32": 1, "int8 f32": 4}
    ways = dict.fromkeys(row["way"] for row in rows)
    return {way: fixed.get(way, 5) for way in ways}


def figures(name: str, rows: Sequence[Row]) -> list[Figure]:
    """Lines by layer, by position, distributions, and a heat map for each way."""
    colour = colours(rows)
    legend = [Key(way, f"c{number}") for way, number in colour.items()]
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("layers", "positions", "histogram")}
    layers = by_kind["layers"]
    along = html_layers.residual_lines([(row["way"], colour[row["way"]], row) for row in layers], f"{name}: by layer")
    found = [Figure(along, "The residual stream after each layer", legend)]
    lines = [html_svg.Series(row["way"], colour[row["way"]], [as_number(v) for v in row["kl"]])
             for row in by_kind["positions"] if max(map(as_number, row["kl"])) > 1e-9]  # fmt: skip
    if lines:
        svg = html_svg.lines(lines, f"{name}: divergence by position", "position", decades=False)
        keys = [key for key in legend if key.name in [line.name for line in lines]]
        found.append(Figure(svg, "KL divergence at each position, in nats", keys))
    note = "Half a decade to a bin, the worst as a point."
    found.append(Figure(ridges(by_kind, colour, name), "All logits", note=note))
    for row in layers:
        label = f"{name}, {row['way']}: error of every activation by layer"
        found.append(html_layers.heat_figure(row, colour[row["way"]], f"Every activation, {row['way']}", label))
    return found


def ridges(by_kind: Mapping[str, Sequence[Row]], colour: Mapping[str, int], name: str) -> Any:
    """The distribution of all logits' errors."""
    worst = {row["way"]: worst_of(map(as_number, row["worst"])) for row in by_kind["positions"]}
    rows = by_kind["histogram"]
    shapes = [html_svg.Ridge(r["way"], colour[r["way"]], [0, *r["counts"][1:]], worst.get(r["way"])) for r in rows]
    return html_svg.ridges(shapes, rows[0]["lowest"], rows[0]["per_decade"], f"{name}: distribution of logit errors")


def big_table(rows: Sequence[Row]) -> Table:
    """The steps of a run of tools/big_model.py."""
    columns = ("what", "verdict", "seconds", "peak memory", "worst error", "mean KL", "top-1", "greedy", "note")
    lines = [
        [
            Cell(row["what"]),
            verdict_cell(row["passed"]),
            Cell(f"{row['seconds']:.0f}"),
            Cell("" if row["memory"] is None else f"{row['memory'] / 1e9:.2f} GB"),
            figure_cell(row["worst"], "c0"),
            figure_cell(row["mean_kl"] and max(row["mean_kl"], 0.0), "c0"),
            Cell("" if row["top1"] is None else f"{100 * row['top1']:.1f} %"),
            Cell(row["greedy"]),
            Cell(row["note"]),
        ]
        for row in rows
    ]
    return Table(rows[0]["model"], columns, lines, columns[2:7], open=True)
