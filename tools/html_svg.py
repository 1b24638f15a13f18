"""Pictures for the HTML reports, as inline SVG: lines, ridges, strips, bars and heat maps, most of them over decades.

Colours are classes (`c0` to `c5` for series, `h0` to `h11` for shades of them; templates/style.css has them), so one
picture serves light and dark. Pictures are 340 units wide, about the width of a phone's column, where a unit is a
pixel: text is as large there as it is in the page. What a mark stands for is in its data-tip, which the page shows on
a touch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

WIDTH = 340.0
SHADES = 12  # of a heat map's colour
WIDEST = 3.0  # decades that the shades cover at most
TICK = 11.0  # a line of small text


def number(value: float) -> str:
    """A coordinate, one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def short(value: float | None) -> str:
    """A figure in a tip or a label: 3.1e-14, 1e-9, 0.02, 17.5, 1284."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        digits, power = f"{value:.1e}".split("e")
        return f"{digits.removesuffix('.0')}e{int(power)}"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


def tip(text: str) -> str:
    return f' data-tip="{escape(text)}"'


def text(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> str:
    """A label whose baseline is at y."""
    style = f' class="{css}"' if css else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def dot(x: float, y: float, radius: float, colour: int, what: str) -> str:
    """A point that says what it is."""
    return f'<circle class="dot c{colour}" cx="{number(x)}" cy="{number(y)}" r="{radius:g}"{tip(what)}/>'


def limit_mark(x: float, top: float, bottom: float, limit: float) -> str:
    """An upright stroke that nothing may reach."""
    return f'<path class="limit" d="M{number(x)} {number(top)}V{number(bottom)}"{tip(f"limit {short(limit)}")}/>'


def path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def svg(parts: Iterable[str], height: float, label: str, width: float = WIDTH) -> Markup:
    """The picture. `label`: what a screen reader says of it."""
    box = f'viewBox="0 0 {number(width)} {number(height)}"'
    body = "".join(parts)
    return Markup(f'<svg {box} role="img" aria-label="{escape(label)}">{body}</svg>')


@dataclass(frozen=True)
class Decades:
    """A logarithmic axis from 10^low at `start` to 10^high at `end`; what is beyond lands at the ends."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        power = self.high if math.isnan(value) else math.log10(value) if value > 0 else self.low
        power = min(max(power, self.low), self.high)
        return self.start + (power - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> Iterator[tuple[float, str]]:
        """Place and name of some decades."""
        span = self.high - self.low
        step = next(s for s in (1, 2, 3, 4, 5, 6, 10, 20) if span / s <= most)
        first = math.ceil(self.low / step) * step
        for power in range(first, math.floor(self.high) + 1, step):
            name = {0: "1", 1: "10", 2: "100", 3: "1000", -1: "0.1"}.get(power, f"1e{power}")
            yield self.at(10.0**power), name


@dataclass(frozen=True)
class Linear:
    """An axis from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low or 1.0) * (self.end - self.start)

    def ticks(self, most: int = 5) -> Iterator[tuple[float, str]]:
        """Place and name of round values."""
        rough = (self.high - self.low) / most or 1.0
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(base * s for s in (1, 2, 5, 10) if base * s >= rough)
        count = math.ceil(self.low / step)
        while count * step <= self.high * (1 + 1e-9):
            yield self.at(count * step), short(count * step)
            count += 1


Axis = Decades | Linear


def span(values: Iterable[float], floor: float = -17.0) -> tuple[float, float]:
    """Whole decades around positive values."""
    powers = [math.log10(value) for value in values if value > 0 and math.isfinite(value)] or [0.0]
    low, high = math.floor(max(min(powers), floor)), math.ceil(max(powers))
    return low, max(high, low + 1)


def below(x: float, bottom: float, name: str) -> str:
    """A tick's name under the axis, moved inwards where it would be cut off."""
    half = 3.5 * len(name)
    return text(min(max(x, half), WIDTH - half), bottom + TICK + 1, name, "middle")


def vertical_grid(axis: Axis, top: float, bottom: float, most: int = 6) -> Iterator[str]:
    """Lines at the ticks of a horizontal axis, names below."""
    for x, name in axis.ticks(most):
        yield f'<path class="grid" d="M{number(x)} {number(top)}V{number(bottom)}"/>'
        yield below(x, bottom, name)


def horizontal_grid(axis: Axis, left: float, right: float, most: int = 5) -> Iterator[str]:
    """Lines at the ticks of a vertical axis, names to the left."""
    for y, name in axis.ticks(most):
        yield f'<path class="grid" d="M{number(left)} {number(y)}H{number(right)}"/>'
        yield text(left - 5, y + 4, name, "end")


# ---- pictures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """A named line: colour number, y values; `x` where they are not 0, 1, 2 ... `marks`: whether to draw points."""

    name: str
    colour: int
    y: Sequence[float]
    x: Sequence[float] = field(default=())
    marks: bool = False
    dashed: bool = False


def lines(
    series: Sequence[Series],
    label: str,
    x_name: str,
    decades: bool = True,
    breaks: Sequence[tuple[float, str]] = (),
    limits: tuple[float, float] | None = None,
    height: float = 190.0,
) -> Markup:
    """Lines over a common axis.

    breaks: named places on the x axis, where it has no round values to show. limits: of the y axis, in decades;
    pictures that are looked at side by side have the same.
    """
    left, top, bottom = 40.0, 8.0, height - 32
    places = [x for line in series for x in (line.x or range(len(line.y)))]
    across = Linear(min(places, default=0), max(max(places, default=1), min(places, default=0) + 1), left, WIDTH - 8)
    values = [y for line in series for y in line.y]
    axis: Axis
    if decades:
        axis = Decades(*(limits or span(values)), bottom, top)
    else:
        axis = Linear(0.0, max([y for y in values if math.isfinite(y)], default=1.0) * 1.08, bottom, top)
    parts = list(horizontal_grid(axis, left, WIDTH - 8))
    if breaks:
        for x, name in breaks:
            parts.append(f'<path class="grid" d="M{number(across.at(x))} {number(top)}V{number(bottom)}"/>')
            parts.append(below(across.at(x), bottom, name))
    else:
        parts += [below(x, bottom, name) for x, name in across.ticks()]
    parts.append(text((left + WIDTH - 8) / 2, height - 5, x_name, "middle", "axis"))
    for line in series:
        points = [(across.at(x), axis.at(y)) for x, y in zip(line.x or range(len(line.y)), line.y, strict=True)]
        dashed = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(f'<path class="line c{line.colour}" d="{path(points)}"{dashed}/>')
        if line.marks:
            for (x, y), value in zip(points, line.y, strict=True):
                parts.append(dot(x, y, 3, line.colour, f"{line.name}: {short(value)}"))
    return svg(parts, height, label)


@dataclass(frozen=True)
class Ridge:
    """A distribution: counts per bin, from 10^lowest on, so many bins to a decade. worst, limit: marked, if given."""

    name: str
    colour: int
    counts: Sequence[int]
    worst: float | None = None
    limit: float | None = None


def ridges(rows: Sequence[Ridge], lowest: float, per_decade: int, label: str) -> Markup:
    """Distributions one below the other over one axis of decades."""
    used = [i for row in rows for i, count in enumerate(row.counts) if count and i]
    marks = [value for row in rows for value in (row.worst, row.limit) if value]
    low = math.floor(min([lowest + i / per_decade for i in used] + [math.log10(v) for v in marks], default=lowest))
    high = math.ceil(max([lowest + (i + 1) / per_decade for i in used] + [math.log10(v) for v in marks], default=0))
    each, top = 40.0, 4.0
    bottom = top + each * len(rows) + 4
    axis = Decades(low - 0.5, high + 0.5, 8.0, WIDTH - 8)
    parts = list(vertical_grid(axis, top, bottom))
    for place, row in enumerate(rows):
        parts += ridge(row, axis, top + each * (place + 1), each - 12, lowest, per_decade)
    parts.append(text(WIDTH / 2, bottom + 2 * TICK + 4, "absolute error of a logit", "middle", "axis"))
    return svg(parts, bottom + 2 * TICK + 10, label)


def ridge(row: Ridge, axis: Decades, base: float, height: float, lowest: float, per_decade: int) -> Iterator[str]:
    """One distribution above its base line, the limit and the worst value on it."""
    most = max(max(row.counts), 1)
    places = [axis.at(10 ** (lowest + (i + 0.5) / per_decade)) for i in range(len(row.counts))]
    inside = [(x, base - height * count / most) for x, count in zip(places, row.counts, strict=True) if count]
    if inside:
        shape = path([(inside[0][0] - 5, base), *inside, (inside[-1][0] + 5, base)])
        near = lowest + row.counts.index(most) / per_decade
        what = tip(f"{row.name}: {sum(row.counts)} logits, most near 1e{near:.0f}")
        yield f'<path class="area c{row.colour}" d="{shape}Z"{what}/>'
    yield f'<path class="base" d="M8 {number(base)}H{number(WIDTH - 8)}"/>'
    if row.limit:
        yield limit_mark(axis.at(row.limit), base - height, base, row.limit)
    if row.worst:
        yield dot(axis.at(row.worst), base, 3.5, row.colour, f"{row.name}, worst: {short(row.worst)}")
    right = bool(inside) and (inside[0][0] + inside[-1][0]) / 2 < WIDTH / 2
    yield text(WIDTH - 8 if right else 8, base - height + 6, row.name, "end" if right else "start", "name")


@dataclass(frozen=True)
class Strip:
    """One row of a strip plot: points (value, what it is), and the limit they must stay below."""

    name: str
    colour: int
    points: Sequence[tuple[float, str]]
    limit: float | None = None


def strips(rows: Sequence[Strip], label: str, x_name: str) -> Markup:
    """Every point of every row over one axis of decades; equal ones are stacked."""
    values = [value for row in rows for value, _ in row.points] + [row.limit for row in rows if row.limit]
    low, high = span(values)
    axis = Decades(low - 0.2, high + 0.2, 8.0, WIDTH - 8)
    each, top = 50.0, 2.0
    bottom = top + each * len(rows) + 2
    parts = list(vertical_grid(axis, top, bottom))
    for place, row in enumerate(rows):
        middle = top + each * place + 33
        stacked: dict[int, int] = {}
        parts.append(text(8, middle - 20, row.name, "start", "name"))
        for value, what in sorted(row.points):
            x = axis.at(value)
            height = stacked[round(x / 4)] = stacked.get(round(x / 4), -1) + 1
            y = middle + (-1) ** height * ((height + 1) // 2) * 3.0
            y = min(max(y, middle - 12), middle + 12)
            parts.append(dot(x, y, 2.6, row.colour, f"{what}: {short(value)}"))
        if row.limit:
            parts.append(limit_mark(axis.at(row.limit), middle - 13, middle + 13, row.limit))
    parts.append(text(WIDTH / 2, bottom + 2 * TICK + 4, x_name, "middle", "axis"))
    return svg(parts, bottom + 2 * TICK + 10, label)


@dataclass(frozen=True)
class Heat:
    """A scale of shades over errors: `h0` up to 10^low, the last from about 10^high on."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Heat:
        """The scale of some values, so that each picture shows where its own errors grow.

        The smallest tenth does not count: what comes before the first rounding is orders of magnitude below the rest.
        """
        powers = sorted(math.log10(value) for value in values if value and math.isfinite(value)) or [0.0]
        low, high = powers[len(powers) // 10], powers[-1]
        low = max(low, high - WIDEST)
        rest = max(1.0 - (high - low), 0.0) / 2  # one decade at least
        return cls(low - rest, high + rest)

    def css(self, value: float) -> str:
        """The class of a value; one that is not a number is as bad as can be."""
        if value == 0:
            return "h0"
        share = (math.log10(value) - self.low) / (self.high - self.low) if math.isfinite(value) else 1.0
        return f"h{min(max(int(share * SHADES), 0), SHADES - 1)}"

    @property
    def ends(self) -> tuple[str, str]:
        """Names of the ends, for a legend."""
        return f"≤ {round_power(self.low)}", round_power(self.high)


def round_power(power: float) -> str:
    """10^power in one digit: 4e-15."""
    return short(float(f"{10.0**power:.0e}"))


def heat_map(rows: Sequence[tuple[str, Sequence[float | None]]], heat: Heat, label: str) -> Markup:
    """Named rows of errors by layer; None leaves a place empty. Up to 38 layers fit a phone, more make it wider."""
    columns = max(len(values) for _, values in rows)
    left, top, high = 72.0, 4.0, 14.0
    step = min(max((WIDTH - left - 4) / columns, 7.0), 16.0)
    width, bottom = max(left + columns * step + 4, WIDTH), top + len(rows) * high
    parts = []
    for place, (name, values) in enumerate(rows):
        y = top + place * high
        parts.append(text(left - 6, y + 11, name, "end"))
        cells = "".join(
            f'<rect x="{number(left + i * step)}" class="{heat.css(value)}" data-v="{short(value)}"/>'
            for i, value in enumerate(values)
            if value is not None
        )
        about = f'data-row="{escape(name)}" data-left="{number(left)}" data-step="{step:.4g}"'
        parts.append(f'<g transform="translate(0 {number(y)})" style="--s:{step - 0.6:.3g}px" {about}>{cells}</g>')
    for column in range(0, columns, 5 if columns > 12 else 1):
        parts.append(text(left + (column + 0.5) * step, bottom + TICK + 2, str(column), "middle"))
    parts.append(text(left + columns * step / 2, bottom + 2 * TICK + 4, "layer", "middle", "axis"))
    return svg(parts, bottom + 2 * TICK + 10, label, width)


@dataclass(frozen=True)
class Bar:
    """One bar: name, colour number, length; samples are drawn as dots on it. note: said in place of a bar."""

    name: str
    colour: int
    value: float | None
    samples: Sequence[float] = field(default=())
    note: str = ""


def bars(groups: Sequence[tuple[str, Sequence[Bar]]], label: str, unit: str) -> Markup:
    """Groups of bars over one axis from 0, the value at each bar's end."""
    most = max([max([bar.value or 0.0, *bar.samples]) for _, group in groups for bar in group], default=1.0)
    axis = Linear(0.0, most or 1.0, 0.0, WIDTH - 62)
    parts, y = [], 0.0
    for name, group in groups:
        y += 16
        parts.append(text(0, y - 4, name, "start", "name"))
        for bar in group:
            parts += bar_parts(bar, axis, y, unit)
            y += 17
        y += 7
    return svg(parts, y, label)


def bar_parts(bar: Bar, axis: Linear, y: float, unit: str) -> Iterator[str]:
    """One bar, its samples and its value."""
    if bar.value is None:
        yield text(0, y + 10.5, f"{bar.name}: {bar.note}", "start", "quiet")
        return
    length = max(axis.at(bar.value), 1.0)
    what = tip(f"{bar.name}: {short(bar.value)} {unit}")
    yield f'<rect class="bar c{bar.colour}" x="0" y="{number(y)}" width="{number(length)}" height="13" rx="2"{what}/>'
    for sample in bar.samples:
        yield f'<circle class="sample" cx="{number(axis.at(sample))}" cy="{number(y + 6.5)}" r="1.6"/>'
    beyond = max([length, *(axis.at(sample) for sample in bar.samples)])
    yield text(beyond + 5, y + 10.5, short(bar.value), "start", "value")
