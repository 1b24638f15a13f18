"""How far the engine may be from the reference on a real checkpoint, one row per way of running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rml.kv_cache import CacheType


@dataclass(frozen=True)
class Limit:
    """One way of running the engine, and its bounds.

    name: as shown. dot, cache: how it runs. logits: the largest error of any logit, None where the path is not meant to
    follow the reference closely. peer_factor: the mean divergence may be so many times llama.cpp's. margin: the greedy
    continuation may leave the reference's where that one's own margin is below this.
    """

    name: str
    dot: str
    cache: CacheType
    logits: float | None
    peer_factor: float | None = None
    margin: float = 0.0

    def failures(
        self, golden: float | None, worst: float | None, kl: float | None, peer_kl: float | None, margin: float
    ) -> Iterator[str]:
        """What is out of bounds, in words. margin: the reference's where the continuations part; 0 if they never do."""
        for name, error in (("top-8 error", golden), ("worst error", worst)):
            if self.logits is not None and error is not None and not error < self.logits:
                yield f"{name} above {self.logits:g}"
        if (
            self.peer_factor is not None
            and kl is not None
            and peer_kl is not None
            and not kl <= self.peer_factor * peer_kl
        ):
            yield f"mean KL above {self.peer_factor:g} times llama.cpp's"
        if margin > self.margin:
            yield f"another greedy continuation, at a margin of {margin:.2g}"


LIMITS = (
    # float64 throughout, another order of additions: seen 1.1e-13
    Limit("exact f64", "exact", "f64", 1e-6),
    # keys and values rounded to float32, relative 6e-8, through 30 layers: seen 1.6e-6 (float32 engines: 2e-3)
    Limit("exact f32", "exact", "f32", 1e-4),
    # activations rounded to int8, as llama.cpp does: logits are off by up to 1.8. The divergence on 100 tokens is
    # itself uncertain by a quarter, so its ratio to llama.cpp's is bounded loosely: seen 0.998 and 1.21
    Limit("int8 f32", "int8", "f32", None, peer_factor=1.5, margin=0.5),
)
