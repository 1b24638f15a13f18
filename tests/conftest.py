"""Makes the checkout's `tools` and `reference` importable, behind the installed rml; says which kernels are tested."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tools  # noqa: F401  moves the checkout to the end of the path


def pytest_report_header() -> str:
    """The kernels that this run tests."""
    from rml.build_info import BUILD

    return f"rml: {BUILD}"
