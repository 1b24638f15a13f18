"""What every report has in common: the stamp that says what was run and where, and its forms: JSON, Markdown, PNG.

Results are data first: rows (dicts of JSON values), written with the stamp; tables and plots are made from them.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "reports" / "runs"  # what sessions write; ignored by git
PACKAGES = ("numpy", "gguf", "safetensors", "tokenizers", "mypy", "librt", "llama-cpp-python", "torch", "transformers")


def stamp(threads: int | None = None) -> dict[str, Any]:
    """What a result depends on besides its inputs: commit, time, processor, cores, threads, kernels, versions."""
    from rml.build_info import BUILD, processor_name
    from rml.threads import available_cores

    return {
        "commit": commit(),
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor_name(),
        "cores": available_cores(),
        "threads": available_cores() if threads is None else threads,
        "kernels": str(BUILD),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := installed(name)) is not None} | blas(),
    }


def blas() -> dict[str, str]:
    """numpy's BLAS, its version and the processor whose kernels it took: {} if threadpoolctl does not know it.

    On a processor that it does not know, or is told not to, a BLAS may take kernels of half the speed.
    """
    import numpy as np
    from threadpoolctl import threadpool_info

    folder = Path(np.__file__).parent.parent
    for found in threadpool_info():
        if found["user_api"] == "blas" and Path(found["filepath"]).is_relative_to(folder):
            return {"numpy's " + found["internal_api"]: f"{found['version']} {found.get('architecture', '')}".strip()}
    return {}


def commit() -> str:
    """The checkout's commit, with `+changes` if files that it knows differ; `unknown` outside of git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return head + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def installed(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def stamp_text(values: Mapping[str, Any]) -> str:
    """The stamp as two lines of Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in values["versions"].items())
    return (
        f"Commit {values['commit']}, {values['time']}; {values['processor']}, {values['cores']} cores, "
        f"{values['threads']} threads; {values['kernels']}.\n"
        f"{values['system']}, Python {values['python']}, {versions}.\n"
    )


# ---- forms -----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON holds it: paths as text, numpy numbers as numbers, what is not finite as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all, with the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, values: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes {"stamp": ..., "rows": [...]}, one row a line."""
    lines = ",\n".join("  " + json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows)
    head = json.dumps(plain(values), ensure_ascii=False, allow_nan=False)
    write_text(path, f'{{\n "stamp": {head},\n "rows": [\n{lines}\n ]\n}}\n')


def append_jsonl(path: Path, values: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends one line per row, each with the stamp: a file that grows over runs and can be cut anywhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            line = json.dumps(plain({**row, "stamp": values}), ensure_ascii=False, allow_nan=False)
            file.write(line + "\n")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """A Markdown table; columns named in `right` are set flush right. Bars in cells are escaped."""
    flush = set(right)

    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"

    rule = "|" + "|".join(" --: " if column in flush else " --- " for column in columns) + "|\n"
    return line(columns) + rule + "".join(line(row) for row in rows)


def number_text(value: float | None, digits: int = 2) -> str:
    """A measured number: 1.4e-06, 0.031, 12.5; a dash for none."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-3 or abs(value) >= 1e5:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"


def plot_lines(
    path: Path,
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    log: str = "",
) -> bool:
    """Writes a PNG of named lines (x values, y values); False if matplotlib is not installed.

    Args:
        path: where.
        title: above the picture.
        axes: what x and y are, with units.
        lines: name -> values.
        log: the axes that are logarithmic: "", "x", "y" or "xy".
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    plot = figure.add_subplot()
    for name, (x, y) in lines.items():
        plot.plot(x, y, marker="o", markersize=3, linewidth=1.2, label=name)
    plot.set(title=title, xlabel=axes[0], ylabel=axes[1])
    if "x" in log:
        plot.set_xscale("log")
    if "y" in log:
        plot.set_yscale("log")
    plot.grid(visible=True, alpha=0.3)
    if len(lines) > 1:
        plot.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return True
