"""The reference over a real model: progress with the time left, and a run that was stopped goes on where it was.

A pass over an 8B model takes minutes, and what takes minutes gets stopped: by a full disk, a closed lid, a limit on
time. After every layer the residual stream, which is all that the next layer needs, is saved (n x hidden float64: 2 MB
for 64 tokens of an 8B model). Logits are computed from the states, some rows at a time, and not saved.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import reference
from reference.gguf_files import files_of
from rml.scoring import reduce_row
from tools.progress import Progress

Logits = npt.NDArray[np.float64]
Propose = Callable[[Sequence[int], int], list[int]]
HEAD_ROWS = 16  # positions whose logits are computed at once: bounds memory at a large vocabulary


def fingerprint(path: Path, tokens: Sequence[int]) -> str:
    """Names a pass: the same files (by name, size and time of change), tokens, and source of the reference."""
    names = sorted(path.iterdir()) if path.is_dir() else files_of(path)
    digest = hashlib.sha256(repr(list(tokens)).encode())
    for file in names:
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    for source in sorted(Path(reference.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def save(place: Path, state: reference.State) -> None:
    """Writes a state whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        np.savez(file, layer=state.layer, x=state.x)
    partial.replace(place)


def saved(place: Path | None) -> reference.State | None:
    """The state that was saved there, if there is one."""
    if place is None or not place.exists():
        return None
    with np.load(place) as file:
        return reference.State(int(file["layer"]), file["x"])


class ReferenceRun:
    """The reference's states of a token sequence; logits are computed from them on request."""

    def __init__(self, path: Path, tokens: Sequence[int], what: str, keep: Path | None = None) -> None:
        """Runs all layers, or those that are left.

        Args:
            path: a GGUF file or a Hugging Face directory.
            tokens: ids.
            what: what is run, for the progress line.
            keep: a folder in which the state after every layer is saved; None saves nothing.
        """
        self.model = reference.load(path)
        self.place = None if keep is None else keep / f"{fingerprint(path, tokens)}.npz"
        start = saved(self.place)
        if start is not None:
            print(f"reference, {what}: goes on after {start.layer} layers", file=sys.stderr)
        self.states = self._run(tokens, f"reference, {what}", start)

    def _run(self, tokens: Sequence[int], what: str, start: reference.State | None) -> Logits:
        done = 0 if start is None else start.layer
        with Progress(what, self.model.config.layers - done, "layers") as progress:
            for state in self.model.stream(tokens, start=start):
                if state.layer > done:
                    if self.place is not None:
                        save(self.place, state)
                    progress.set(state.layer - done)
        return self.model.normalised(state)

    def rows(self, positions: Sequence[int]) -> Iterator[Logits]:
        """The logits (vocab,) of these positions, in turn."""
        for first in range(0, len(positions), HEAD_ROWS):
            rows = self.model.logits(self.states[list(positions[first : first + HEAD_ROWS])])
            self.model.weights.release()
            yield from rows

    def forget(self) -> None:
        """Deletes what was saved."""
        if self.place is not None:
            self.place.unlink(missing_ok=True)


def continuation(
    propose: Propose, path: Path, ids: Sequence[int], count: int, what: str, keep: Path | None = None
) -> tuple[ReferenceRun, list[int], list[float]]:
    """The reference over a prompt and its own greedy continuation of `count` tokens; that, and each step's margin.

    Somebody else proposes (`propose(ids, count)`: the engine), the reference disposes: the proposal stands up to the
    first token that is not the reference's, which replaces it; then again. Usually one pass is enough, where a decoder
    without a cache would need one for every token.
    """
    added: list[int] = []
    while True:
        proposal = [*added, *propose([*ids, *added], count - len(added))]
        run = ReferenceRun(path, [*ids, *proposal], what, keep)
        steps = [reduce_row(0, row, 2) for row in run.rows(range(len(ids) - 1, len(ids) + count - 1))]
        wanted = [step.ids[0] for step in steps]
        agreed = next((i for i, (a, b) in enumerate(zip(wanted, proposal, strict=True)) if a != b), count)
        if agreed == count:
            return run, wanted, [step.values[0] - step.values[1] for step in steps]
        run.forget()
        added = wanted[: agreed + 1]
        print(f"{what}: the reference takes another token at step {agreed}", file=sys.stderr)
