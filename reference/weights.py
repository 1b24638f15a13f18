"""What a weight file offers the decoder: matrices and vectors by their GGUF names, widened to float64 on request.

Nothing is widened before it is needed, and a matrix only a block of rows at a time, so a model of any size needs no
more than `CHUNK` widened weights beyond its activations.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reference.config import Config
from reference.maths import Array, Maths

CHUNK = 1 << 19  # weights widened at once: 4 MB of float64 stay in the processor's cache until they are multiplied


class Matrix:
    """(rows, columns) weights in their stored form. `order` gives the stored row of each row, where they differ."""

    def __init__(
        self,
        stored: npt.NDArray[np.uint8],
        columns: int,
        widen: Callable[[npt.NDArray[np.uint8]], Array],
        order: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """`stored` is (rows, bytes per row), `widen` turns some of its rows into (rows, columns) float64."""
        self.stored, self.columns, self.widen, self.order = stored, columns, widen, order
        self.rows = stored.shape[0] if order is None else len(order)

    def take(self, rows: slice | list[int] | npt.NDArray[np.int64]) -> Array:
        """The chosen rows, widened: (chosen, columns)."""
        picked = self.stored[rows] if self.order is None else self.stored[self.order[rows]]
        wide = self.widen(picked)
        if wide.shape[1] != self.columns:
            raise ValueError(f"rows of {wide.shape[1]} weights where {self.columns} were expected")
        return wide

    def chunks(self) -> Iterator[tuple[slice, Array]]:
        """All rows, some at a time."""
        step = max(1, CHUNK // self.columns)
        for start in range(0, self.rows, step):
            rows = slice(start, min(start + step, self.rows))
            yield rows, self.take(rows)

    def times(self, x: Array, maths: Maths) -> Array:
        """(n, columns) activations to (n, rows): x W^T."""
        out = np.empty((x.shape[0], self.rows))
        for rows, w in self.chunks():
            out[:, rows] = maths.product(x, w)
        return out


class Weights(Protocol):
    """A model's tensors. Names are GGUF's (`blk.0.attn_q.weight`); rows of q and k are in Hugging Face's order."""

    config: Config

    def matrix(self, name: str, rows: int, columns: int) -> Matrix: ...

    def expert(self, name: str, expert: int, rows: int, columns: int) -> Matrix:
        """One expert's matrix out of `blk.N.ffn_{gate,up,down}_exps.weight`."""
        ...

    def vector(self, name: str, length: int) -> Array:
        """A bias, or a norm's multiplier (Gemma's 1 + w is already added)."""
        ...

    def release(self) -> None:
        """Gives the pages of the mapped files back to the system; reading on fetches them again."""
        ...


def release(files: Iterable[npt.NDArray[np.uint8]]) -> None:
    """Forgets what was read of mapped files (numpy.memmap, read only). The bytes stay in the system's own cache, as
    long as it has room, but no longer count as this process's memory."""
    for file in files:
        mapped: object = file.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            mapped.madvise(mmap.MADV_DONTNEED)
