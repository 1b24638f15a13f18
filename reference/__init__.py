"""A float64 decoder in plain numpy, written from the Hugging Face modeling code: the yardstick for rml.

It shares no code with rml, not even file readers: directories are read through the `safetensors` package, GGUF
files through `gguf`. Weights are widened a block of rows at a time, so the size of a model costs time, not memory.

    model = reference.load("model.gguf")        # or a directory with config.json
    logits = model.forward([1, 5, 7])           # (3, vocabulary), float64
    model.greedy([1, 5, 7], 8)                  # the eight likeliest next tokens
"""

from __future__ import annotations

import os
from pathlib import Path

from reference.config import Config, NotExpressible, Rope
from reference.decoder import Model, State, Tap
from reference.gguf_files import GgufWeights
from reference.hf_files import HfWeights
from reference.maths import Blas, Ordered
from reference.weights import Weights

__all__ = ["Blas", "Config", "Model", "NotExpressible", "Ordered", "Rope", "State", "Tap", "Weights", "load"]


def load(path: str | os.PathLike[str], exact: bool = True, ordered: bool = False) -> Model:
    """A decoder over `path`: a GGUF file (the first of a split set), or a directory with config.json and safetensors.

    exact: widen quantised weights in float64 (quants.py); False uses gguf's dequantiser, which rounds to float32.
    ordered: add in one written order with IEEE-exact steps only (maths.Ordered): slow, the same bits everywhere.
    """
    place = Path(path)
    weights: Weights = HfWeights(place) if place.is_dir() else GgufWeights(place, exact)
    return Model(weights, Ordered() if ordered else Blas())
