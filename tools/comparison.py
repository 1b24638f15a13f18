"""How far logits are from those wanted: worst error, Kullback-Leibler divergence, agreement on the likeliest token.

Positions are added one at a time, so nothing of the vocabulary's size is kept.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float64]


def log_softmax(logits: Logits) -> Logits:
    """Natural logarithms of the probabilities (vocab,)."""
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def kl_divergence(wanted: Logits, got: Logits) -> float:
    """Sum of p * (ln p - ln q) in nats, p from the logits wanted, q from those got; below 0 only by rounding."""
    p, q = log_softmax(wanted), log_softmax(got)
    return float((np.exp(p) * (p - q)).sum())


class Divergence:
    """Running totals over positions.

    Attributes:
        positions: how many were added.
        worst: the largest absolute difference of a logit; NaN counts as infinite.
        worst_at: its position and token.
    """

    def __init__(self) -> None:
        self.positions = 0
        self.worst = 0.0
        self.worst_at = (-1, -1)
        self._kl = 0.0
        self._same = 0

    def add(self, position: int, wanted: Logits, got: Logits) -> None:
        """Adds one position's logits (vocab,)."""
        gap = np.abs(got - wanted)
        token = int(np.argmax(gap))  # a NaN counts as the largest
        size = float(gap[token])
        size = math.inf if math.isnan(size) else size
        if size > self.worst or self.positions == 0:
            self.worst, self.worst_at = size, (position, token)
        self.positions += 1
        self._kl += kl_divergence(wanted, got)
        self._same += int(np.argmax(wanted) == np.argmax(got))

    @property
    def mean_kl(self) -> float:
        """Mean divergence over the positions, in nats."""
        return self._kl / self.positions

    @property
    def top1(self) -> float:
        """The share of positions at which both find the same token likeliest."""
        return self._same / self.positions
