"""`rml verify kld`: how far the next-token distributions of one run are from another's, position by position.

A text is cut into windows; each is run from an empty cache; at every scored position the two distributions are reduced
to a handful of numbers at once, so that memory grows with the vocabulary and not with the text.

KL(A || B) = sum over tokens of p_A (log p_A - log p_B), in nats: 0 when B expects what A expects. A is the one that is
believed. Perplexity = exp(mean of -log p(next token)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from rml.build_info import BUILD
from rml.decoder import DecoderLM
from rml.errors import BadFile, InvalidArgument
from rml.kv_cache import CacheType
from rml.tokenizer import Tokenizer
from rml.verify_record import Distribution, Full, Record, RecordWriter, divergence, log_softmax
from rml.verify_text import context_text

PIECE_ENTRIES: Final = 1 << 21  # of the logits held at a time: 16 MB
PERCENTILES: Final = (50, 90, 95, 99)
WINDOW: Final = 512
TAIL: Final = 1e-3  # of the probability that a recorded position may leave out
TOP: Final = 1024  # the most tokens that are recorded of a position: 8 KB


@dataclass(frozen=True)
class Scoring:
    """What is run and what is scored.

    tokens: the text, without BOS. window: tokens of one run, BOS included. skip: positions at the start of each window
    that are run but not scored. bos: begins every window; None = nothing does. source: where the tokens came from.
    A window's last position is never scored: the token that follows it is in the next one.
    """

    tokens: tuple[int, ...]
    window: int = WINDOW
    skip: int = 0
    bos: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        first = 0 if self.bos is None else 1
        if self.skip < 0 or self.window < max(self.skip, first) + 2:
            raise InvalidArgument(f"windows of {self.window} tokens leave nothing to score after {self.skip} skipped")
        if not self.windows():
            raise InvalidArgument(f"{len(self.tokens)} tokens are too few: no position has a next token")

    def windows(self) -> list[list[int]]:
        """The token ids of each run; a last one that has nothing to score is left out."""
        bos = [] if self.bos is None else [self.bos]
        step = self.window - len(bos)
        cut = [[*bos, *self.tokens[at : at + step]] for at in range(0, len(self.tokens), step)]
        return [window for window in cut if len(window) >= self.skip + 2]

    @property
    def positions(self) -> int:
        """How many are scored."""
        return sum(len(window) - 1 - self.skip for window in self.windows())

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return vars(self) | {"tokens": list(self.tokens)}

    def __str__(self) -> str:
        windows = self.windows()
        begin = "no BOS" if self.bos is None else f"each begins with BOS ({self.bos})"
        last = len(windows[0]) - 2
        return (
            f"{len(self.tokens)} tokens ({self.source}); windows: {len(windows)} of up to {self.window}, {begin}; "
            f"scored: positions {self.skip} to {last} of each, where a next token follows, {self.positions} in all"
        )


class Source(Protocol):
    """A run of distributions."""

    name: str
    vocab: int

    def distributions(self, window: Sequence[int], skip: int) -> Iterator[Distribution]:
        """After each of the window's tokens but the first `skip` and the last; valid until the next is asked for."""


