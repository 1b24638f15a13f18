"""The two pictures of a benchmark run: speed against context, and speed against bytes under the memory's roof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench_goals import weight_bytes

Row = Mapping[str, Any]
COLOURS = {"rml": "#c0392b", "llama.cpp": "#2c6fbb", "transformers f32": "#7f8c8d", "transformers bf16": "#b7a77a"}
MARKERS = {1: "o", 2: "s", 4: "^"}


def plot_contexts(path: Path, head: Mapping[str, Any], rows: Sequence[Row]) -> bool:
    """Decoded tokens per second against the context, a panel per model; False without matplotlib or rows."""
    decoded = [found for found in rows if found["what"] == "decode" and "value" in found]
    models = list(dict.fromkeys(found["model"] for found in decoded))
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not models:
        return False
    columns = min(len(models), 3)
    lines = -(-len(models) // columns)
    figure = Figure(figsize=(max(4.6 * columns, 8), 3.4 * lines + 1.1), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, model in zip(panels, models, strict=False):
        draw_contexts(panel, model, [found for found in decoded if found["model"] == model])
    for panel in panels[len(models) :]:
        panel.set_axis_off()
    handles = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small")
    figure.suptitle(title("decoded tokens/s against tokens of context", head), fontsize="medium")
    save(figure, path)
    return True


def draw_contexts(panel: Any, model: str, decoded: Sequence[Row]) -> None:
    """One model: a line per engine and number of threads, with the range of the samples."""
    for engine, threads in dict.fromkeys((found["engine"], found["threads"]) for found in decoded):
        mine = [found for found in decoded if (found["engine"], found["threads"]) == (engine, threads)]
        panel.errorbar(
            [found["n"] for found in mine],
            [found["value"] for found in mine],
            yerr=[found["value"] * found["spread"] for found in mine],
            color=COLOURS.get(engine),
            marker=MARKERS.get(threads, "d"),
            linestyle="-" if threads > 1 else "--",
            markersize=4,
            capsize=2,
            label=f"{engine}, {threads} thread{'s' * (threads > 1)}",
        )
    panel.set_title(model, fontsize="small")
    panel.set_ylim(bottom=0)
    panel.grid(visible=True, alpha=0.3)


def plot_roofline(path: Path, head: Mapping[str, Any], rows: Sequence[Row]) -> bool:
    """Decoded tokens per second without context against the bytes of weights read for each, under bandwidth / bytes."""
    points = [
        (size, found)
        for found in rows
        if found["what"] == "decode" and found["n"] == 0 and "value" in found
        if (size := weight_bytes(head["models"], found)) is not None
    ]
    machine = [found for found in rows if found["what"] == "read bandwidth" and "value" in found]
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not points or not machine:
        return False
    figure = Figure(figsize=(9, 5), layout="constrained")
    plot = figure.add_subplot()
    sizes = [size for size, _ in points]
    ends = [min(sizes) / 1.5, max(sizes) * 1.5]
    for threads in dict.fromkeys(found["threads"] for found in machine):
        best = max(found["value"] for found in machine if found["threads"] == threads)
        style = "-" if threads > 1 else "--"
        label = f"{best:.0f} GB/s, {threads} thread{'s' * (threads > 1)}"
        plot.plot(
            [end / 1e6 for end in ends], [best * 1e9 / end for end in ends], style, color="black", lw=1, label=label
        )
    for engine, threads in dict.fromkeys((found["engine"], found["threads"]) for _, found in points):
        mine = [(size, f["value"]) for size, f in points if (f["engine"], f["threads"]) == (engine, threads)]
        plot.scatter(
            [size / 1e6 for size, _ in mine],
            [value for _, value in mine],
            s=24,
            color=COLOURS.get(engine),
            marker=MARKERS.get(threads, "d"),
            label=f"{engine}, {threads} thread{'s' * (threads > 1)}",
        )
    plot.set(xscale="log", yscale="log", xlabel="MB of weights read for a token", ylabel="decoded tokens/s")
    plot.grid(visible=True, which="both", alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")
    plot.set_title(title("decoding under the memory's roof", head), fontsize="medium")
    save(figure, path)
    return True


def title(text: str, head: Mapping[str, Any]) -> str:
    """A picture's title: what, where, and that it was a quick run."""
    mark = "QUICK RUN, figures mean nothing: " if head["quick"] else ""
    return f"{mark}{text}\n{head['processor']}, commit {head['commit']}"


def save(figure: Any, path: Path) -> None:
    """Writes a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
