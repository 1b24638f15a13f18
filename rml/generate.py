"""Generation: choose a token from the logits, append it, again; text comes out as soon as it is certain.

    generation = Generation(model, tokenizer, "The capital of France is", max_tokens=32)
    for piece in generation:
        print(piece, end="", flush=True)
    generation.tokens, generation.stopped_by      # what was chosen, and why it ended

Greedy unless a temperature is given. With the same seed the same tokens come out, whatever the number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.errors import EngineError, InvalidArgument
from rml.kv_cache import CacheType, KvCache

if TYPE_CHECKING:
    from rml.tokenizer import Tokenizer

Logits = npt.NDArray[np.float64]

PREFILL_TOKENS = 128  # a watched prompt runs in pieces of this many


class BadLogits(EngineError, ArithmeticError):
    """The logits hold NaN or infinity: the model, the file or the engine is broken, and no token can be chosen."""


class Model(Protocol):
    """What generation needs of a `DecoderLM`."""

    config: ModelConfig

    def new_cache(self, capacity: int, dtype: CacheType = "f32") -> KvCache:
        """A cache for `capacity` tokens."""

    def forward(
        self, tokens: Sequence[int], cache: KvCache, all_logits: bool = False, out: Logits | None = None
    ) -> Logits:
        """Logits (vocab,) after the last of the tokens."""


def argmax(logits: Logits) -> int:
    """The id of the largest logit (vocab,), the lowest of equals.

    Raises:
        BadLogits: a NaN, +inf, or nothing but -inf. numpy's argmax would call the first NaN the largest.
    """
    best = int(np.argmax(logits))
    if not math.isfinite(logits[best]):  # a NaN wins numpy's argmax, and so does +inf
        count = int(np.count_nonzero(~np.isfinite(logits)))
        raise BadLogits(f"{count} of {logits.size} logits are not finite, the first at id {best}: {logits[best]}")
    return best


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. The filters apply in this order, each to what the one before has left.

    temperature divides the logits (0: no drawing, the largest is taken); top_k keeps the k largest (0: all); top_p
    keeps the fewest tokens whose probabilities reach p, the one that crosses p included (1: all).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None  # None: another result every time

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InvalidArgument(f"temperature is {self.temperature}, expected a number from 0 up")
        if self.top_k < 0:
            raise InvalidArgument(f"top_k is {self.top_k}, expected a count from 0 up")
        if not 0 < self.top_p <= 1:
            raise InvalidArgument(f"top_p is {self.top_p}, expected a number above 0, at most 1")
        if self.seed is not None and self.seed < 0:
            raise InvalidArgument(f"seed is {self.seed}, expected an integer from 0 up")


class Sampler:
    """Draws tokens as `Sampling` says. The stream of random numbers is PCG64's, one number per token."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(sampling.seed))

    def choose(self, logits: Logits) -> int:
        """The next token's id, from logits (vocab,).

        Raises:
            BadLogits: see `argmax`.
        """
        best = argmax(logits)
        if self.sampling.temperature == 0:
            return best
        ids, probabilities = candidates(logits, self.sampling)
        cumulative = np.cumsum(probabilities)
        drawn = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(ids[min(int(drawn), len(ids) - 1)])


