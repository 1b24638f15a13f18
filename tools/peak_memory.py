"""The most memory that this process has used since a moment, as Linux counts it: pages of mapped files included."""

from __future__ import annotations

import re
import sys
from pathlib import Path


class PeakMemory:
    """Begins to watch when it is made."""

    def __init__(self) -> None:
        self.resets = True
        try:
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        except OSError:
            self.resets = False

    def bytes(self) -> int | None:
        """The peak in bytes; None where the system does not tell, or not since when."""
        if not sys.platform.startswith("linux") or not self.resets:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return None if found is None else 1024 * int(found[1])
