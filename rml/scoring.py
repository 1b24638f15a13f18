"""Logits of a whole prompt without holding them: each position is reduced to its largest entries and a normaliser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rml.decoder import CALL_TOKENS
from rml.generate import Logits, Model
from rml.kv_cache import CacheType

ROWS_AT_ONCE = 1 << 22  # entries of logits held at a time: 32 MB
TOKENS_AT_ONCE = CALL_TOKENS  # of a call: the longest piece that a model does not cut again


@dataclass(frozen=True)
class Position:
    """What is kept of one position's logits.

    index: the position. ids, values: the largest logits, falling, equals by rising id. log_sum_exp: so that
    value - log_sum_exp is the natural logarithm of the token's probability.
    """

    index: int
    ids: list[int]
    values: list[float]
    log_sum_exp: float

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"position": self.index, "ids": self.ids, "logits": self.values, "log_sum_exp": self.log_sum_exp}


def largest(logits: Logits, count: int) -> npt.NDArray[np.intp]:
    """The ids of the `count` largest logits (vocab,), falling, equals by rising id."""
    count = min(count, logits.size)
    smallest_kept = np.partition(logits, -count)[-count]
    ids = np.flatnonzero(logits >= smallest_kept)  # more than `count` where the smallest kept one is not alone
    return ids[np.argsort(-logits[ids], kind="stable")][:count]


def reduce_row(index: int, logits: Logits, top: int) -> Position:
    """One position's logits (vocab,) as a `Position`."""
    ids = largest(logits, top)
    peak = logits[ids[0]]
    total = float(peak + np.log(np.exp(logits - peak).sum()))
    return Position(index, ids.tolist(), logits[ids].tolist(), total)


def score(
    model: Model,
    tokens: Sequence[int],
    *,
    top: int = 8,
    cache_dtype: CacheType = "f32",
    all_positions: bool = True,
    on_rows: Callable[[Logits], None] | None = None,
    on_tokens: Callable[[int], None] | None = None,
) -> list[Position]:
    """Runs `tokens` from an empty cache and reduces the logits of each position, or of the last alone.

    Args:
        model: a loaded model.
        tokens: ids.
        top: how many of the largest logits to keep of each position.
        cache_dtype: of the cache.
        all_positions: whether every position is wanted.
        on_rows: given the logits (rows, vocab) themselves, a few positions at a time, in order; valid during the call.
        on_tokens: told how many tokens have just been run.
    """
    cache = model.new_cache(max(len(tokens), 1), cache_dtype)
    step = max(1, min(TOKENS_AT_ONCE, ROWS_AT_ONCE // model.config.vocab_size)) if all_positions else TOKENS_AT_ONCE
    found: list[Position] = []
    for first in range(0, max(len(tokens), 1), step):
        piece = list(tokens[first : first + step])
        logits = np.atleast_2d(model.forward(piece, cache, all_logits=all_positions))
        last = first + len(piece) == len(tokens)
        if all_positions or last:
            start = first if all_positions else len(tokens) - 1
            found += [reduce_row(start + row, logits[row], top) for row in range(len(logits))]
            if on_rows:
                on_rows(logits)
        if on_tokens:
            on_tokens(len(piece))
    return found


class LogitsFile:
    """An .npy file of logits (positions, vocab) that is written as they come; does nothing without a path."""

    def __init__(self, path: Path | None, positions: int, vocab: int) -> None:
        self._path, self._shape, self._next = path, (positions, vocab), 0
        self._array: Any = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._array = np.lib.format.open_memmap(self._path, "w+", np.dtype(np.float64), self._shape)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._array is not None:
            self._array.flush()

    def write(self, rows: Logits) -> None:
        """Appends logits (rows, vocab)."""
        if self._array is not None:
            self._array[self._next : self._next + len(rows)] = rows
            self._next += len(rows)
