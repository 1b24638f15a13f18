"""Writes a toy as a GGUF file laid out as llama.cpp's convert_hf_to_gguf.py lays it out.

Matrices f16, vectors and routers f32; q and k rows of the llama architecture permuted; experts stacked; Gemma's
norms as 1 + w; llama3 scaling as the tensor rope_freqs.weight. The tokenizer is a toy too: 64 pieces, SentencePiece
style.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tools.fixture_quants import quantise
from tools.fixture_toys import Toy
from tools.fixture_weights import Tensors, kv_heads

Array = npt.NDArray[np.float64]
Json = Mapping[str, Any]

ARCHITECTURE = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
GEMMA_PARTS = {
    **PARTS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
EXPERT_PARTS = {
    "w1": "ffn_gate_exps",
    "w3": "ffn_up_exps",
    "w2": "ffn_down_exps",
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
}


def permute(value: Array, heads: int) -> Array:
    """Rows i and i + D/2 of a head become rows 2i and 2i + 1 (LlamaModel.permute of the converter)."""
    rows = value.shape[0]
    return value.reshape(heads, 2, rows // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def convert(tensors: Tensors, config: Json) -> Tensors:
    """Hugging Face tensors to GGUF names and layouts, in the converter's order: layer by layer, experts stacked."""
    family = config["model_type"]
    parts = GEMMA_PARTS if family == "gemma3_text" else PARTS
    out: Tensors = {}
    stacks: dict[str, list[Array]] = {}
    for name, value in tensors.items():
        if family == "gemma3_text" and name.endswith("norm.weight"):
            value = value + 1.0
        if name in TOP:
            out[TOP[name]] = value
            continue
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name)
        assert match is not None, name
        layer, part, kind = match.groups()
        expert = re.fullmatch(r"(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)", part)
        if expert:
            stacks.setdefault(f"blk.{layer}.{EXPERT_PARTS[expert[1]]}.weight", []).append(value)
            continue
        if ARCHITECTURE.get(family, family) == "llama" and part[-6:] in ("q_proj", "k_proj"):
            value = permute(value, config["num_attention_heads"] if part[-6] == "q" else kv_heads(config))
        out[f"blk.{layer}.{parts[part]}.{kind}"] = value
    out.update({name: np.stack(stack) for name, stack in stacks.items()})
    return out


