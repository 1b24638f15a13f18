"""One HTML page as data: header, tiles, sections of figures and tables; and its rendering into a single file.

The file needs nothing beside it: style, script and pictures are inside. Templates lie in tools/templates/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tools import html_svg

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Key:
    """An entry of a legend: css is a colour class (`c2`), or `stroke` for a limit."""

    name: str
    css: str


@dataclass(frozen=True)
class Figure:
    """A picture with title, legend and a note. ramp, colour: of a heat map, the ends of its shades and their colour."""

    svg: Markup
    title: str = ""
    legend: Sequence[Key] = field(default=())
    note: str = ""
    ramp: tuple[str, str] | None = None
    colour: str = ""

    @property
    def width(self) -> int:
        """Pixels that the picture needs where it is wider than a phone; then its card scrolls. 0 where it is not."""
        found = re.search(r'viewBox="0 0 ([\d.]+) ', self.svg)
        width = float(found[1]) if found else 0.0
        return round(width) if width > html_svg.WIDTH else 0


@dataclass(frozen=True)
class Cell:
    """A table's cell. share: length of a bar below the text, 0 to 1, in a colour class."""

    text: str
    css: str = ""
    share: float | None = None
    colour: str = ""


@dataclass(frozen=True)
class Word:
    """A piece of a table's summary line."""

    text: str
    css: str = ""


@dataclass(frozen=True)
class Table:
    """A table that folds. right: columns that are set flush right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: Sequence[str] = ()
    summary: Sequence[Word] = ()
    open: bool = False


@dataclass(frozen=True)
class Tile:
    """A number that stands for the run."""

    name: str
    value: str
    note: str = ""
    colour: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page, with a name to link to. legend: one for all of its figures."""

    title: str
    text: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    legend: Sequence[Key] = ()

    @property
    def id(self) -> str:
        """The name in links."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """The whole page. failed of judged: so many of `what` (checks ...). head: the stamp that tools/report.py makes."""

    title: str
    kind: str
    what: str
    failed: int
    judged: int
    head: Mapping[str, Any]
    made_from: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    warnings: Sequence[str] = ()

    @property
    def verdict(self) -> Word:
        """The first thing that is read."""
        if self.failed:
            return Word(f"✗ {self.failed} of {self.judged} {self.what} failed", "bad")
        return Word(f"✓ {self.judged} of {self.judged} {self.what} passed" if self.judged else "nothing was judged")

    @property
    def stamp_line(self) -> str:
        """Commit, time and machine."""
        return f"Commit {self.head['commit']} · {self.head['time']} · {self.head['processor']}"

    @property
    def stamp(self) -> list[tuple[str, str]]:
        """Everything else that the result depends on."""
        named = {"Kernels": "kernels", "System": "system", "Python": "python", "Cores": "cores", "Threads": "threads"}
        found = [(name, str(self.head[key])) for name, key in named.items() if key in self.head]
        versions = ", ".join(f"{name} {number}" for name, number in self.head.get("versions", {}).items())
        return [*found, ("Packages", versions)]


def render(page: Page) -> str:
    """The page's text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        page=page, style=Markup(style), script=Markup(script), shades=html_svg.SHADES
    )


# ---- helpers of the pages --------------------------------------------------------------------------------------------


def verdict_cell(passed: bool | None) -> Cell:
    """passed, FAILED, or a dash for what is not judged."""
    return Cell("-") if passed is None else Cell("✓ passed", "good") if passed else Cell("✗ FAILED", "bad")


def decade_share(value: float, low: float, high: float) -> float:
    """Length of a bar over decades: 0 at 10^low, 1 at 10^high."""
    if not value > 0:
        return 0.0
    return min(max((math.log10(value) - low) / (high - low), 0.0), 1.0)


def worst_of(values: Iterable[float | None]) -> float | None:
    """The largest of those that are there."""
    return max((value for value in values if value is not None), default=None)


def as_number(value: Any) -> float:
    """A figure of a report, in which what is not finite is a word."""
    return float(value) if isinstance(value, int | float | str) else math.nan
