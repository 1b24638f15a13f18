"""What the kernels of this installation are: release, checked or interpreted, by which compiler, for which processor.

`RML_KERNELS` in the environment states what the caller expects; an installation that is something else is an error,
never a quiet fallback. Only `interpreted` can be asked of every installation, since the kernels' source lies in it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from rml.errors import KernelsUnavailable

MODES = ("release", "checked", "interpreted")


@dataclass(frozen=True)
class BuildInfo:
    """How the kernels run. `mode` is what runs now; the other fields describe what was compiled, if anything was."""

    mode: str
    compiler: str = "none"
    march: str = "none"
    cpu_flags: tuple[str, ...] = field(default=(), repr=False)
    mypy: str = "none"
    librt: str = "none"

    def __str__(self) -> str:
        if self.mode == "interpreted":
            return "interpreted kernels (slow: for debugging)"
        return f"{self.mode} kernels for {self.march} ({self.compiler}, mypyc {self.mypy}, librt {self.librt})"


def processor_flags() -> frozenset[str]:
    """The instruction sets of this processor; empty where the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())


def processor_name() -> str:
    """The processor's name as the system gives it, for reports."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


def read_build_info(folder: Path, wanted: str | None) -> BuildInfo:
    """What `folder`/_build.json says was built, checked against the mode the caller wants and this processor.

    Raises KernelsUnavailable when the wanted kernels are not what was built, when nothing was built and nothing
    was said, and when they were built for another processor.
    """
    if wanted is not None and wanted not in MODES:
        raise KernelsUnavailable(f"RML_KERNELS={wanted!r} is none of {', '.join(MODES)}")
    path = folder / "_build.json"
    built = json.loads(path.read_text()) if path.exists() else {"mode": "none"}
    if wanted == "interpreted" or (wanted is None and built["mode"] == "interpreted"):
        return BuildInfo("interpreted")
    if built["mode"] == "none":
        raise KernelsUnavailable(
            f"{folder}: these kernels are not compiled (no _build.json beside them). Install the project with "
            "`pip install .` and run from outside the checkout, or set RML_KERNELS=interpreted for the slow ones"
        )
    if wanted not in (None, built["mode"]):
        raise KernelsUnavailable(
            f"{folder}: RML_KERNELS={wanted} asked for, but {built['mode']} kernels were built. "
            f"Rebuild with `RML_KERNELS={wanted} pip install --force-reinstall --no-deps .`"
        )
    info = BuildInfo(
        built["mode"], built["compiler"], built["march"], tuple(built["cpu_flags"]), built["mypy"], built["librt"]
    )
    present = processor_flags()
    missing = [flag for flag in info.cpu_flags if present and flag not in present]
    if missing:
        raise KernelsUnavailable(
            f"{folder}: these kernels were built for another processor ({info.march}): this one ({processor_name()}) "
            f"lacks {', '.join(missing)}. Rebuild here with `pip install --force-reinstall --no-cache-dir --no-deps .`"
        )
    return info


BUILD = read_build_info(Path(__file__).parent, os.environ.get("RML_KERNELS"))
