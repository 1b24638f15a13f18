"""Offsets in the four arenas of a forward pass, handed out before the memory is allocated.

f    float64   constants (f16 table, norms, biases, scales), scratch per rank, then the activations [token][width]
h    i16       activations rounded to int8, scratch per rank
k    i32       sums of those, scratch per rank
ids  i64       token ids, chosen experts, expert offsets, page table
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LINE = 64  # offsets are multiples of 64 entries: whole cache lines of every type


class Plan:
    """Hands out offsets in one arena; its size is known when all have been taken."""

    def __init__(self, start: int = 0) -> None:
        self.size = start

    def take(self, count: int) -> int:
        """The offset of `count` new entries."""
        offset = self.size
        self.size += -(-count // LINE) * LINE
        return offset

    def take_either(self, *alternatives: list[int]) -> list[list[int]]:
        """The offsets of each list's entries; the lists share memory, for no two of them are in use at once."""
        start = end = self.size
        offsets = []
        for counts in alternatives:
            self.size = start
            offsets.append([self.take(count) for count in counts])
            end = max(end, self.size)
        self.size = end
        return offsets


class Constants:
    """Values of an arena that never change: norms, biases, scales, tables; each copied to its place once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.parts: list[tuple[int, npt.NDArray[np.generic]]] = []
        self.numbers: dict[float, int] = {}

    def vector(self, values: npt.NDArray[np.generic]) -> int:
        """The offset of a vector (count,)."""
        offset = self.plan.take(values.size)
        self.parts.append((offset, values))
        return offset

    def number(self, value: float) -> int:
        """The offset of one number; equal numbers share it."""
        if value not in self.numbers:
            self.numbers[value] = self.vector(np.array([value]))
        return self.numbers[value]

    def write(self, arena: npt.NDArray[np.generic]) -> None:
        """Copies all of them to their places, and lets go of them."""
        for offset, values in self.parts:
            arena[offset : offset + values.size] = values
        self.parts.clear()


@dataclass(frozen=True, slots=True)
class Region:
    """A float64 activation buffer: [tokens][width], token t at f[offset + t * width]."""

    offset: int
    width: int


def f16_table() -> Floats:
    """(65536,) the value of every f16 bit pattern as float64; subnormals, infinities and NaN included."""
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
