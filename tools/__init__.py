"""Command-line tools of the repository, run from its root as `python -m tools.NAME`; `--help` explains each.

Importing this package puts the checkout behind everything else on the path: the checkout's own rml has no compiled
kernels, and must not hide the installed one.
"""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parent.parent)
sys.path[:] = [entry for entry in sys.path if entry not in ("", _ROOT)] + [_ROOT]
