"""config.json of the eight families, before and after transformers 5, to a Config.

Defaults are those of transformers' configuration classes, except that a missing key/value head count is refused
where the class default (8, 32 or 4) is never what a real file means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reference.config import FAMILIES, Config, NotExpressible, Rope

Json = Mapping[str, Any]

HEAD_DIM_DEFAULT = {"qwen3": 128, "gemma3_text": 256}
EPS_DEFAULT = {"mixtral": 1e-5, "olmoe": 1e-5}
THETA_DEFAULT = {"mixtral": 1e6, "gemma3_text": 1e6}
QK_NORM = {"qwen3": "head", "qwen3_moe": "head", "gemma3_text": "head", "olmoe": "row"}
EXPERTS_DEFAULT = {"mixtral": (8, 2), "qwen3_moe": (128, 8), "olmoe": (64, 8)}
BIAS_BY_KEY = ("llama", "qwen3", "qwen3_moe", "gemma3_text", "olmoe")


def read(data: Json) -> Config:
    """The recipe of a config.json. Raises NotExpressible for what would change the maths, KeyError without a size."""
    family = data["model_type"]
    if family not in FAMILIES:
        raise NotExpressible(f"model_type {family!r}")
    refuse(family, data)
    hidden, heads = data["hidden_size"], data["num_attention_heads"]
    head_dim = data.get("head_dim", HEAD_DIM_DEFAULT.get(family)) or hidden // heads
    gemma = family == "gemma3_text"
    bias = bool(data.get("attention_bias", False)) and family in BIAS_BY_KEY
    layers = data["num_hidden_layers"]
    window, sliding = windows(family, data, layers)
    rope, local = ropes(family, data)
    experts, chosen = expert_counts(family, data)
    return Config(
        family=family,
        vocab=data["vocab_size"],
        hidden=hidden,
        width=data["intermediate_size"],
        layers=layers,
        heads=heads,
        kv_heads=kv_heads(family, data, heads),
        head_dim=head_dim,
        eps=float(data.get("rms_norm_eps", EPS_DEFAULT.get(family, 1e-6))),
        max_positions=data["max_position_embeddings"],
        rope=rope,
        local_rope=local,
        activation="gelu_tanh" if gemma else "silu",
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        qk_norm=QK_NORM.get(family, "none"),  # type: ignore[arg-type]  # the table above holds the three literals
        window=window,
        sliding=sliding,
        sandwich_norms=gemma,
        embedding_scale=math.sqrt(hidden) if gemma else 1.0,
        attention_scale=float(data.get("query_pre_attn_scalar", 256) if gemma else head_dim) ** -0.5,
        tied=bool(data.get("tie_word_embeddings", gemma)),
        experts=experts,
        experts_per_token=chosen,
        expert_width=data.get("moe_intermediate_size", 768) if family == "qwen3_moe" else data["intermediate_size"],
        renormalise=family == "mixtral" or bool(experts and data.get("norm_topk_prob", False)),
        logit_cap=float(data.get("final_logit_softcapping") or 0.0) if gemma else 0.0,
    )


def refuse(family: str, data: Json) -> None:
    """Switches of these families that this decoder does not have."""
    if family == "gemma3_text":
        keys = ["use_bidirectional_attention", "attn_logit_softcapping"]
        activation, allowed = data.get("hidden_activation", "gelu_pytorch_tanh"), ["gelu_pytorch_tanh"]
    else:
        keys = ["mlp_bias", "clip_qkv", "use_sliding_window", "mlp_only_layers"]
        activation, allowed = data.get("hidden_act", "silu"), ["silu", "swish"]
        if "sliding_attention" in (data.get("layer_types") or []) and family.startswith("qwen"):
            keys = [*keys, "layer_types"]
    for key in [*keys, "quantization_config"]:
        if data.get(key):
            raise NotExpressible(f"{key} = {data[key]!r}")
    if activation not in allowed:
        raise NotExpressible(f"activation {activation!r}")
    if data.get("decoder_sparse_step", 1) != 1:
        raise NotExpressible("dense layers among the experts")


def kv_heads(family: str, data: Json, heads: int) -> int:
    if family in ("llama", "olmoe"):
        return int(data.get("num_key_value_heads") or heads)
    return int(data["num_key_value_heads"])


def expert_counts(family: str, data: Json) -> tuple[int, int]:
    """E and the number chosen per token; num_experts and num_local_experts are aliases."""
    if family not in EXPERTS_DEFAULT:
        return 0, 0
    experts, chosen = EXPERTS_DEFAULT[family]
    experts = data.get("num_experts", data.get("num_local_experts", experts))
    return experts, data.get("num_experts_per_tok", chosen)


def windows(family: str, data: Json, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The window and which layers have it."""
    if family in ("mistral", "mixtral"):
        window = data.get("sliding_window", 4096 if family == "mistral" else None) or 0
        return window, (window > 0,) * layers
    if family != "gemma3_text":
        return 0, ()
    kinds = data.get("layer_types")
    period = data.get("sliding_window_pattern", data.get("_sliding_window_pattern", 6))
    sliding = tuple(
        kinds[i] == "sliding_attention" if kinds else (i + 1) % period != 0 for i in range(len(kinds or range(layers)))
    )
    return data.get("sliding_window", 4096) or 0, sliding


def ropes(family: str, data: Json) -> tuple[Rope, Rope | None]:
    """The rotary table of all (or the global) layers, and Gemma's for its sliding layers."""
    parameters: Json = data.get("rope_parameters") or {}
    scaling: Json = data.get("rope_scaling") or {}
    theta = data.get("rope_theta", THETA_DEFAULT.get(family, 1e4))
    if family != "gemma3_text":
        return rope(scaling or parameters, theta, data), None
    whole = parameters.get("full_attention", {} if "sliding_attention" in parameters else parameters)
    local = parameters.get("sliding_attention", {})
    local_theta = local.get("rope_theta", data.get("rope_local_base_freq", 1e4))
    return rope({**whole, **scaling}, theta, data), rope(local, local_theta, data)


def rope(values: Json, theta: float, data: Json) -> Rope:
    """One dictionary of rope_parameters or rope_scaling."""
    kind = values.get("rope_type", values.get("type", "default")) or "default"
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise NotExpressible(f"rope_type {kind!r}")
    if values.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0)) != 1.0:
        raise NotExpressible("partial rotary embedding")
    theta = float(values.get("rope_theta", theta))
    if kind == "default":
        return Rope(theta)
    longest = data["max_position_embeddings"]
    original = data.get("original_max_position_embeddings", values.get("original_max_position_embeddings", longest))
    factor = values["factor"]
    if kind == "linear":
        return Rope(theta, "linear", float(factor))
    if kind == "llama3":
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        return Rope(theta, "llama3", float(factor), float(low), float(high), original)
    return Rope(
        theta,
        "yarn",
        float(factor or longest / original),
        original_max=original,
        attention_factor=values.get("attention_factor"),
        beta_fast=values.get("beta_fast") or 32.0,
        beta_slow=values.get("beta_slow") or 1.0,
        mscale=values.get("mscale") or 0.0,
        mscale_all_dim=values.get("mscale_all_dim") or 0.0,
        truncate=values.get("truncate", True),
    )
