"""One builder for each lie that config.json and generation_config.json can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from toy_files import Lie, toy_config, write_hf

from rml.errors import BadFile, ConfigError, Unsupported


def _config(**changes: object) -> Callable[[Path], Path]:
    return lambda directory: write_hf(directory, toy_config(**changes))  # type: ignore[arg-type]


def _config_text(text: str) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        write_hf(directory)
        (directory / "config.json").write_text(text)
        return directory

    return build


def _generation(**values: object) -> Callable[[Path], Path]:
    return lambda directory: write_hf(directory, generation=values)


def _rope(**scaling: object) -> Callable[[Path], Path]:
    return _config(rope_scaling=scaling)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
GEMMA: dict[str, object] = {"model_type": "gemma3_text", "num_hidden_layers": 6, "head_dim": 8}

CONFIG_LIES = [
    Lie("not JSON", _config_text("{"), BadFile, ("config.json", "not JSON")),
    Lie("a list", _config_text("[]"), BadFile, ("config.json", "list")),
    Lie("a web page", _config_text("<!DOCTYPE html>"), BadFile, ("config.json", "HTML")),
    Lie(
        "a key twice",
        _config_text('{"model_type": "llama", "model_type": "qwen2"}'),
        BadFile,
        ("'model_type'", "twice"),
    ),
    Lie("infinite epsilon", _config_text('{"rms_norm_eps": Infinity}'), BadFile, ("Infinity",)),
    Lie("no model_type", _config(model_type=...), ConfigError, ("model_type", "missing")),
    Lie("phi3", _config(model_type="phi3"), Unsupported, ("'phi3'", "qwen3_moe")),
    Lie("gemma3", _config(model_type="gemma3", text_config={}), Unsupported, ("'gemma3'", "text_config")),
    *(
        Lie(f"no {key}", _config(**{key: None}), ConfigError, (key, "null"))
        for key in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "max_position_embeddings",
        )
    ),
    Lie("hidden 0", _config(hidden_size=0), ConfigError, ("hidden_size", "0 (integer)")),
    Lie("hidden 32.0", _config(hidden_size=32.0), ConfigError, ("hidden_size", "32.0 (float)")),
    Lie("hidden '32'", _config(hidden_size="32"), ConfigError, ("hidden_size", "'32' (string)")),
    Lie("hidden true", _config(hidden_size=True), ConfigError, ("hidden_size", "True (bool)")),
    Lie("2^40 layers", _config(num_hidden_layers=1 << 40), ConfigError, ("num_hidden_layers",)),
    Lie("10^6 layers", _config(num_hidden_layers=10**6), ConfigError, ("num_hidden_layers", "at most")),
    Lie("60000 layers", _config(num_hidden_layers=60_000), BadFile, ("blk.1.attn_norm.weight", "missing")),
    Lie("3 key heads", _config(num_key_value_heads=3), ConfigError, ("num_kv_heads", "multiple")),
    Lie("5 heads", _config(num_attention_heads=5), ConfigError, ("head_dim", "32 / 5")),
    Lie("head of 7", _config(head_dim=7), ConfigError, ("head_dim", "even")),
    Lie("epsilon 0", _config(rms_norm_eps=0), ConfigError, ("rms_norm_eps", "positive")),
    Lie("epsilon of text", _config(rms_norm_eps="1e-6"), ConfigError, ("rms_norm_eps", "string")),
    Lie("relu", _config(hidden_act="relu"), Unsupported, ("hidden_act", "'relu'")),
    Lie("bias of text", _config(attention_bias="yes"), ConfigError, ("attention_bias", "'yes'")),
    Lie("tie of 1", _config(tie_word_embeddings=1), ConfigError, ("tie_word_embeddings", "1 (integer)")),
    Lie("eos true", _config(eos_token_id=True), ConfigError, ("eos_token_id", "True")),
    Lie("eos '2'", _config(eos_token_id="2"), ConfigError, ("eos_token_id", "'2'")),
    Lie("eos -1", _config(eos_token_id=-1), ConfigError, ("eos_token_id", "-1")),
    Lie("eos [2, '3']", _config(eos_token_id=[2, "3"]), ConfigError, ("eos_token_id",)),
    Lie("generation eos -1", _generation(eos_token_id=-1), ConfigError, ("generation_config.json", "eos_token_id")),
    Lie("an FFN bias", _config(mlp_bias=True), Unsupported, ("mlp_bias",)),
    Lie("attention bias", _config(attention_bias=True), BadFile, ("q_proj.bias", "missing")),
    Lie("half the head rotated", _config(partial_rotary_factor=0.5), Unsupported, ("partial_rotary_factor", "0.5")),
    Lie("half, in rope", _rope(rope_type="default", partial_rotary_factor=0.5), Unsupported, ("partial_rotary",)),
    Lie("softcapped llama", _config(final_logit_softcapping=30), Unsupported, ("final_logit_softcapping", "30")),
    Lie("clamped q, k, v", _config(clip_qkv=8), Unsupported, ("clip_qkv", "8")),
    Lie("clamped olmoe", _config(model_type="olmoe", clip_qkv=8.0), Unsupported, ("clip_qkv", "8.0")),
    Lie("an attention multiplier", _config(attention_multiplier=0.5), Unsupported, ("attention_multiplier",)),
    Lie("quantised", _config(quantization_config={"quant_method": "gptq"}), Unsupported, ("quantization_config",)),
    Lie("both directions", _config(**GEMMA, use_bidirectional_attention=True), Unsupported, ("use_bidirectional",)),
    Lie(
        "softcapped attention", _config(**GEMMA, attn_logit_softcapping=50.0), Unsupported, ("attn_logit_softcapping",)
    ),
    Lie("layer types of llama", _config(layer_types=["sliding_attention"]), Unsupported, ("layer_types",)),
    Lie("rope of text", _config(rope_scaling="linear"), ConfigError, ("rope_scaling", "'linear'")),
    Lie("types that differ", _rope(rope_type="linear", type="yarn", factor=8), ConfigError, ("'linear'", "'yarn'")),
    Lie("a factor without a type", _rope(factor=8), ConfigError, ("factor", "rope_type")),
    *(
        Lie(f"rope {kind}", _rope(rope_type=kind, factor=8.0), Unsupported, ("rope_scaling", f"'{kind}'"))
        for kind in ("dynamic", "longrope", "su", "mrope", "ntk", "proportional")
    ),
    Lie("old rope dynamic", _rope(type="dynamic", factor=8.0), Unsupported, ("'dynamic'",)),
    Lie("factor 0", _rope(rope_type="linear", factor=0), ConfigError, ("factor", "0 (integer)")),
    Lie("factor -8", _rope(rope_type="linear", factor=-8.0), ConfigError, ("factor", "-8.0")),
    Lie("factor '8'", _rope(rope_type="linear", factor="8"), ConfigError, ("factor", "'8'")),
    Lie("no factor", _rope(rope_type="linear"), ConfigError, ("factor", "missing", "linear")),
    Lie("yarn without factor", _rope(rope_type="yarn"), ConfigError, ("factor", "missing", "yarn")),
    Lie(
        "llama3, no length",
        _rope(**LLAMA3 | {"original_max_position_embeddings": None}),
        ConfigError,
        ("original_max",),
    ),
    Lie("llama3, no low", _rope(**LLAMA3 | {"low_freq_factor": None}), ConfigError, ("low_freq_factor", "missing")),
    Lie("llama3, low = high", _rope(**LLAMA3 | {"low_freq_factor": 4}), ConfigError, ("low_freq_factor", "4.0")),
    Lie(
        "yarn, theta 1",
        _config(rope_theta=1, rope_scaling={"type": "yarn", "factor": 2}),
        ConfigError,
        ("theta", "yarn"),
    ),
    Lie("theta 0", _config(rope_theta=0), ConfigError, ("rope_theta", "positive")),
    Lie(
        "two thetas",
        _config(rope_theta=5e5, rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        ConfigError,
        ("rope_theta", "500000.0", "10000.0"),
    ),
    Lie(
        "two scalings",
        _config(rope_scaling={"type": "linear", "factor": 2}, rope_parameters={"rope_type": "linear", "factor": 4}),
        ConfigError,
        ("rope_scaling", "rope_parameters", "disagree"),
    ),
    Lie(
        "rope by layer",
        _config(rope_parameters={"full_attention": {}}),
        Unsupported,
        ("rope_parameters", "share one RoPE"),
    ),
    Lie("window 0", _config(model_type="mistral", sliding_window=0), ConfigError, ("sliding_window", "0 (integer)")),
    Lie(
        "sliding Qwen layers with the window off",
        _config(model_type="qwen2", layer_types=["sliding_attention"], sliding_window=4, use_sliding_window=False),
        ConfigError,
        ("layer_types", "use_sliding_window"),
    ),
    Lie("pattern 0", _config(**GEMMA, sliding_window_pattern=0), ConfigError, ("sliding_window_pattern", "0")),
    Lie(
        "5 layer types of 6", _config(**GEMMA, layer_types=["full_attention"] * 5), ConfigError, ("layer_types", "6 of")
    ),
    Lie("chunked layers", _config(**GEMMA, layer_types=["chunked_attention"] * 6), ConfigError, ("chunked_attention",)),
    Lie("no window to slide", _config(**GEMMA, sliding_window=None), ConfigError, ("sliding_window", "5 of 6")),
    Lie(
        "scaled local layers",
        _config(**GEMMA, rope_parameters={"sliding_attention": {"rope_type": "linear", "factor": 8.0}}),
        Unsupported,
        ("local layers",),
    ),
    Lie(
        "two expert counts",
        _config(model_type="mixtral", num_local_experts=4, num_experts=8),
        ConfigError,
        ("num_experts", "8", "4"),
    ),
    Lie(
        "5 of 4 experts",
        _config(model_type="mixtral", num_local_experts=4, num_experts_per_tok=5),
        ConfigError,
        ("5", "4"),
    ),
    Lie(
        "2^31 experts",
        _config(model_type="mixtral", num_local_experts=2**31 - 1),
        BadFile,
        ("blk.0.ffn_gate_inp.weight", "[2147483647, 32]"),
    ),
    Lie("dense layers", _config(model_type="qwen3_moe", mlp_only_layers=[0]), Unsupported, ("mlp_only_layers",)),
    Lie("every second layer", _config(model_type="qwen3_moe", decoder_sparse_step=2), Unsupported, ("sparse_step",)),
    Lie(
        "mixtral not normalised", _config(model_type="mixtral", norm_topk_prob=False), Unsupported, ("norm_topk_prob",)
    ),
    Lie("experts of llama", _config(num_local_experts=8), Unsupported, ("num_local_experts",)),
]