class EngineSource:
    """An engine run from an empty cache, a few positions at a time."""

    def __init__(self, model: DecoderLM, name: str, cache_dtype: CacheType = "f32") -> None:
        self.model, self.name, self.cache_dtype = model, name, cache_dtype
        self.vocab = model.config.vocab_size
        self._cache = model.new_cache(1, cache_dtype)
        self._rows = np.empty((max(1, min(32, PIECE_ENTRIES // self.vocab)), self.vocab))

    def distributions(self, window: Sequence[int], skip: int) -> Iterator[Full]:
        """See `Source`."""
        if self._cache.capacity < len(window):
            self._cache = self.model.new_cache(len(window), self.cache_dtype)
        self._cache.reset()
        for first in range(0, len(window) - 1, len(self._rows)):
            piece = window[first : min(first + len(self._rows), len(window) - 1)]
            rows = self.model.forward(piece, self._cache, all_logits=True, out=self._rows[: len(piece)])
            for offset in range(max(0, skip - first), len(piece)):
                yield log_softmax(rows[offset], f"{self.name}, position {first + offset}")


class RecordedSource:
    """A `.kld` file; its windows must be asked for in order."""

    def __init__(self, path: Path) -> None:
        record = Record(path)
        self.name = f"{record.header.get('name', path.name)}, recorded in {path.name}"
        self.vocab = record.vocab
        try:
            protocol = dict(record.header["protocol"])
            self.scoring = Scoring(**protocol | {"tokens": tuple(map(int, protocol["tokens"]))})
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile(f"{path}: the header holds no protocol of a run ({error})") from error
        if self.scoring.positions != record.count:
            raise BadFile(f"{path}: {record.count} positions, but its protocol scores {self.scoring.positions}")
        self._positions = record.positions()

    def distributions(self, window: Sequence[int], skip: int) -> Iterator[Distribution]:
        """See `Source`."""
        for _ in range(len(window) - 1 - skip):
            yield next(self._positions)


@dataclass
class Comparison:
    """One entry per scored position, in order. Divergences in nats; `at`: (window, position in it)."""

    at: list[tuple[int, int]] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)  # how far kl may be from the truth
    loss_a: list[float] = field(default_factory=list)  # -log p(next token)
    loss_b: list[float] = field(default_factory=list)
    best_a: list[int] = field(default_factory=list)  # likeliest token
    best_b: list[int] = field(default_factory=list)

    def add(self, at: tuple[int, int], a: Distribution, b: Distribution, following: int) -> None:
        """One position."""
        kl, bound = divergence(a, b)
        self.at.append(at)
        self.kl.append(kl)
        self.bound.append(bound)
        self.loss_a.append(-a.next(following))
        self.loss_b.append(-b.next(following))
        self.best_a.append(a.best)
        self.best_b.append(b.best)

    def summary(self) -> dict[str, Any]:
        """The figures that are reported. kl_bound: how far the mean may be from the truth."""
        kl, n = np.array(self.kl), len(self.kl)
        same = np.array(self.best_a) == np.array(self.best_b)
        difference = np.array(self.loss_b) - np.array(self.loss_a)
        return {
            "positions": n,
            "kl_mean": float(kl.mean()),
            "kl_standard_error": float(kl.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0,
            "kl_percentiles": {
                str(p): float(v) for p, v in zip(PERCENTILES, np.percentile(kl, PERCENTILES), strict=True)
            },
            "kl_max": float(kl.max()),
            "kl_bound": float(np.mean(self.bound)),
            "kl_bound_max": float(np.max(self.bound)),
            "same_top": float(same.mean()),
            "perplexity_a": perplexity(self.loss_a),
            "perplexity_b": perplexity(self.loss_b),
            "loss_difference_mean": float(difference.mean()),
            "loss_difference_max": float(np.abs(difference).max()),
        }

    def worst(self, count: int) -> list[int]:
        """Indices of the largest divergences, the largest first."""
        return [int(i) for i in np.argsort(-np.array(self.kl), kind="stable")[:count]]


def perplexity(losses: Sequence[float]) -> float:
    """exp(mean); infinity where that does not fit."""
    mean = sum(losses) / len(losses)
    return math.exp(mean) if mean < 700 else math.inf


def compare(a: Source, b: Source, scoring: Scoring, on_position: Callable[[int], None] | None = None) -> Comparison:
    """Scores every position of the protocol. on_position: called with 1 after each.

    Raises InvalidArgument for two vocabularies of different sizes, or a recorded run of another protocol.
    """
    if a.vocab != b.vocab:
        raise InvalidArgument(f"{a.name} has {a.vocab} tokens, {b.name} has {b.vocab}: not the same vocabulary")
    for source in (a, b):
        if isinstance(source, RecordedSource) and vars(source.scoring) | {"source": ""} != vars(scoring) | {
            "source": ""
        }:
            raise InvalidArgument(f"{source.name}: recorded with another protocol: {source.scoring}")
    found = Comparison()
    for index, window in enumerate(scoring.windows()):
        pairs = zip(a.distributions(window, scoring.skip), b.distributions(window, scoring.skip), strict=True)
        for position, (left, right) in enumerate(pairs, scoring.skip):
            found.add((index, position), left, right, window[position + 1])
            if on_position:
                on_position(1)
    return found


def record(
    source: Source,
    scoring: Scoring,
    path: Path,
    tail: float = TAIL,
    top: int = TOP,
    on_position: Callable[[int], None] | None = None,
) -> int:
    """Writes the run to a `.kld` file; returns how many tokens were kept. tail, top: see `keep`."""
    header = {
        "name": source.name,
        "vocab": source.vocab,
        "positions": scoring.positions,
        "tail": tail,
        "top": top,
        "protocol": scoring.as_dict(),
    }
    with RecordWriter(path, header, tail, top) as writer:
        for window in scoring.windows():
            for position, found in enumerate(source.distributions(window, scoring.skip), scoring.skip):
                if not isinstance(found, Full):
                    raise InvalidArgument(
                        f"{source.name}: a record of a record would lose more; record the model itself"
                    )
                writer.add(found, window[position + 1])
                if on_position:
                    on_position(1)
    return writer.kept


def report(
    a: Source, b: Source, scoring: Scoring, found: Comparison, worst: int, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """A comparison as a JSON object: protocol, figures, and the positions with the `worst` largest divergences."""
    windows = scoring.windows()
    rows = []
    for index in found.worst(worst):
        window, position = found.at[index]
        here = {name: getattr(found, name)[index] for name in ("kl", "bound", "loss_a", "loss_b", "best_a", "best_b")}
        context = context_text(tokenizer, windows[window], position)
        following = windows[window][position + 1]
        rows.append({"window": window, "position": position, "context": context, "next": following, **here})
    return {
        "a": a.name,
        "b": b.name,
        "kernels": str(BUILD),
        "protocol": scoring.as_dict(),
        "protocol_text": str(scoring),
        "summary": found.summary(),
        "worst": rows,
    }
