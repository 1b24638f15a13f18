"""`rml verify determinism`: the same prompt in every way of running it, and a hash of the logits' bytes for each.

The engine promises one result whatever the number of threads, however a prompt is cut into calls, and whether the cache
is new or was used before. A matrix of hashes shows it: every cell of a product's matrix must hold the same one.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

import rml
from rml.decoder import DecoderLM, Logits
from rml.errors import InvalidArgument
from rml.kv_cache import CacheType, KvCache

Dot = Literal["int8", "exact"]
DOTS: Final[tuple[Dot, ...]] = ("int8", "exact")
THREADS: Final = (1, 2, 3, 4)
UNEVEN: Final = (1, 16, 3, 15, 2, 33, 31, 47)  # around pages of 16 and tiles of 32; repeated as often as needed
FEEDINGS: Final = ("whole", "one by one", "uneven")
CACHES: Final = ("fresh", "reused")
LOGIT_ENTRIES: Final = 1 << 24  # of a whole prompt's logits, which are held at once: 128 MB
TOKENS: Final = 150  # longer than two calls of the engine (64)


@dataclass(frozen=True)
class Cell:
    """One way of running the prompt and the SHA-256 of the logits (n, vocab), float64, little-endian."""

    threads: int
    feeding: str
    cache: str
    sha256: str


@dataclass(frozen=True)
class Matrix:
    """All ways of running one product."""

    dot: Dot
    cells: tuple[Cell, ...]

    @property
    def hashes(self) -> list[str]:
        """The different hashes, in the order of their first cell; one if all is well."""
        return list(dict.fromkeys(cell.sha256 for cell in self.cells))

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        cells = [vars(cell) for cell in self.cells]
        return {"dot": self.dot, "hashes": self.hashes, "cells": cells}


def prompt_length(vocab: int) -> int:
    """How many tokens a prompt has by default: as many as the logits of one call leave room for, from 40 to 150."""
    return max(40, min(TOKENS, LOGIT_ENTRIES // vocab))


def pieces(count: int, feeding: str) -> Iterator[int]:
    """The sizes of the calls that run `count` tokens."""
    if feeding == "whole":
        yield count
        return
    sizes = (1,) if feeding == "one by one" else UNEVEN
    turn = 0
    while count > 0:
        size = min(sizes[turn % len(sizes)], count)
        yield size
        count, turn = count - size, turn + 1


def feed(model: DecoderLM, tokens: Sequence[int], cache: KvCache, feeding: str, out: Logits) -> None:
    """Runs the tokens in pieces; out (n, vocab) gets the logits of each."""
    at = 0
    for size in pieces(len(tokens), feeding):
        model.forward(tokens[at : at + size], cache, all_logits=True, out=out[at : at + size])
        at += size


def run_cell(model: DecoderLM, tokens: Sequence[int], feeding: str, cache: KvCache, reused: bool, out: Logits) -> str:
    """The hash of the prompt's logits.

    reused: another prompt, longer than this one, which begins with the same third, has been in the cache and is
    truncated to that third; what it left behind lies under every later position.
    """
    shared = 0
    if reused:
        shared = len(tokens) // 3
        other = [*tokens[:shared], *reversed(tokens)][: len(tokens)]
        feed(model, other, cache, feeding, out)
        cache.truncate(shared)
    feed(model, tokens[shared:], cache, feeding, out[shared:])
    return hashlib.sha256(np.ascontiguousarray(out, "<f8").data).hexdigest()


def determinism(
    path: str | Path,
    tokens: Sequence[int],
    threads: Sequence[int] = THREADS,
    dots: Sequence[Dot] | None = None,
    cache_dtype: CacheType = "f32",
    on_cell: Callable[[Cell], None] | None = None,
) -> list[Matrix]:
    """Runs `tokens` in every way.

    Args:
        path: a model.
        tokens: at least 3 ids.
        threads: the numbers of threads.
        dots: the products; None = int8 and exact, or exact alone for a model without quantised weights.
        cache_dtype: of the caches.
        on_cell: told of each run as it ends.
    """
    if len(tokens) < 3:
        raise InvalidArgument(
            f"{len(tokens)} tokens: expected at least 3, better more than 64, to cut in several ways"
        )
    found = []
    for dot in dots or useful_dots(path):
        cells: list[Cell] = []
        for count in threads:
            model = load_ranks(path, count, dot)
            for cell in _cells(model, tokens, cache_dtype):
                cells.append(cell)
                if on_cell:
                    on_cell(cell)
            model.engine.close()
        found.append(Matrix(dot, tuple(cells)))
    return found


def useful_dots(path: str | Path) -> tuple[Dot, ...]:
    """The products that differ for this model."""
    stored = [matrix.format for matrix in rml.load(path, threads=1).layers.matrices()]
    return DOTS if any(kind.activation_group for kind in stored) else ("exact",)


def load_ranks(path: str | Path, ranks: int, dot: Dot) -> DecoderLM:
    """The model with so many threads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"threads=\d+ on", UserWarning)  # meant here
        return rml.load(path, threads=ranks, dot=dot)


def _cells(model: DecoderLM, tokens: Sequence[int], cache_dtype: CacheType) -> Iterator[Cell]:
    out = np.empty((len(tokens), model.config.vocab_size))
    for feeding in FEEDINGS:
        for cache in CACHES:
            room = model.new_cache(len(tokens), cache_dtype)
            found = run_cell(model, tokens, feeding, room, cache == "reused", out)
            yield Cell(model.threads, feeding, cache, found)
