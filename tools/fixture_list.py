"""All toys of fixtures/, in the order they are made: one per family, and one for each further switch or layout."""

from __future__ import annotations

import math
from typing import Any

from tools.fixture_toys import DROP, LLAMA3, WINDOW, Toy, plain

BEFORE_V5: dict[str, Any] = {"rope_parameters": DROP, "dtype": DROP, "torch_dtype": "bfloat16", "rope_theta": 10000.0}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_MAGNITUDE = 0.1 * math.log(4.0) + 1.0  # what yarn multiplies cos and sin by, unless told otherwise


def yarn(**options: Any) -> dict[str, Any]:
    return {"rope_parameters": {**YARN, **options}}


def without_theta(rope: dict[str, Any]) -> dict[str, Any]:
    """The rope_scaling dictionary of old files, which have rope_theta beside it."""
    return {key: value for key, value in rope.items() if key != "rope_theta"}


def mscale(magnitude: float) -> float:
    """The mscale that makes 0.1 * mscale * ln(factor) + 1 equal to `magnitude`."""
    return (magnitude - 1.0) / (0.1 * math.log(4.0))


ROLES = ("attn_q.", "attn_k.", "attn_v.", "attn_output.", "ffn_gate.", "ffn_up.", "ffn_down.")


def rotate_types(types: tuple[str, ...], head: str) -> dict[str, str]:
    """Another type for each matrix of both layers, so that q, k and v never share one."""
    slots = [f"blk.{layer}.{role}" for layer in range(2) for role in ROLES]
    chosen = {slot: types[(i + i // len(ROLES)) % len(types)] for i, slot in enumerate(slots)}
    return {**chosen, "token_embd": types[-1], "output.weight": head}


LLAMA = [
    Toy(
        "llama",
        "llama",
        "the base recipe; llama3 scaling (in GGUF: rope_freqs.weight in float32); interleaved rows in GGUF",
        quantised={"model-q8_0": {"": "Q8_0"}},
    ),
    Toy(
        "llama-tied",
        "llama",
        "no output matrix; plain rotary table; f16 matrices with f32 norms; BF16 and F32 matrices in a second GGUF",
        {"tie_word_embeddings": True, "rope_parameters": plain(1e4), "num_key_value_heads": DROP},
        hf_style="mixed",
        quantised={"model-bf16-f32": {"attn_": "BF16", "ffn_": "F32"}},
    ),
    Toy(
        "llama-bias",
        "llama",
        "attention_bias: q, k, v and o biases (those of q and k permuted in GGUF); kv heads = heads by a null key",
        {"attention_bias": True, "rope_parameters": plain(5e5), "num_key_value_heads": None},
    ),
    Toy(
        "llama-linear",
        "llama",
        "config.json from before transformers 5: rope_scaling {type: linear}",
        {**BEFORE_V5, "rope_scaling": {"type": "linear", "factor": 2.5}},
    ),
    Toy(
        "llama-llama3",
        "llama",
        "config.json from before transformers 5: rope_scaling of llama 3.2 (factor 32), tied",
        {**BEFORE_V5, "rope_scaling": {**without_theta(LLAMA3), "factor": 32.0}, "tie_word_embeddings": True},
    ),
    Toy(
        "llama-yarn",
        "llama",
        "config.json from before transformers 5: rope_scaling {rope_type: yarn}",
        {**BEFORE_V5, "rope_scaling": without_theta(YARN)},
    ),
    Toy(
        "llama-yarn-betas",
        "llama",
        "yarn with other beta_fast and beta_slow (in GGUF: keys that llama.cpp does not read)",
        yarn(beta_fast=2.0, beta_slow=0.5),
        gguf_keys={"rope.scaling.yarn_beta_fast": 2.0, "rope.scaling.yarn_beta_slow": 0.5},
    ),
    Toy(
        "llama-yarn-no-truncate",
        "llama",
        "yarn with truncate false, for which GGUF has no key",
        yarn(truncate=False),
        gguf=False,
    ),
    Toy(
        "llama-yarn-no-factor",
        "llama",
        "yarn with factor null: the two context lengths' ratio",
        yarn(factor=None),
        gguf=False,
    ),
    Toy(
        "llama-shards",
        "llama",
        "two safetensors files with an index; a GGUF file in two parts",
        {"rope_parameters": plain(1e4)},
        hf_style="sharded",
        gguf_style="split",
    ),
    Toy(
        "llama-blocks",
        "llama",
        "the 32-weight formats, no two of q, k, v in the same; plain rotary table",
        {"rope_parameters": plain(1e4)},
        hf=False,
        gguf=False,
        quantised={"model": rotate_types(("Q4_0", "Q4_1", "Q5_0", "Q5_1"), "Q5_0")},
    ),
    Toy(
        "llama-k",
        "llama",
        "the K formats with random blocks; hidden 256, one key/value head of 64",
        {
            "rope_parameters": plain(1e4),
            "hidden_size": 256,
            "intermediate_size": 256,
            "num_key_value_heads": 1,
            "head_dim": 64,
        },
        hf=False,
        gguf=False,
        quantised={"model": rotate_types(("Q4_K", "Q6_K", "Q5_K", "Q2_K", "Q3_K"), "Q6_K")},
    ),
]

MISTRAL = [
    Toy("mistral", "mistral", "all layers with a window (in GGUF: llama.attention.sliding_window, our convention)"),
    Toy(
        "mistral-no-prefix",
        "mistral",
        "tensor names without `model.`; sliding_window null",
        {"sliding_window": None},
        hf_style="no_prefix",
    ),
    Toy(
        "mixtral",
        "mixtral",
        "4 experts, 2 chosen, renormalised; head_dim null; theta 1e6; experts quantised in a second GGUF",
        quantised={"model-q8_0": {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q8_0", "ffn_down_exps": "Q5_1"}},
    ),
    Toy("mixtral-fused", "mixtral", "experts as transformers 5 fuses them", hf_style="fused", gguf=False),
    Toy(
        "mixtral-window",
        "mixtral",
        "experts and a window; the key num_experts",
        {"sliding_window": WINDOW, "num_local_experts": DROP, "num_experts": 4},
        gguf_keys={"attention.sliding_window": WINDOW},
    ),
]

QWEN = [
    Toy(
        "qwen2",
        "qwen2",
        "q, k, v biases; a sliding_window that is not used",
        {"sliding_window": 8, "max_window_layers": 1},
    ),
    Toy(
        "qwen2-yarn-mscale",
        "qwen2",
        "yarn with mscale and mscale_all_dim (in GGUF: attn_factor), tied",
        {
            **yarn(mscale=mscale(1.5 * YARN_MAGNITUDE), mscale_all_dim=mscale(2.0)),
            "tie_word_embeddings": True,
        },
        gguf_keys={"rope.scaling.attn_factor": 0.75},
    ),
    Toy("qwen3", "qwen3", "QK-norm per head"),
    Toy(
        "qwen3-bias",
        "qwen3",
        "attention_bias with o bias, which llama.cpp has for llama only",
        {"attention_bias": True},
        gguf=False,
    ),
    Toy(
        "qwen3-yarn-attention-factor",
        "qwen3",
        "yarn with an explicit attention_factor (in GGUF: attn_factor)",
        yarn(attention_factor=1.25 * YARN_MAGNITUDE),
        gguf_keys={"rope.scaling.attn_factor": 1.25},
    ),
    Toy("qwen3_moe", "qwen3_moe", "6 experts, 3 chosen, renormalised; an expert width of its own"),
    Toy(
        "qwen3_moe-raw",
        "qwen3_moe",
        "norm_topk_prob false (in GGUF: expert_weights_norm, which llama.cpp does not read)",
        {"norm_topk_prob": False, "num_local_experts": DROP, "num_experts": 6},
        gguf_keys={"expert_weights_norm": False},
    ),
    Toy("qwen3_moe-fused", "qwen3_moe", "experts as transformers 5 fuses them", hf_style="fused", gguf=False),
]

GEMMA = [
    Toy(
        "gemma3",
        "gemma3_text",
        "7 layers in the pattern of 6; two rotary tables; sandwich norms; 1 + w; a list of end tokens",
        {"eos_token_id": [1, 3]},
    ),
    Toy(
        "gemma3-softcap",
        "gemma3_text",
        "config.json from before transformers 5: a pattern of 2, linear scaling of the global layers, final soft cap",
        {
            **BEFORE_V5,
            "rope_theta": 1e6,
            "rope_local_base_freq": 5000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "num_hidden_layers": 2,
            "layer_types": DROP,
            "sliding_window_pattern": 2,
            "final_logit_softcapping": 3.0,
        },
        gguf_keys={"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 5000.0},
    ),
    Toy(
        "gemma3-scale",
        "gemma3_text",
        "query_pre_attn_scalar other than head_dim (in GGUF: attention.scale, which llama.cpp does not read); untied; "
        "a pattern given layer by layer",
        {
            "num_hidden_layers": 3,
            "query_pre_attn_scalar": 64,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "tie_word_embeddings": False,
        },
        gguf_keys={"attention.scale": 0.125, "attention.sliding_window_pattern": [False, True, True]},
    ),
    Toy(
        "gemma3-bias",
        "gemma3_text",
        "attention_bias with o bias, all layers global",
        {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "attention_bias": True},
        gguf=False,
    ),
]

OLMOE = [
    Toy("olmoe", "olmoe", "QK-norm over the whole row; not renormalised; half-split rows in GGUF"),
    Toy("olmoe-mha", "olmoe", "as many key/value heads as heads, which llama.cpp needs", {"num_key_value_heads": 4}),
    Toy(
        "olmoe-renormalised",
        "olmoe",
        "norm_topk_prob true (in GGUF: expert_weights_norm, which llama.cpp does not read)",
        {"norm_topk_prob": True, "num_key_value_heads": 4},
        gguf_keys={"expert_weights_norm": True},
    ),
]

TOYS: list[Toy] = [*LLAMA, *MISTRAL, *QWEN, *GEMMA, *OLMOE]
