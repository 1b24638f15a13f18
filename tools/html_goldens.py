"""The page of a run of tools/check_goldens.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools import html_layers, html_svg
from tools.html_page import Cell, Figure, Key, Page, Section, Table, Tile, Word, as_number, decade_share, worst_of
from tools.html_svg import short

Row = Mapping[str, Any]
LOW, HIGH = -16.0, 0.0  # decades of the bars in tables


def kinds(rows: Sequence[Row], kind: str) -> list[Row]:
    """The rows of one kind."""
    return [row for row in rows if row["kind"] == kind]


def ways_of(rows: Sequence[Row]) -> list[str]:
    """The ways of running the engine, in the order of the run; their places are their colours."""
    return list(dict.fromkeys(row["way"] for row in rows if row["kind"] == "logits"))


def page(head: Mapping[str, Any], rows: Sequence[Row], made_from: str) -> Page:
    """The whole page."""
    figures = kinds(rows, "logits")
    judged = [row for row in figures if row["passed"] is not None]
    ways = ways_of(rows)
    cases = list(dict.fromkeys(row["case"] for row in figures))
    families = list(dict.fromkeys(row["family"] for row in figures))
    tiles = [Tile("toy models", str(len(cases)), f"{len(families)} families\ntwo formats")]
    tiles += [tile(way, place, figures) for place, way in enumerate(ways)]
    keys = [Key(way, f"c{place}") for place, way in enumerate(ways)]
    sections = [
        Section("How far from the reference", OVERVIEW, [strip_figure(ways, figures), ridge_figure(ways, rows)]),
        Section("Error along the layers", LAYERS, [walk_figure(name, ways, rows) for name in families], legend=keys),
        Section("Every toy", TABLES, tables=[family_table(family, ways, figures) for family in families]),
    ]
    failed = sum(not row["passed"] for row in judged)
    title = "Goldens of the toy models"
    return Page(title, "goldens", "comparisons", failed, len(judged), head, made_from, tiles, sections)


OVERVIEW = (
    "Logits of every position against the float64 reference's. Exact products with a float64 cache differ from it only "
    "by the order of additions; caches and products of fewer bits round by design, and are measured, not judged."
)
LAYERS = (
    "Relative error (root mean square) of every named activation on its way through the layers, the worst toy of each "
    "family. Where a line leaves the floor is where that way of running rounds: keys and values as soon as they are "
    "read back from the cache, int8 products at the first matrix."
)
TABLES = "The largest error of a logit by way of running; a bar covers the sixteen decades below 1."


def tile(way: str, place: int, figures: Sequence[Row]) -> Tile:
    """One way in a number: its worst logit."""
    mine = [row for row in figures if row["way"] == way]
    limit = mine[0]["limit"]
    note = f"worst error\nlimit {short(limit)}" if limit else "worst error\nrounds by design"
    return Tile(way, short(worst_of(as_number(row["worst"]) for row in mine)), note, f"c{place}")


def strip_figure(ways: Sequence[str], figures: Sequence[Row]) -> Figure:
    """Every toy as a point, beside the limit."""
    rows = []
    for place, way in enumerate(ways):
        mine = [row for row in figures if row["way"] == way]
        points = [(as_number(row["worst"]), row["case"]) for row in mine]
        rows.append(html_svg.Strip(way, place, points, mine[0]["limit"]))
    svg = html_svg.strips(rows, "largest error of every toy by way of running", "largest error of a logit")
    note = "A point is a file; left of its limit it passes."
    return Figure(svg, "Every toy and its limit", [Key("limit", "stroke")], note)


def ridge_figure(ways: Sequence[str], rows: Sequence[Row]) -> Figure:
    """How the errors of all logits are distributed."""
    found = {row["way"]: row for row in kinds(rows, "histogram")}
    shapes = [ridge_of(way, place, found[way], rows) for place, way in enumerate(ways) if way in found]
    first = found[ways[0]]
    svg = html_svg.ridges(shapes, first["lowest"], first["per_decade"], "distribution of errors by way of running")
    note = "Half a decade to a bin, the worst as a point. Equal logits are left out."
    return Figure(svg, "All logits", [Key("limit", "stroke")], note)


def ridge_of(way: str, place: int, row: Row, rows: Sequence[Row]) -> html_svg.Ridge:
    """One way's distribution."""
    mine = [found for found in kinds(rows, "logits") if found["way"] == way]
    counts = [0, *row["counts"][1:]]  # the first bin holds zeros
    return html_svg.Ridge(way, place, counts, worst_of(as_number(found["worst"]) for found in mine), mine[0]["limit"])


def walk_figure(family: str, ways: Sequence[str], rows: Sequence[Row]) -> Figure:
    """One family's errors along the layers."""
    lines = []
    for place, way in enumerate(ways):
        mine = [row for row in kinds(rows, "layers") if (row["way"], row["family"]) == (way, family)]
        if mine:
            lines.append((way, place, mine))
    svg = html_layers.walk_lines(lines, f"{family}: relative error of every activation")
    return Figure(svg, family)


def family_table(family: str, ways: Sequence[str], figures: Sequence[Row]) -> Table:
    """A family's files, a column per way."""
    mine = [row for row in figures if row["family"] == family]
    cases = list(dict.fromkeys(row["case"] for row in mine))
    found = {(row["case"], row["way"]): row for row in mine}
    failed = sum(row["passed"] is False for row in mine)
    rows = []
    for case in cases:
        cells = [Cell(case)]
        cells += [error_cell(found.get((case, way)), f"c{place}") for place, way in enumerate(ways)]
        rows.append([*cells, Cell(stored_text(found, case, ways))])
    summary = [Word(f"{len(cases)} files"), Word("✗ FAILED", "bad") if failed else Word("✓ passed", "good")]
    return Table(family, ["file", *ways, "stored as"], rows, ways, summary, open=bool(failed))


def stored_text(found: Mapping[tuple[str, str], Row], case: str, ways: Sequence[str]) -> str:
    """The types of a file's tensors."""
    return ", ".join(next(found[case, way]["stored"] for way in ways if (case, way) in found))


def error_cell(row: Row | None, colour: str) -> Cell:
    """A figure with its bar; empty where this way does not apply."""
    if row is None:
        return Cell("")
    value = as_number(row["worst"])
    css = "bad" if row["passed"] is False else ""
    return Cell(short(value), css, decade_share(value, LOW, HIGH), colour)
