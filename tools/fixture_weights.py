"""Seeded weights that bfloat16 and float16 both hold exactly, so that every file of a toy is the same model.

A weight is a small integer times a power of two: 7 bits and a sign fit both formats. The raw 64-bit output of PCG64
is fixed by its definition, so the weights do not depend on the version of numpy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Tensors = dict[str, Array]


def raw(label: str, count: int) -> npt.NDArray[np.uint64]:
    """`count` random 64-bit words that belong to `label`."""
    seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little")
    words = np.asarray(np.random.PCG64(seed).random_raw(count), dtype=np.uint64)
    return words >> np.uint64(32)  # the upper half is as good as any; small enough for the remainders below


def integers(label: str, count: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """Integers from low to high, both included."""
    return (raw(label, count) % np.uint64(high - low + 1)).astype(np.int64) + low


def matrix(label: str, shape: tuple[int, ...], gain: float) -> Array:
    """Weights with a deviation of about gain / sqrt(columns): a normalised input gives outputs of size `gain`."""
    spread = math.sqrt((127 * 128) / 3.0)  # of the integers below
    shift = round(math.log2(spread * math.sqrt(shape[-1]) / gain))
    return np.ldexp(integers(label, math.prod(shape), -127, 127).reshape(shape).astype(np.float64), -shift)


def norm(label: str, length: int) -> Array:
    """Multipliers from 1/2 to 3/2 in steps of 1/64."""
    return integers(label, length, 32, 96) / 64.0


def prompt(length: int, vocab: int) -> list[int]:
    """Token ids, the first of them BOS."""
    return [1, *integers(f"prompt {length}", length - 1, 3, vocab - 1).tolist()]


def kv_heads(config: Mapping[str, Any]) -> int:
    return int(config.get("num_key_value_heads") or config["num_attention_heads"])


def attention(seed: str, prefix: str, config: dict[str, Any]) -> Tensors:
    """Projections, their biases and norms of one layer."""
    hidden, family = config["hidden_size"], config["model_type"]
    dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    rows = {"q": config["num_attention_heads"] * dim, "k": kv_heads(config) * dim}
    rows["v"] = rows["k"]
    out: Tensors = {}
    for which, count in rows.items():
        name = f"{prefix}self_attn.{which}_proj."
        out[name + "weight"] = matrix(seed + name, (count, hidden), 1.5)
        if family == "qwen2" or config.get("attention_bias"):
            out[name + "bias"] = integers(seed + name + "bias", count, -127, 127) / 128.0
    name = prefix + "self_attn.o_proj."
    out[name + "weight"] = matrix(seed + name, (hidden, rows["q"]), 1.0)
    if config.get("attention_bias"):
        out[name + "bias"] = integers(seed + name + "bias", hidden, -127, 127) / 128.0
    if family in ("qwen3", "qwen3_moe", "gemma3_text", "olmoe"):
        for which in ("q", "k"):
            name = f"{prefix}self_attn.{which}_norm.weight"
            out[name] = norm(seed + name, rows[which] if family == "olmoe" else dim)
    return out


def feed_forward(seed: str, prefix: str, config: dict[str, Any]) -> Tensors:
    """A dense FFN, or a router and its experts, one by one as published checkpoints have them."""
    hidden, width, family = config["hidden_size"], config["intermediate_size"], config["model_type"]
    experts = config.get("num_experts", config.get("num_local_experts", 0))
    if family == "mixtral":
        block, parts = "block_sparse_moe.", ("w1", "w3", "w2")
    else:
        block, parts = "mlp.", ("gate_proj", "up_proj", "down_proj")
    if family == "qwen3_moe":
        width = config["moe_intermediate_size"]
    shapes = ((width, hidden), (width, hidden), (hidden, width))
    homes = [f"{block}experts.{e}." for e in range(experts)] or [block]
    out: Tensors = {}
    if experts:
        name = f"{prefix}{block}gate.weight"
        out[name] = matrix(seed + name, (experts, hidden), 1.0)
    for home in homes:
        for part, shape in zip(parts, shapes, strict=True):
            name = f"{prefix}{home}{part}.weight"
            out[name] = matrix(seed + name, shape, 1.5)
    return out


def weights(seed: str, config: dict[str, Any]) -> Tensors:
    """All tensors by their published Hugging Face names. Gemma's norms are stored as w, with 1 + w meant."""
    hidden, vocab, gemma = config["hidden_size"], config["vocab_size"], config["model_type"] == "gemma3_text"
    embedding_gain = 0.5 if gemma else math.sqrt(hidden)  # Gemma multiplies by sqrt(hidden) itself; its head is tied
    if config["tie_word_embeddings"]:
        embedding_gain = 2.0
    out: Tensors = {"model.embed_tokens.weight": matrix(seed + "embed", (vocab, hidden), embedding_gain)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        out.update(attention(seed, prefix, config))
        out.update(feed_forward(seed, prefix, config))
        names = ["input_layernorm", "post_attention_layernorm"]
        if gemma:
            names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for name in names:
            out[f"{prefix}{name}.weight"] = norm(f"{seed}{prefix}{name}", hidden)
    out["model.norm.weight"] = norm(seed + "final", hidden)
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = matrix(seed + "head", (vocab, hidden), 2.0)
    if gemma:
        out = {name: value - 1.0 if name.endswith("norm.weight") else value for name, value in out.items()}
    return out
