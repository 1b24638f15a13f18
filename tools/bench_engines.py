"""The engines that the benchmark times, behind one small face. Each is imported in a worker process of its own.

Every engine runs with its own defaults where they are what its users get (cache type, batch size); what is set is said
by `settings` and lands in the report. Logits of the last token alone are computed, as in generation.
"""

from __future__ import annotations

import copy
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float64]


class Engine(Protocol):
    """A loaded model with one sequence."""

    settings: str  # what is set, and what matters of what is not

    @property
    def size(self) -> int:
        """Tokens in the cache."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Runs tokens after those in the cache, and computes the logits of the last of them."""

    def rewind(self, size: int) -> None:
        """Forgets all but the first `size` tokens."""

    def logits(self) -> Logits:
        """Logits (vocab,) of the last token run, as a copy."""


class Rml:
    """This project's engine."""

    def __init__(self, path: Path, threads: int, capacity: int, exact: bool = False) -> None:
        """exact: the yardstick of all others: stored weights times float64 activations, a float64 cache."""
        import rml

        self.model = rml.load(path, threads=threads, dot="exact" if exact else None)
        self.cache = self.model.new_cache(capacity, "f64") if exact else self.model.new_cache(capacity)
        self.out: Logits = np.empty(self.model.config.vocab_size)
        self.settings = f"{self.model.dot} dot, {self.cache.dtype} cache"

    @property
    def size(self) -> int:
        """See Engine."""
        return self.cache.size

    def extend(self, tokens: Sequence[int]) -> None:
        """See Engine."""
        self.model.forward(tokens, self.cache, out=self.out)

    def rewind(self, size: int) -> None:
        """See Engine."""
        self.cache.truncate(size)

    def logits(self) -> Logits:
        """See Engine."""
        return self.out.copy()


def log_errors(level: int, text: bytes, _user_data: object) -> None:
    """llama.cpp's log without its hundred lines of good news."""
    if level >= 4:  # GGML_LOG_LEVEL_ERROR, and lines that continue one
        os.write(2, text)


class LlamaCpp:
    """llama.cpp, through the C functions that llama-cpp-python binds: none of its Python stands before the work."""

    BATCH = 512

    def __init__(self, path: Path, threads: int, capacity: int) -> None:
        """Raises RuntimeError if llama.cpp refuses the file; its reasons are on stderr."""
        import llama_cpp as c

        self.c: Any = c
        c.llama_backend_init()
        self.log = c.llama_log_callback(log_errors)  # lives as long as the library may call it
        c.llama_log_set(self.log, ctypes.c_void_p(0))
        self.model: Any = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        options = c.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = capacity, self.BATCH, self.BATCH
        options.n_threads = options.n_threads_batch = threads
        self.context: Any = c.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {capacity} tokens for {path}")
        self.memory: Any = c.llama_get_memory(self.context)
        self.vocab = int(c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model)))
        self.size = 0
        self.row: Any = None
        self.settings = f"f16 cache, flash attention auto, batches of {self.BATCH}"

    def extend(self, tokens: Sequence[int]) -> None:
        """See Engine."""
        c = self.c
        for first in range(0, len(tokens), self.BATCH):
            piece = tokens[first : first + self.BATCH]
            ids = (c.llama_token * len(piece))(*piece)
            failed = c.llama_decode(self.context, c.llama_batch_get_one(ids, len(piece)))
            if failed:
                raise RuntimeError(f"llama_decode returned {failed} at {self.size} tokens")
            self.size += len(piece)
        self.row = c.llama_get_logits_ith(self.context, -1)  # waits until they are there

    def rewind(self, size: int) -> None:
        """See Engine."""
        if size == 0:
            self.c.llama_memory_clear(self.memory, False)
        elif not self.c.llama_memory_seq_rm(self.memory, 0, size, -1):
            raise RuntimeError(f"llama.cpp cannot forget all but {size} of {self.size} tokens")
        self.size = size

    def logits(self) -> Logits:
        """See Engine."""
        return np.ctypeslib.as_array(self.row, (self.vocab,)).astype(np.float64)


class Transformers:
    """Hugging Face transformers on a directory, its default attention, in one dtype."""

    PIECE = 512

    def __init__(self, path: Path, threads: int, capacity: int, dtype: str) -> None:
        """dtype: "float32" or "bfloat16"; the capacity is no matter, its cache grows."""
        os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: it must not look for a hub
        import torch
        import transformers

        self.torch: Any = torch
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
        self.cache: Any = transformers.DynamicCache(config=self.model.config)
        self.empty = self._share(self.cache)
        self.kept: tuple[int, Any] = (0, self.empty)
        self.row: Any = None
        self.size = 0
        self.settings = f"{dtype} weights and cache, {self.model.config._attn_implementation} attention"

    def extend(self, tokens: Sequence[int]) -> None:
        """See Engine."""
        torch = self.torch
        with torch.inference_mode():
            for first in range(0, len(tokens), self.PIECE):
                ids = torch.tensor([tokens[first : first + self.PIECE]])
                self.row = self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
                self.size += ids.shape[1]

    def rewind(self, size: int) -> None:
        """See Engine. A window's cache cannot be cut: one can return to 0 and to the last size that was rewound to.

        What is remembered shares its tensors with the cache, which grows by joining them into new ones.
        """
        if size and size == self.size:
            self.kept = size, self._share(self.cache)
        elif size not in (0, self.kept[0]):
            raise RuntimeError(f"transformers: no cache was kept at {size} tokens")
        self.cache = self._share(self.kept[1] if size else self.empty)
        self.size = size

    @staticmethod
    def _share(cache: Any) -> Any:
        twin = copy.copy(cache)
        twin.layers = [copy.copy(layer) for layer in cache.layers]
        return twin

    def logits(self) -> Logits:
        """See Engine."""
        return np.asarray(self.row[0, -1].float().numpy(), dtype=np.float64)


@dataclass(frozen=True)
class EngineKind:
    """What can be timed. packages: import names that it needs; opens: "file" (GGUF), "directory", or both.

    steps, loads, context: how many decode steps a sample has, how many loads are timed, and after how many tokens of
    context, at most: slow engines would take all the time of the run, and need no more to be told apart.

    kl_limit: how far (KL divergence, nats) its logits may be from exact ones before its speed is of no interest. The
    limits are for one position each, and catch wrong arithmetic; they do not rank right arithmetics.
    """

    name: str
    make: Callable[[Path, int, int], Engine]
    packages: tuple[str, ...]
    kl_limit: float
    opens: tuple[str, ...] = ("file", "directory")
    steps: int = 1000
    loads: int = 1000
    context: int = 1_000_000


YARDSTICK = "rml exact"
TORCH = ("torch", "transformers")
KINDS = {
    kind.name: kind
    for kind in (
        EngineKind("rml", Rml, (), 0.1),  # int8 activations: 0.001 to 0.02 on real checkpoints
        EngineKind("llama.cpp", LlamaCpp, ("llama_cpp",), 0.1, ("file",)),  # the same
        EngineKind("transformers f32", partial(Transformers, dtype="float32"), TORCH, 1e-4, ("directory",), 8, 1),
        EngineKind("transformers bf16", partial(Transformers, dtype="bfloat16"), TORCH, 0.2, ("directory",), 8, 1, 512),
        EngineKind(YARDSTICK, partial(Rml, exact=True), (), 0.0),
    )
}