def rope_divisors(rope: Json, head_dim: int) -> Array | None:
    """rope_freqs.weight: what llama3 scaling divides each frequency by; None for the other kinds."""
    if rope.get("rope_type") != "llama3":
        return None
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    longest = rope["original_max_position_embeddings"]
    out = []
    for i in range(head_dim // 2):
        wavelength = 2.0 * math.pi * rope["rope_theta"] ** (2 * i / head_dim)
        if wavelength < longest / high:
            out.append(1.0)
        elif wavelength > longest / low:
            out.append(factor)
        else:
            smooth = (longest / wavelength - low) / (high - low)
            out.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return np.array(out)


def pieces() -> list[str]:
    """64 tokens: three special ones, the newline byte, letters with and without a space in front, a few pairs."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    spaced = ["\u2581" + letter for letter in letters]
    return ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", *letters, *spaced, "th", "he", "in", "er", "an", "the", "ing"]


def add_tokenizer(writer: gguf.GGUFWriter, config: Json) -> None:
    tokens = pieces()
    assert len(tokens) == config["vocab_size"]
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[0], kinds[3] = gguf.TokenType.UNKNOWN, gguf.TokenType.BYTE
    kinds[1] = kinds[2] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) if len(t) < 2 else float(len(t)) for i, t in enumerate(tokens)])
    writer.add_token_types([int(kind) for kind in kinds])
    ends = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(ends[0] if isinstance(ends, list) else ends)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def rope_dictionary(config: Json) -> Json:
    """The (global) rotary table's entry, in either spelling of config.json."""
    parameters: Json = config.get("rope_parameters") or {}
    scaling: Json = config.get("rope_scaling") or {}
    theta = {"rope_theta": config.get("rope_theta", 1e4)}
    return {**theta, **parameters.get("full_attention", parameters), **scaling}


def add_rope(writer: gguf.GGUFWriter, config: Json) -> None:
    """Base and scaling of the (global) rotary table; llama3 scaling is a tensor, not a key."""
    arch = writer.arch
    rope = rope_dictionary(config)
    writer.add_float32(f"{arch}.rope.freq_base", rope["rope_theta"])
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("linear", "yarn"):
        return
    writer.add_string(f"{arch}.rope.scaling.type", kind)
    writer.add_float32(f"{arch}.rope.scaling.factor", rope["factor"])
    if kind == "yarn":
        original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
        writer.add_uint32(f"{arch}.rope.scaling.original_context_length", original)


def add_config(writer: gguf.GGUFWriter, config: Json) -> None:
    """The keys that the converter writes for these architectures."""
    arch, family = writer.arch, config["model_type"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    numbers = {
        "vocab_size": config["vocab_size"] if arch == "llama" else None,
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads(config),
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "rope.dimension_count": head_dim if arch == "llama" else None,
        "expert_count": config.get("num_experts", config.get("num_local_experts")),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        # llama.cpp has no window for the llama architecture: writing Mistral's here is this project's convention
        "attention.sliding_window": config.get("sliding_window") if family in ("mistral", "gemma3_text") else None,
    }
    for key, value in numbers.items():
        if value is not None:
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    if config.get("final_logit_softcapping"):
        writer.add_float32(f"{arch}.final_logit_softcapping", config["final_logit_softcapping"])
    add_rope(writer, config)


def add_keys(writer: gguf.GGUFWriter, keys: Json) -> None:
    """Metadata of the toy itself, typed by the Python value."""
    for key, value in keys.items():
        name = f"{writer.arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_array(name, value)


def add_tensor(writer: gguf.GGUFWriter, name: str, value: Array, stored: str) -> None:
    """One tensor in its stored type; refuses a value that float16 does not hold exactly."""
    if stored == "F32":
        writer.add_tensor(name, value.astype(np.float32))
    elif stored == "F16":
        narrow = value.astype(np.float16)
        if not np.array_equal(narrow.astype(np.float64), value):
            raise ValueError(f"{name} is not exact in float16")
        writer.add_tensor(name, narrow)
    else:
        writer.add_tensor(name, quantise(name, value, stored), raw_dtype=gguf.GGMLQuantizationType[stored])


def stored_type(name: str, value: Array, types: Mapping[str, str]) -> str:
    """F32 for vectors and routers, else the type of the first part of a name that matches, else F16."""
    if value.ndim == 1 or "ffn_gate_inp" in name:
        return "F32"
    return next((kind for part, kind in types.items() if part in name), "F16")


def write(path: Path, toy: Toy, tensors: Tensors, types: Mapping[str, str]) -> None:
    """One GGUF file (or a split set) with the matrices in the given types."""
    config = toy.config()
    path.parent.mkdir(parents=True, exist_ok=True)
    family = config["model_type"]
    split = toy.gguf_style == "split"
    size = sum(value.size for value in tensors.values())
    half = size * 6 // 5 if split else 0  # bytes in the first part: a weight has two
    writer = gguf.GGUFWriter(path, ARCHITECTURE.get(family, family), split_max_size=half)
    writer.add_name(toy.name)
    if not types:
        writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    add_config(writer, config)
    add_keys(writer, toy.gguf_keys)
    add_tokenizer(writer, config)
    converted = convert(tensors, config)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    divisors = rope_divisors(rope_dictionary(config), head_dim)
    if divisors is not None:
        converted = {"rope_freqs.weight": divisors, **converted}
    for name, value in converted.items():
        add_tensor(writer, name, value, stored_type(name, value, types))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
