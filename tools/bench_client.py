"""The parent's side of a worker process (bench_worker.py): starts it, asks, gives up on it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tools.report import ROOT

PATIENCE = 900.0  # seconds that one answer may take


class WorkerFailed(Exception):
    """A worker said no, died or was silent for too long; the message is the row's text."""


class Client:
    """One worker process. Use as a context manager: it does not outlive the block."""

    def __init__(self, kind: str, model: Path, threads: int, capacity: int) -> None:
        """Starts the process; `ready` waits until its imports are done."""
        self.kind = kind
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        environment = os.environ | {
            name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench_worker", kind, str(model), str(threads), str(capacity)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            bufsize=0,  # nothing may be left to write when the process is gone
            cwd=ROOT,
            env=environment,
        )
        self.dead = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ready(self) -> None:
        """Waits for the end of the imports. Raises WorkerFailed."""
        self._read(PATIENCE)

    def ask(self, do: str, patience: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        """Sends one command and returns its answer. Raises WorkerFailed."""
        if self.dead:
            raise WorkerFailed(f"{self.kind}: the worker is gone")
        line = json.dumps({"do": do, **arguments}) + "\n"
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except OSError:
            raise WorkerFailed(self._obituary()) from None
        return self._read(patience)

    def _read(self, patience: float) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(patience):
                self._kill()
                raise WorkerFailed(f"no answer within {patience:.0f} s")
        line = stdout.readline()
        if not line:
            raise WorkerFailed(self._obituary())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def _obituary(self) -> str:
        """Why the process ended: a signal or a status, and the last line it wrote."""
        self.dead = True
        code = self.process.wait()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1]}" if lines else how

    def _kill(self) -> None:
        self.dead = True
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends the process: asked first, then killed."""
        if not self.dead:
            self.dead = True
            try:
                self.process.communicate(b'{"do": "stop"}\n', timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                self._kill()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None and not pipe.closed:
                pipe.close()
