"""Pictures of error along the layers, from the rows of tools/layer_errors.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tools import html_svg
from tools.html_page import Figure, as_number

Row = Mapping[str, Any]
PARTS = (
    "attn_norm", "q", "k", "v", "q_rope", "k_rope", "attn_out", "o_proj", "residual", "ffn_norm", "router_probs",
    "router_choice", "ffn_out", "output",
)  # fmt: skip
"""Activations of a layer in the order of the forward pass."""
DECADES = (-17.0, 0.0)  # of the errors in all line pictures: they are looked at side by side


def split(tap: str) -> tuple[int, str]:
    """Layer and part of an activation; layer -1 before the first (embed), -2 after the last (final_norm, logits)."""
    found = re.fullmatch(r"blk\.(\d+)\.(.*)", tap)
    return (int(found[1]), found[2]) if found else (-1 if tap == "embed" else -2, tap)


def layers_of(taps: Sequence[str]) -> int:
    """How many layers there are."""
    return 1 + max(split(tap)[0] for tap in taps)


def by_layer(row: Row, part: str = "output") -> list[float]:
    """One activation's relative error after each layer, then that of the logits."""
    errors = {split(tap): as_number(value) for tap, value in zip(row["taps"], row["relative"], strict=True)}
    return [errors[layer, part] for layer in range(layers_of(row["taps"]))] + [errors[-2, "logits"]]


def heat_rows(row: Row) -> list[tuple[str, list[float | None]]]:
    """Every activation by layer."""
    errors = {split(tap): as_number(value) for tap, value in zip(row["taps"], row["relative"], strict=True)}
    count = layers_of(row["taps"])
    parts = [part for part in PARTS if (0, part) in errors]
    return [(part, [errors.get((layer, part)) for layer in range(count)]) for part in parts]


def heat_figure(row: Row, colour: int, title: str, label: str) -> Figure:
    """The heat map of one run, in shades over its own range."""
    rows = heat_rows(row)
    heat = html_svg.Heat.of(value for _, values in rows for value in values)
    return Figure(html_svg.heat_map(rows, heat, label), title, ramp=heat.ends, colour=f"c{colour}")


def layer_breaks(count: int) -> list[tuple[float, str]]:
    """Names of the places on an axis of layers and the logits behind them."""
    step = 1 if count <= 8 else 5
    return [(float(layer), str(layer)) for layer in range(0, count - 1, step)] + [(float(count), "logits")]


def residual_lines(rows: Sequence[tuple[str, int, Row]], label: str) -> Markup:
    """The relative error of the residual stream after each layer; rows are name, colour, row."""
    count = layers_of(rows[0][2]["taps"])
    series = [html_svg.Series(name, colour, by_layer(row), marks=True) for name, colour, row in rows]
    return html_svg.lines(series, label, "after layer", breaks=layer_breaks(count), limits=DECADES)


def walk(rows: Sequence[Row]) -> dict[str, float]:
    """Activation by activation, the largest relative error of several runs."""
    worst: dict[str, float] = {}
    for row in rows:
        for tap, value in zip(row["taps"], row["relative"], strict=True):
            worst[tap] = max(worst.get(tap, 0.0), as_number(value))
    order = {part: place for place, part in enumerate(PARTS)}

    def key(tap: str) -> tuple[int, int]:
        layer, part = split(tap)
        return (1 << 20 if layer == -2 else layer, order.get(part, 1 if part == "logits" else 0))

    return {tap: worst[tap] for tap in sorted(worst, key=key)}


def walk_lines(ways: Sequence[tuple[str, int, Sequence[Row]]], label: str) -> Markup:
    """Every activation on the way through the layers: a line per way, the worst of its rows. Choices are left out."""
    series, breaks = [], list[tuple[float, str]]()
    for name, colour, rows in ways:
        taps = {tap: value for tap, value in walk(rows).items() if not tap.endswith("router_choice")}
        places = {split(tap)[0]: float(place) for place, tap in reversed(list(enumerate(taps)))}
        breaks = [(place, str(layer)) for layer, place in sorted(places.items()) if layer >= 0]
        series.append(html_svg.Series(name, colour, list(taps.values())))
    return html_svg.lines(series, label, "activations, by layer", breaks=breaks, limits=DECADES)
