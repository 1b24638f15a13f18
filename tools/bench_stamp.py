"""The correctness stamp of a benchmark row: an engine's logits and tokens against those of rml's exact arithmetic.

Compared are the logits of the last prompt token and of the last token fed after it, whole, and the likeliest token at
every position between. The tokens fed are the yardstick's own greedy ones: if the likeliest are the same everywhere,
the engine's greedy text is the same text. Where they differ, the yardstick's two logits must be closer than what the
engine's errors can turn over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tools.comparison import Logits, kl_divergence

CLOSE_CALL = 4.0  # times the largest logit error seen: two logits err in opposite ways, at positions not compared


@dataclass(frozen=True)
class Verdict:
    """What was found. wrong: empty, or the reason why no speed may be printed.

    max_abs, kl: the larger of the two compared positions; kl in nats. agreed of positions: the same likeliest token.
    tokens: the engine's likeliest token at each position.
    """

    max_abs: float
    kl: float
    agreed: int
    positions: int
    tokens: tuple[int, ...]
    wrong: str = ""

    @property
    def text(self) -> str:
        """For a table's cell."""
        if self.wrong:
            return f"WRONG: {self.wrong}"
        return f"KL {self.kl:.1e}, max {self.max_abs:.1e}, tokens {self.agreed}/{self.positions}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def judge(want: Mapping[str, Any], got: Mapping[str, Any], tokens: Sequence[int], kl_limit: float) -> Verdict:
    """Compares a run with the yardstick's.

    Args:
        want: first, last (vocab,), tokens (n,), kept and values (n, 64): see bench_worker.Session.greedy.
        got: first and last of the engine.
        tokens: the engine's likeliest at each of the same n positions.
        kl_limit: of the engine's arithmetic, in nats.
    """
    wanted = [int(token) for token in want["tokens"]]
    agreed = sum(a == b for a, b in zip(wanted, tokens, strict=True))
    pairs = [(np.asarray(want[place]), np.asarray(got[place])) for place in ("first", "last")]
    shapes = {logits.shape for pair in pairs for logits in pair}
    if len(shapes) > 1:
        return Verdict(math.inf, math.inf, agreed, len(wanted), tuple(tokens), f"logits of shapes {sorted(shapes)}")
    if not all(np.isfinite(mine).all() for _, mine in pairs):
        return Verdict(math.inf, math.inf, agreed, len(wanted), tuple(tokens), "logits are not finite")
    max_abs = max(float(np.abs(theirs - mine).max()) for theirs, mine in pairs)
    kl = max(max(kl_divergence(theirs, mine), 0.0) for theirs, mine in pairs)
    wrong = f"KL {kl:.1e} is above {kl_limit:g}" if kl > kl_limit else ""
    for position, token in enumerate(tokens):
        gap = lead(want, position, token)
        if gap > CLOSE_CALL * max_abs:
            wrong = wrong or f"token {token} at position {position} was no close call: {gap:.2g} behind"
    return Verdict(max_abs, kl, agreed, len(wanted), tuple(tokens), wrong)


def lead(want: Mapping[str, Any], position: int, token: int) -> float:
    """By how much the yardstick's likeliest token is ahead of this one; infinite for one that is not among the kept."""
    kept, values = np.asarray(want["kept"])[position], np.asarray(want["values"])[position]
    at = np.flatnonzero(kept == token)
    return float(values.max() - values[at[0]]) if at.size else math.inf


def read(path: str) -> dict[str, Logits]:
    """A file of logits that a worker wrote."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}
