"""The public face of a model: the decoder with its tokenizer, so that text goes in and text comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rml.decoder import DecoderLM
from rml.generate import Generation, Sampling
from rml.weight_source import open_weights

if TYPE_CHECKING:
    from rml.tokenizer import Tokenizer


class LanguageModel(DecoderLM):
    """A DecoderLM that was opened from `path`, with the tokenizer that lies there."""

    def __init__(self, path: str | Path, threads: int | None = None, dot: str | None = None) -> None:
        """See `load`."""
        super().__init__(open_weights(path), threads, dot)
        self.path = Path(path)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file or directory, read when first asked for."""
        from rml.tokenizer_files import open_tokenizer  # its library takes 5 MB, which ids alone do not need

        return open_tokenizer(self.path)

    def generate(
        self, prompt: str | Sequence[int], max_tokens: int = 128, sampling: Sampling | None = None
    ) -> Iterator[str]:
        """Pieces of the text that continues `prompt`, as they become certain; greedy unless `sampling` says otherwise.

        Ends at an end token, after `max_tokens`, or when the context is full. Raises InvalidArgument for an empty
        prompt.
        """
        return iter(Generation(self, self.tokenizer, prompt, max_tokens=max_tokens, sampling=sampling))


def load(
    path: str | Path, threads: int | None = None, dot: str | None = None, deterministic: bool = True
) -> LanguageModel:
    """Opens a GGUF file or a Hugging Face directory (config.json and safetensors); weights stay in the mapped files.

    threads: ranks that share the work; None takes every available core.
    dot: "int8" (default) rounds activations to int8 for quantised weights, "exact" multiplies stored weights by
        float64.
    deterministic: for callers who state what they rely on. Every model gives the same bits for any number of threads
        and any way of cutting the prompt; there is no faster way that does not, so False changes nothing.
    Raises BadFile, Unsupported or InvalidArgument, with file, tensor or key, and what to do next.
    """
    return LanguageModel(path, threads, dot)
