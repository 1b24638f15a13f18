"""llama.cpp as a second opinion on token ids and logits. Its package is heavy: imported when called, if it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def is_installed() -> bool:
    """Whether llama-cpp-python can be imported."""
    from importlib.util import find_spec

    return find_spec("llama_cpp") is not None


def describe() -> str:
    """The peer's name and version."""
    import llama_cpp

    return f"llama.cpp (llama-cpp-python {llama_cpp.__version__})"


def token_ids(model: Path, texts: Sequence[str], special: bool) -> list[list[int]]:
    """The ids of each text, without BOS; `special`: control tokens in a text count as such."""
    import llama_cpp

    peer = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    try:
        return [peer.tokenize(text.encode(), add_bos=False, special=special) for text in texts]
    finally:
        peer.close()


def logits(model: Path, tokens: Sequence[int], threads: int = 1) -> Iterator[npt.NDArray[np.float64]]:
    """Logits (vocab,) of each position in turn, the weights as stored, an f32 cache; tokens are run a few at a time."""
    import llama_cpp

    peer: Any = llama_cpp.Llama(
        str(model),
        n_ctx=len(tokens),
        n_batch=32,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        flash_attn=False,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        verbose=False,
    )
    try:
        peer.eval(list(tokens))
        for position in range(len(tokens)):
            yield np.array(peer.scores[position], dtype=np.float64)
    finally:
        peer.close()
