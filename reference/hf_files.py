"""A Hugging Face directory as Weights: config.json and one or more safetensors files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from reference import quants
from reference.config import NotExpressible
from reference.hf_config import read
from reference.maths import Array
from reference.weights import Matrix, release

SIZES = {"F32": 4, "F16": 2, "BF16": 2}

TOP = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
HEAD = "lm_head.weight"
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
GEMMA_LAYER = {  # Gemma uses the name of the norm before the FFN for the one after attention
    **LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
MIXTRAL_EXPERT = {"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"}
EXPERT = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}


class Stored(NamedTuple):
    """A tensor of a safetensors file: its type, shape and bytes (a view of the mapped file)."""

    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


def tensors(path: Path, mapped: npt.NDArray[np.uint8]) -> Iterator[tuple[str, Stored]]:
    """All tensors of one file, as views of `mapped`, its bytes.

    The safetensors package reads and checks the header, but numpy has no bfloat16, so it cannot hand those tensors
    out. The format leaves no gaps: in the order of their offsets, the tensors fill the end of the file.
    """
    with safe_open(path, framework="np") as handle:
        names = list(handle.offset_keys())
        slices = {name: handle.get_slice(name) for name in names}
        kinds: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()
        }
    for name, (dtype, _) in kinds.items():
        if dtype not in SIZES:
            raise NotExpressible(f"{path}: {name} is {dtype}")
    lengths = [SIZES[dtype] * int(np.prod(shape, dtype=np.int64)) for dtype, shape in kinds.values()]
    at = mapped.size - sum(lengths)
    for (name, (dtype, shape)), length in zip(kinds.items(), lengths, strict=True):
        yield name, Stored(dtype, shape, np.asarray(mapped[at : at + length]))
        at += length


class HfWeights:
    """Weights of a directory with config.json and model.safetensors or model.safetensors.index.json."""

    def __init__(self, directory: Path) -> None:
        config = read(json.loads((directory / "config.json").read_text()))
        index = directory / "model.safetensors.index.json"
        if index.exists():
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            files = ["model.safetensors"]
        self.files = [np.memmap(directory / file, mode="r") for file in files]
        self.tensors: dict[str, Stored] = {}
        for file, mapped in zip(files, self.files, strict=True):
            self.tensors.update(tensors(directory / file, mapped))
        if HEAD not in self.tensors and not config.tied:
            raise NotExpressible(f"{directory}: no {HEAD} and tie_word_embeddings is false")
        self.config = replace(config, tied=HEAD not in self.tensors)

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        if name == "output.weight":
            return self._matrix(self.tensors[HEAD], rows, columns)
        return self._matrix(self._find(self._hf_names(name)), rows, columns)

    def expert(self, name: str, expert: int, rows: int, columns: int) -> Matrix:
        _, layer, part, _ = name.split(".")
        single = [f"layers.{layer}.mlp.experts.{expert}.{EXPERT[part]}.weight"]
        single.append(f"layers.{layer}.block_sparse_moe.experts.{expert}.{MIXTRAL_EXPERT[part]}.weight")
        if any(prefix + n in self.tensors for n in single for prefix in ("model.", "")):
            return self._matrix(self._find(single), rows, columns)
        if part == "ffn_down_exps":
            fused, first, height = self._find([f"layers.{layer}.mlp.experts.down_proj"]), 0, rows
        else:  # gate rows first, then up rows
            fused = self._find([f"layers.{layer}.mlp.experts.gate_up_proj"])
            first, height = (rows if part == "ffn_up_exps" else 0), 2 * rows
        if fused.shape != (self.config.experts, height, columns):
            raise ValueError(f"{name}: shape {fused.shape}")
        data = fused.data.reshape(self.config.experts, height, -1)[expert, first : first + rows]
        return Matrix(data, columns, partial(quants.widen, name=fused.dtype))

    def vector(self, name: str, length: int) -> Array:
        stored = self._find(self._hf_names(name))
        if stored.shape != (length,):
            raise ValueError(f"{name}: shape {stored.shape}, expected {(length,)}")
        value = quants.widen(stored.data.reshape(1, -1), stored.dtype).reshape(-1)
        return value + 1.0 if self.config.family == "gemma3_text" and name.endswith("norm.weight") else value

    def release(self) -> None:
        release(self.files)

    def _hf_names(self, name: str) -> list[str]:
        """What a GGUF name is called here, without the `model.` prefix that base-model files lack."""
        if name in TOP:
            return [TOP[name]]
        _, layer, part, kind = name.split(".")
        table = GEMMA_LAYER if self.config.family == "gemma3_text" else LAYER
        names = [f"layers.{layer}.{table[part]}.{kind}"]
        if part == "ffn_gate_inp":
            names.append(f"layers.{layer}.block_sparse_moe.gate.weight")
        return names

    def _find(self, names: list[str]) -> Stored:
        for name in names:
            for prefix in ("model.", ""):
                if prefix + name in self.tensors:
                    return self.tensors[prefix + name]
        raise KeyError(f"none of {names} in the file")

    def _matrix(self, stored: Stored, rows: int, columns: int) -> Matrix:
        if stored.shape != (rows, columns):
            raise ValueError(f"shape {stored.shape}, expected {(rows, columns)}")
        return Matrix(stored.data.reshape(rows, -1), columns, partial(quants.widen, name=stored.dtype))
