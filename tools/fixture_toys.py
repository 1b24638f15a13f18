"""The toy models of fixtures/: what each is, and which switch it turns.

A toy is a config.json in the style of transformers 5 with a few changes, the seed of its weights, and the files it
is written to. Sizes: vocabulary 64, hidden 32, 4 heads of 16 over 2 key/value heads (so that heads * head_dim is
not hidden, where the family allows it), windows shorter than the prompt of 41 tokens, which is longer than a cache
page of 16 and a token tile of 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

PROMPT_LENGTH = 41
WINDOW = 11

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def plain(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


FAMILY: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 16, "intermediate_size": 64, "attention_bias": False, "mlp_bias": False},
    "mistral": {"head_dim": 16, "sliding_window": WINDOW},
    "mixtral": {
        "head_dim": None,  # what transformers 5 writes
        "intermediate_size": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
    },
    "qwen2": {"layer_types": ["full_attention"] * 2, "sliding_window": None, "use_sliding_window": False},
    "qwen3": {
        "head_dim": 16,
        "attention_bias": False,
        "layer_types": ["full_attention"] * 2,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "qwen3_moe": {
        "head_dim": 16,
        "attention_bias": False,
        "moe_intermediate_size": 24,
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "sliding_window": None,
        "use_sliding_window": False,
    },
    "gemma3_text": {
        "head_dim": 16,
        "num_hidden_layers": 7,  # the pattern of 6 shows: layers 0-4 and 6 slide, layer 5 is global
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": None,
        "attention_bias": False,
        "query_pre_attn_scalar": 16,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": 1,
    },
    "olmoe": {
        "attention_bias": False,
        "clip_qkv": None,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
        "rms_norm_eps": 1e-5,
    },
}
ROPE: dict[str, dict[str, Any]] = {
    "llama": LLAMA3,
    "mixtral": plain(1e6),
    "gemma3_text": {"full_attention": plain(1e6), "sliding_attention": plain(1e4)},
}
ARCHITECTURE_CLASS = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "olmoe": "OlmoeForCausalLM",
}


@dataclass(frozen=True)
class Toy:
    """One directory of fixtures/. `changes` are laid over the family's config.json; the value DROP removes a key."""

    name: str
    family: str
    note: str
    changes: Json = field(default_factory=dict)
    seed: str = ""  # toys with the same seed and shapes have the same weights; empty: the family's name
    hf: bool = True
    gguf: bool = True
    hf_style: str = "plain"  # or "sharded", "no_prefix", "fused", "mixed" (f16 matrices, f32 vectors)
    gguf_style: str = "plain"  # or "split"
    gguf_keys: Json = field(default_factory=dict)  # metadata beyond the converter's, without the arch prefix
    quantised: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # file stem: {part of a name: type}

    def config(self) -> dict[str, Any]:
        """The contents of config.json."""
        rope = {"rope_parameters": ROPE.get(self.family, plain(1e4))}
        head = {"architectures": [ARCHITECTURE_CLASS[self.family]], "model_type": self.family}
        data = {**head, **SIZES, **FAMILY[self.family], **rope, **self.changes}
        if self.family == "gemma3_text":
            del data["hidden_act"]
        return {key: value for key, value in data.items() if value is not DROP}


DROP = object()
