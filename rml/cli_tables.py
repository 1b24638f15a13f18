"""The texts that commands print. Every function returns a text; none prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rml.inspection import grouped
from rml.scoring import Position
from rml.tokenizer import Tokenizer

WIDTH = 400  # columns: tables are as wide as their content, lines are never broken


def table_text(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """A table without lines: `columns` are headings, those in `right` are set flush right."""
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False, header_style="")
    for column in columns:
        table.add_column(column, justify="right" if column in set(right) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(width=WIDTH, color_system=None, force_terminal=False, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def size_text(count: float) -> str:
    """Bytes as people read them: 1.5 KB, 96.6 MB, 4.58 GB, in powers of 1000."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1000
    raise AssertionError  # the loop ends at GB


def inspection_text(report: Mapping[str, Any], all_tensors: bool) -> str:
    """What `rml inspect` prints of `rml.inspection.inspect`'s report."""
    parts = [f"{report['path']} ({report['format']})\n"]
    if report["problem"]:
        parts.append(f"cannot be run: {report['problem']}\n")
    else:
        parts.append(config_table(report["config"]))
    parts.append(tensor_table(report, all_tensors))
    if not report["problem"]:
        parts += [memory_table(report["memory"]), tokenizer_line(report["tokenizer"])]
    return "\n".join(parts)


# The parts of a rope config that each scaling uses; the others have no effect and are not shown.
ROPE_PARTS: Final = {
    "default": ("theta", "type"),
    "linear": ("theta", "type", "factor"),
    "llama3": ("theta", "type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position"),
}


def config_table(config: Mapping[str, Mapping[str, Any]]) -> str:
    """The effective config; parts that the model's kind of RoPE does not use are left out."""
    parts = ROPE_PARTS.get(config["rope.type"]["value"])
    unused = {name for name in config if name.startswith("rope.") and parts and name[5:] not in parts}
    rows = [
        (name, value_text(name, entry["value"]), entry["source"])
        for name, entry in config.items()
        if name not in unused
    ]
    return table_text("Config", ["value", "is", "from"], rows)


def value_text(name: str, value: Any) -> str:
    """A config value; the sliding layers as ranges."""
    if name == "sliding_layers":
        sliding = [layer for layer, slides in enumerate(value) if slides]
        return ranges_text(sliding) if sliding else "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def ranges_text(numbers: Sequence[int]) -> str:
    """Rising numbers with runs joined: 0-4, 6-10, 12."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def tensor_table(report: Mapping[str, Any], all_tensors: bool) -> str:
    """The tensors, and under them their number, weights and bits per weight."""
    tensors = report["tensors"]
    rows = [{**row, "count": 1} for row in tensors] if all_tensors else grouped(tensors)
    cells = [
        (row["name"], row["count"], row["type"], "x".join(map(str, row["shape"])), size_text(row["bytes"]), row["use"])
        for row in rows
    ]
    bits = report["bits_per_weight"]
    total = sum(row["bytes"] for row in tensors)
    return table_text("Tensors", ["name", "count", "type", "shape", "bytes", "use"], cells, ["count", "bytes"]) + (
        f"{len(tensors)} tensors, {report['stored_weights']:,} weights, {size_text(total)}"
        + (f", {bits:.2f} bits per weight\n" if bits else "\n")
    )


def memory_table(memory: Mapping[str, Any]) -> str:
    """Memory by purpose."""
    rows = [
        ("weights", size_text(memory["weights"]), "mapped from the file, shared, resident when touched"),
        ("panels", size_text(memory["panels"]), "quantised matrices, rewritten for int8 products"),
        ("copies", size_text(memory["copies"]), "norms, biases, unaligned tensors"),
        ("workspace", size_text(memory["workspace"]), f"activations, constants, scratch; threads: {memory['threads']}"),
        ("logits", size_text(memory["logits"]), "one position, float64"),
    ]
    rows += [
        (f"cache {dtype}", size_text(count), f"{memory['context']} positions, resident as they fill")
        for dtype, count in memory["cache"].items()
    ]
    return table_text("Memory", ["for", "bytes", "which is"], rows, ["bytes"])


def tokenizer_line(tokenizer: Mapping[str, Any]) -> str:
    """The tokenizer in one line."""
    if tokenizer["problem"]:
        return f"No tokenizer: {tokenizer['problem']}\n"
    bos = (
        "no BOS"
        if tokenizer["bos"] is None
        else f"BOS {tokenizer['bos']}{'' if tokenizer['add_bos'] else ' (not added)'}"
    )
    ends = ", ".join(map(str, tokenizer["eos"])) or "none"
    template = "with" if tokenizer["chat_template"] else "without"
    return f"Tokenizer: {tokenizer['tokens']} tokens, {bos}, ends {ends}, {template} a chat template\n"


def logits_text(tokens: Sequence[int], rows: Sequence[Position], tokenizer: Tokenizer | None) -> str:
    """What `rml logits` prints: one line per candidate of each position."""

    def piece(token: int) -> str:
        if tokenizer is None or token >= tokenizer.vocab_size:
            return ""
        return repr(tokenizer.piece(token).decode(errors="replace"))

    cells: list[tuple[object, ...]] = []
    for row in rows:
        for rank, (token, value) in enumerate(zip(row.ids, row.values, strict=True)):
            here = (row.index, tokens[row.index], piece(tokens[row.index])) if rank == 0 else ("", "", "")
            probability = f"{math.exp(value - row.log_sum_exp):.6f}"
            cells.append((*here, token, piece(token), f"{value:.6f}", probability))
    columns = ["position", "token", "text", "next", "next text", "logit", "probability"]
    return table_text("Logits", columns, cells, ["position", "token", "next", "logit", "probability"])
