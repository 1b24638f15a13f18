"""Progress of long work on stderr: a bar on a terminal, a line now and then everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """One piece of work of `total` steps: `with Progress("hashing", size, "bytes") as p: p.advance(n)`.

    On a terminal one line is rewritten; in a log, where that would be noise, a line is printed every ten seconds
    and at the end. Either way the rate and the time left are shown.
    """

    def __init__(self, what: str, total: float, unit: str = "") -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0.0
        self._start = self._shown = time.monotonic()
        self._line = ""
        self._tty = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show(last=True)

    def advance(self, steps: float = 1.0) -> None:
        """Adds `steps` to what is done."""
        self.set(self.done + steps)

    def set(self, done: float) -> None:
        """Says how much is done in all; going back is allowed (a download that starts again)."""
        self.done = done
        now = time.monotonic()
        if now - self._shown >= (0.1 if self._tty else SECONDS_BETWEEN_LINES):
            self._shown = now
            self._show()

    def _show(self, last: bool = False) -> None:
        line = self.line(time.monotonic() - self._start)
        if line == self._line and not self._tty:
            return
        self._line = line
        if self._tty:
            print(f"\r\x1b[2K{line}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """What is shown after `seconds` of work."""
        share = f"{100 * self.done / self.total:3.0f} %" if self.total else "  - "
        rate = self.done / seconds if seconds > 0 else 0.0
        left = f", {_duration((self.total - self.done) / rate)} left" if 0 < self.done < self.total and rate else ""
        return f"{self.what}  {share}  {self._amount()} in {_duration(seconds)}{left}"

    def _amount(self) -> str:
        if self.unit == "bytes":
            return f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB"
        return f"{self.done:g} of {self.total:g} {self.unit}".rstrip()


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"
