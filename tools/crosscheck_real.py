"""A real GGUF checkpoint through reference and transformers, both in float64, on the same widened weights.

The toys test every switch; this tests the sizes: 30 layers, a vocabulary of 262,144, a prompt longer than the window.
Dense models of the llama, qwen3 and gemma3 architectures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

import reference
from reference.config import Config
from tools.crosscheck_peers import doubled
from tools.fixture_gguf import GEMMA_PARTS, PARTS

Array = npt.NDArray[np.float64]
CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gemma3_text": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
}


def hf_config(config: Config) -> Any:
    """The configuration object of transformers; refuses what a GGUF file of these families rarely has."""
    if config.family not in CLASSES or config.qkv_bias or config.rope.kind != "default" or config.rope.divisors:
        raise ValueError(f"no counterpart here for this {config.family} model")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope.theta}
    extra: dict[str, Any] = {}
    if config.local_rope is not None:
        local = {"rope_type": "default", "rope_theta": config.local_rope.theta}
        rope = {"full_attention": rope, "sliding_attention": local}
        kinds = ["sliding_attention" if slides else "full_attention" for slides in config.sliding]
        extra = {"layer_types": kinds, "sliding_window": config.window}
        extra["query_pre_attn_scalar"] = round(config.attention_scale**-2)
    made = CLASSES[config.family][0](
        vocab_size=config.vocab,
        hidden_size=config.hidden,
        intermediate_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_positions,
        rms_norm_eps=config.eps,
        tie_word_embeddings=config.tied,
        rope_parameters=rope,
        **extra,
    )
    made._attn_implementation = "eager"
    return made


def tensors(model: reference.Model) -> Iterator[tuple[str, Array]]:
    """Every tensor by its Hugging Face name, without the output matrix; Gemma's norms as w again."""
    config, weights = model.config, model.weights
    gemma = config.family == "gemma3_text"
    wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes = {"attn_q": (wide, config.hidden), "attn_k": (narrow, config.hidden), "attn_v": (narrow, config.hidden)}
    shapes |= {"attn_output": (config.hidden, wide), "ffn_down": (config.hidden, config.width)}
    shapes |= {"ffn_gate": (config.width, config.hidden), "ffn_up": (config.width, config.hidden)}
    norms = ["attn_norm", "ffn_norm", *(["post_attention_norm", "post_ffw_norm"] if gemma else [])]
    lengths = dict.fromkeys(norms, config.hidden)
    if config.qk_norm == "head":
        lengths |= {"attn_q_norm": config.head_dim, "attn_k_norm": config.head_dim}
    names = {ours: theirs for theirs, ours in (GEMMA_PARTS if gemma else PARTS).items() if "moe" not in theirs}
    yield "embed_tokens.weight", weights.matrix("token_embd.weight", config.vocab, config.hidden).take(slice(None))
    yield "norm.weight", weights.vector("output_norm.weight", config.hidden) - float(gemma)
    for layer in range(config.layers):
        for name, shape in shapes.items():
            value = weights.matrix(f"blk.{layer}.{name}.weight", *shape).take(slice(None))
            yield f"layers.{layer}.{names[name]}.weight", value
        for name, length in lengths.items():
            value = weights.vector(f"blk.{layer}.{name}.weight", length) - float(gemma)
            yield f"layers.{layer}.{names[name]}.weight", value


def prompt(config: Config) -> list[int]:
    """Random tokens, so that no position is easy: 64, or 88 more than the window."""
    count = config.window + 88 if any(config.sliding) else 64
    return [int(token) for token in np.random.default_rng(1).integers(0, config.vocab, count)]


def logits(path: Path, positions: int = 4) -> tuple[int, Array, Array]:
    """Prompt length, and the logits of some positions (first and last too) from reference and transformers."""
    model = reference.load(path)
    tokens = prompt(model.config)
    with doubled(), torch.no_grad():
        peer = CLASSES[model.config.family][1](hf_config(model.config)).double().eval().model
        peer.load_state_dict({name: torch.from_numpy(value) for name, value in tensors(model)}, strict=True)
        states = peer(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].numpy()
    rows = np.linspace(0, len(tokens) - 1, positions).astype(int)
    return len(tokens), model.logits(model.states(tokens)[rows]), model.logits(np.asarray(states)[rows])
