"""A GGUF file, whole or split, as Weights.

Files of the llama architecture hold the rows of q and k in llama.cpp's order: within a head, stored rows
2i and 2i + 1 are the Hugging Face rows i and i + D/2. They are put back here, so that all activations mean the same
whatever the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from reference import quants
from reference.config import Config, NotExpressible, Rope
from reference.gguf_reader import HeaderReader
from reference.maths import Array
from reference.weights import Matrix, release

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma3": "gemma3_text",
    "olmoe": "olmoe",
}


def files_of(path: Path) -> list[Path]:
    """The file itself, or all parts of NAME-00001-of-0000N.gguf."""
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if match is None:
        return [path]
    stem, count = match.groups()
    return [path.with_name(f"{stem}-{i + 1:05d}-of-{count}.gguf") for i in range(int(count))]


class GgufWeights:
    """Weights of a GGUF file. `exact` widens in float64; otherwise gguf's dequantiser is used, which rounds."""

    def __init__(self, path: Path, exact: bool = True) -> None:
        readers = [HeaderReader(part) for part in files_of(path)]
        self.tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self.files = [reader.data for reader in readers]
        self.exact = exact
        self.permuted = readers[0].value("general.architecture") == "llama"
        self.config = self._switches_of_tensors(read(readers[0]))

    def _switches_of_tensors(self, config: Config) -> Config:
        """What GGUF has no key for."""
        rope = config.rope
        if "rope_freqs.weight" in self.tensors:
            rope = replace(rope, divisors=tuple(self.vector("rope_freqs.weight", config.head_dim // 2)))
        norm = self.tensors.get("blk.0.attn_q_norm.weight")
        return replace(
            config,
            vocab=int(self.tensors["token_embd.weight"].shape[1]),
            rope=rope,
            tied="output.weight" not in self.tensors,
            qkv_bias="blk.0.attn_q.bias" in self.tensors,
            output_bias="blk.0.attn_output.bias" in self.tensors,
            qk_norm="none" if norm is None else "row" if config.family == "olmoe" else "head",
        )

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        stored = self._rows(name, columns)
        if len(stored) != rows:
            raise ValueError(f"{name}: {len(stored)} rows, expected {rows}")
        return Matrix(stored, columns, self._widen(name), self._order(name, rows))

    def expert(self, name: str, expert: int, rows: int, columns: int) -> Matrix:
        stored = self._rows(name, columns)
        if len(stored) != rows * self.config.experts:
            raise ValueError(f"{name}: {len(stored)} rows, expected {rows * self.config.experts}")
        return Matrix(stored[expert * rows : (expert + 1) * rows], columns, self._widen(name))

    def vector(self, name: str, length: int) -> Array:
        value = self._widen(name)(self._rows(name, length))
        if value.shape != (1, length):
            raise ValueError(f"{name}: {value.shape}, expected {length} values")
        order = self._order(name, length)
        return value.reshape(-1) if order is None else value.reshape(-1)[order]

    def release(self) -> None:
        release(self.files)

    def _rows(self, name: str, columns: int) -> npt.NDArray[np.uint8]:
        """A tensor's bytes: (rows, bytes per row)."""
        tensor = self.tensors[name]
        if int(tensor.shape[0]) != columns:
            raise ValueError(f"{name}: {int(tensor.shape[0])} columns, expected {columns}")
        data = np.asarray(tensor.data)  # a plain view: slicing a numpy.memmap is slow
        return data.reshape(-1, data.shape[-1]).view(np.uint8)

    def _widen(self, name: str) -> Callable[[npt.NDArray[np.uint8]], Array]:
        kind = self.tensors[name].tensor_type
        if self.exact and kind.name in quants.FORMATS:
            return partial(quants.widen, name=kind.name)
        return lambda rows: gguf.dequantize(np.ascontiguousarray(rows), kind).astype(np.float64)

    def _order(self, name: str, rows: int) -> npt.NDArray[np.int64] | None:
        """The stored row of each Hugging Face row of q and k; None where they are the same."""
        if not self.permuted or re.fullmatch(r"blk\.\d+\.attn_[qk]\.(weight|bias)", name) is None:
            return None
        pairs = np.arange(rows).reshape(-1, self.config.head_dim // 2, 2)
        return np.ascontiguousarray(pairs.transpose(0, 2, 1)).reshape(-1)


def read(reader: HeaderReader) -> Config:
    """The recipe in the metadata. Raises NotExpressible for what would change the maths."""
    arch = reader.value("general.architecture")
    if arch not in ARCHITECTURES:
        raise NotExpressible(f"architecture {arch!r}")

    def get(key: str, default: Any = None) -> Any:
        value = reader.value(f"{arch}.{key}")
        if isinstance(value, list) and len(set(value)) == 1 and key != "attention.sliding_window_pattern":
            value = value[0]
        return default if value is None else value

    hidden, heads = get("embedding_length"), get("attention.head_count")
    head_dim = get("attention.key_length", hidden // heads)
    layers = get("block_count")
    if get("attention.value_length", head_dim) != head_dim or get("rope.dimension_count", head_dim) != head_dim:
        raise NotExpressible("key, value and rotary lengths that differ")
    experts = get("expert_count", 0)
    family = "mixtral" if arch == "llama" and experts else ARCHITECTURES[arch]
    gemma = family == "gemma3_text"
    width, chosen = get("feed_forward_length"), get("expert_used_count", 0)
    scale = (hidden // heads if layers == 62 else head_dim) if gemma else head_dim
    return Config(
        family=family,
        vocab=get("vocab_size", reader.length("tokenizer.ggml.tokens")),
        hidden=hidden,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=get("attention.head_count_kv", heads),
        head_dim=head_dim,
        eps=float(get("attention.layer_norm_rms_epsilon")),
        max_positions=get("context_length"),
        rope=rope(get),
        local_rope=Rope(float(get("rope.freq_base_swa", 1e4))) if gemma else None,
        activation="gelu_tanh" if gemma else "silu",
        window=get("attention.sliding_window", 0) if family in ("llama", "mixtral", "gemma3_text") else 0,
        sliding=windows(get, family, layers),
        sandwich_norms=gemma,
        embedding_scale=math.sqrt(hidden) if gemma else 1.0,
        attention_scale=float(get("attention.scale", float(scale) ** -0.5)),
        experts=experts,
        experts_per_token=chosen,
        expert_width=get("expert_feed_forward_length", width // chosen if family == "qwen3_moe" else width),
        renormalise=bool(experts and get("expert_weights_norm", family != "olmoe")),
        logit_cap=float(get("final_logit_softcapping", 0.0)) if gemma else 0.0,
    )


def windows(get: Callable[..., Any], family: str, layers: int) -> tuple[bool, ...]:
    """Which layers slide: llama's key is our convention for Mistral; Gemma's pattern is a period or flags."""
    if not get("attention.sliding_window", 0) or family not in ("llama", "mixtral", "gemma3_text"):
        return ()
    if family != "gemma3_text":
        return (True,) * layers
    pattern = get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, list):
        return tuple(bool(flag) for flag in pattern)
    return tuple(pattern == 0 or (i + 1) % pattern != 0 for i in range(layers))


def rope(get: Callable[..., Any]) -> Rope:
    """A scaling factor without a type means linear. llama.cpp does not read the yarn_* keys; this decoder does."""
    theta = float(get("rope.freq_base", 1e4))
    factor = float(get("rope.scaling.factor", get("rope.scale_linear", 1.0)))
    kind = get("rope.scaling.type", "linear")
    scale = float(get("rope.scaling.attn_factor", 1.0)) * float(get("rope.scaling.yarn_attn_factor", 1.0))
    if kind not in ("none", "linear", "yarn"):
        raise NotExpressible(f"rope.scaling.type {kind!r}")
    if get("rope.scaling.yarn_ext_factor", 1.0) != 1.0 or get("rope.scaling.yarn_log_multiplier", 0.0):
        raise NotExpressible("yarn_ext_factor or yarn_log_multiplier")
    if kind == "none" or factor == 1.0:
        return Rope(theta, attention_scale=scale)
    if kind == "linear":
        return Rope(theta, "linear", factor, attention_scale=scale)
    return Rope(
        theta,
        "yarn",
        factor,
        original_max=get("rope.scaling.original_context_length", get("context_length")),
        attention_scale=scale,
        beta_fast=float(get("rope.scaling.yarn_beta_fast", 32.0)),
        beta_slow=float(get("rope.scaling.yarn_beta_slow", 1.0)),
    )