def candidates(logits: Logits, sampling: Sampling) -> tuple[npt.NDArray[np.intp], Logits]:
    """The tokens that may be drawn and their probabilities (summing to 1), most probable first, equals by rising id."""
    order = np.argsort(-logits, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    scaled = (logits[order] - logits[order[0]]) / sampling.temperature
    probabilities = np.exp(scaled)
    probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        kept = int(np.searchsorted(np.cumsum(probabilities), sampling.top_p)) + 1
        order, probabilities = order[:kept], probabilities[:kept]
        probabilities /= probabilities.sum()
    return order, probabilities


StopReason = Literal["", "eos", "max_tokens", "context"]


class Generation:
    """One running generation: iterate over it for the pieces of text.

    Attributes:
        prompt: the prompt's token ids.
        tokens: the ids chosen so far, without the end token.
        stopped_by: "eos" (an end token was chosen), "max_tokens", "context" (no room left in the model or the cache);
            empty while it runs.
        prefill_seconds, decode_seconds: time spent in the prompt and in the tokens after it.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        sampling: Sampling | None = None,
        cache: KvCache | None = None,
        cache_dtype: CacheType = "f32",
        ignore_eos: bool = False,
        on_prefill: Callable[[int], None] | None = None,
    ) -> None:
        """Checks everything; the model runs when the first piece is asked for.

        Args:
            model: a loaded model.
            tokenizer: its tokenizer.
            prompt: text (BOS goes first if the model wants one; no control tokens), or ids as they stand.
            max_tokens: the most tokens to add.
            sampling: greedy if None.
            cache: to continue what is in a cache; a new one of `cache_dtype` if None.
            cache_dtype: of the new cache.
            ignore_eos: go on past end tokens.
            on_prefill: called with the number of prompt tokens that have just been run.

        Raises:
            InvalidArgument: an empty prompt, or one that leaves no room in the context.
        """
        if max_tokens < 0:
            raise InvalidArgument(f"max_tokens is {max_tokens}, expected a count from 0 up")
        self.prompt = tokenizer.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        if not self.prompt:
            raise InvalidArgument("the prompt is empty: there is no token to continue from")
        self.tokens: list[int] = []
        self.stopped_by: StopReason = ""
        self.prefill_seconds = self.decode_seconds = 0.0
        self._model, self._tokenizer = model, tokenizer
        self._sampler = Sampler(sampling or Sampling())
        self._max_tokens = max_tokens
        self._ends = frozenset() if ignore_eos else model.config.eos_ids | tokenizer.eos_ids
        self._on_prefill = on_prefill
        room = model.config.max_position_embeddings or len(self.prompt) + max_tokens
        if cache is None:
            cache = model.new_cache(min(len(self.prompt) + max_tokens, max(room, 1)), cache_dtype)
        self._cache = cache
        self._room = min(room, cache.capacity) - cache.size - len(self.prompt)
        if self._room < 0:
            raise InvalidArgument(
                f"a prompt of {len(self.prompt)} tokens after {cache.size} in the cache: the context holds "
                f"{min(room, cache.capacity)}"
            )
        self._logits: Logits = np.empty(model.config.vocab_size)
        self._pieces = self._run()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def text(self) -> str:
        """What has been generated so far, as text; the rest of the generation need not have been asked for."""
        stream = self._tokenizer.stream()
        return "".join(stream.push(token) for token in self.tokens) + stream.flush()

    def _run(self) -> Iterator[str]:
        stream = self._tokenizer.stream()
        self._prefill()
        while self._goes_on():
            token = self._sampler.choose(self._logits)
            if token in self._ends:
                self.stopped_by = "eos"
                break
            self.tokens.append(token)
            piece = stream.push(token) if token < self._tokenizer.vocab_size else ""
            if piece:
                yield piece
        rest = stream.flush()
        if rest:
            yield rest

    def _prefill(self) -> None:
        step = PREFILL_TOKENS if self._on_prefill else len(self.prompt)
        for first in range(0, len(self.prompt), step):
            piece = self.prompt[first : first + step]
            start = time.perf_counter()
            self._model.forward(piece, self._cache, out=self._logits)
            self.prefill_seconds += time.perf_counter() - start
            if self._on_prefill:
                self._on_prefill(len(piece))

    def _goes_on(self) -> bool:
        """Runs the model on the token chosen last, if another one is wanted and there is room."""
        if len(self.tokens) >= self._max_tokens:
            self.stopped_by = "max_tokens"
        elif len(self.tokens) > self._room:
            self.stopped_by = "context"
        elif self.tokens:
            start = time.perf_counter()
            self._model.forward(self.tokens[-1:], self._cache, out=self._logits)
            self.decode_seconds += time.perf_counter() - start
        return not self.stopped_by
