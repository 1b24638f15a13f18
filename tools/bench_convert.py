"""A GGUF model as a Hugging Face directory in float32, for transformers: the same weights, widened.

    python -m tools.bench_convert MODEL.gguf DIRECTORY

transformers' own GGUF reader needs one more package and a quarter of a minute for Gemma's vocabulary; this goes through
the reference's reader. The stamp of transformers' rows shows that the weights are the same.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import TensorSpec, serialize_file

import reference
from tools.crosscheck_real import hf_config, tensors


def widened(model: reference.Model) -> dict[str, npt.NDArray[np.float32]]:
    """Every tensor by its Hugging Face name."""
    config = model.config
    out = {f"model.{name}": value.astype(np.float32) for name, value in tensors(model)}
    if not config.tied:
        head = model.weights.matrix("output.weight", config.vocab, config.hidden)
        out["lm_head.weight"] = head.take(slice(None)).astype(np.float32)
    return out


def convert(source: Path, target: Path) -> None:
    """Writes the directory; it appears whole or not at all."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    partial.mkdir(parents=True)
    try:
        model = reference.load(source)
        config: Any = hf_config(model.config)
        config.save_pretrained(partial)
        stored = widened(model)
        specs = {
            name: TensorSpec(dtype="float32", shape=data.shape, data_ptr=data.ctypes.data, data_len=data.nbytes)
            for name, data in stored.items()
        }
        serialize_file(specs, partial / "model.safetensors", metadata={"format": "pt"})
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def main() -> int:
    """The command; see the module's docstring."""
    if len(sys.argv) != 3:
        print(str(__doc__), file=sys.stderr)
        return 2
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
