"""config.json of each family: what its keys say, what is assumed without them, what transformers ignores."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path

import pytest
from toy_files import toy_config

from rml.config import ModelConfig
from rml.config_hf import from_hf
from rml.errors import ConfigError, InvalidArgument, LoadWarning

FAMILIES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "olmoe"]


@pytest.fixture
def config(tmp_path: Path) -> Read:
    return Read(tmp_path)


class Read:
    """config(family, key=value ...) writes and reads a config.json; a value of ... removes the key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, family: str = "llama", /, **changes: object) -> ModelConfig:
        (self.directory / "config.json").write_text(json.dumps(toy_config(family, **changes)))
        return from_hf(self.directory)

    def generation(self, **values: object) -> None:
        (self.directory / "generation_config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_of_each_family(config: Read, family: str) -> None:
    """The table of transformers 5.24's defaults, key by key."""
    got = config(family, num_layers=..., num_hidden_layers=6)
    gemma = family == "gemma3_text"
    expected: dict[str, object] = {
        "model_type": family,
        "head_dim": {"qwen3": 128, "gemma3_text": 256}.get(family, 8),
        "rms_norm_eps": 1e-5 if family in ("mixtral", "olmoe") else 1e-6,
        "activation": "gelu_tanh" if gemma else "silu",
        "attention_bias": family == "qwen2",
        "output_bias": False,
        "qk_norm": {"qwen3": "head", "qwen3_moe": "head", "gemma3_text": "head", "olmoe": "row"}.get(family, "none"),
        "sliding_window": 4096 if family in ("mistral", "gemma3_text") else 0,
        "sliding_layers": {"mistral": (True,) * 6, "gemma3_text": (True,) * 5 + (False,)}.get(family, (False,) * 6),
        "sandwich_norms": gemma,
        "norm_offset": 1.0 if gemma else 0.0,
        "embedding_scale": sqrt(32) if gemma else 1.0,
        "attention_scale": {"gemma3_text": 0.0625, "qwen3": 128**-0.5}.get(family, 8**-0.5),
        "tied_head": gemma,
        "final_logit_softcapping": 0.0,
        "rope_local_theta": 1e4 if gemma else None,
        "rope_interleaved": False,
        "has_rope_freqs": False,
        "num_experts": {"mixtral": 8, "qwen3_moe": 128, "olmoe": 64}.get(family, 0),
        "experts_per_token": {"mixtral": 2, "qwen3_moe": 8, "olmoe": 8}.get(family, 0),
        "expert_size": {"mixtral": 48, "qwen3_moe": 768, "olmoe": 48}.get(family, 0),
        "normalize_expert_weights": family == "mixtral",
        "bos_ids": {"llama": {1}, "mistral": {1}, "mixtral": {1}, "gemma3_text": {2}}.get(family, set()),
        "eos_ids": {"llama": {2}, "mistral": {2}, "mixtral": {2}, "gemma3_text": {1}}.get(family, set()),
    }
    assert {name: getattr(got, name) for name in expected} == expected
    assert got.rope.theta == (1e6 if family in ("mixtral", "gemma3_text") else 1e4)
    assert got.rope.type == "default"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_has_a_source(config: Read, family: str) -> None:
    got = config(family, rms_norm_eps=1e-3)
    assert got.rms_norm_eps == 1e-3
    assert got.sources["rms_norm_eps"] == "config.json: rms_norm_eps"
    assert got.sources["num_heads"] == "config.json: num_attention_heads"
    assert got.sources["rope.theta"] == "default: family"
    missing = set(ModelConfig.__dataclass_fields__) - {"sources"} - set(got.sources)
    assert missing == set()


def test_numbers_are_not_rounded_to_float32(config: Read) -> None:
    assert config(rms_norm_eps=1e-5, rope_theta=500000.7).rope.theta == 500000.7
    assert config(rms_norm_eps=1e-5).rms_norm_eps == 1e-5


@pytest.mark.parametrize("missing", [None, ...])
def test_null_is_absent(config: Read, missing: object) -> None:
    got = config(num_key_value_heads=missing, head_dim=missing, rms_norm_eps=missing, tie_word_embeddings=missing)
    assert (got.num_kv_heads, got.head_dim, got.rms_norm_eps, got.tied_head) == (4, 8, 1e-6, False)
    assert got.sources["num_kv_heads"] == "default: as many as query heads"
    assert config("qwen3", head_dim=missing).head_dim == 128
    assert config("mixtral", head_dim=missing, sliding_window=missing).sliding_window == 0


def test_a_given_head_size_wins(config: Read) -> None:
    """Qwen3 0.6B and Nemo: heads x head_dim is not the hidden size; nor need heads divide it."""
    assert config("qwen2", head_dim=16).q_size == 64
    assert config(num_attention_heads=6, num_key_value_heads=3, head_dim=16).q_size == 96
    assert config(head_dim=16).attention_scale == 0.25


def test_biases(config: Read) -> None:
    for family in ("llama", "qwen3", "qwen3_moe", "gemma3_text", "olmoe"):
        got = config(family, attention_bias=True)
        assert (got.attention_bias, got.output_bias) == (True, True)
        assert got.sources["output_bias"] == "config.json: attention_bias"
    for family in ("mistral", "mixtral"):
        assert not config(family, attention_bias=True).attention_bias
    got = config("qwen2", attention_bias=False)
    assert (got.attention_bias, got.output_bias) == (True, False)


def test_activations(config: Read) -> None:
    assert config(hidden_act="swish").activation == "silu"
    assert config(hidden_act="gelu_pytorch_tanh").activation == "gelu_tanh"
    assert config(hidden_act="silu", hidden_activation="gelu_pytorch_tanh").activation == "silu"
    assert config("gemma3_text", hidden_act="silu").activation == "gelu_tanh"
    assert config("gemma3_text", hidden_activation="silu").activation == "silu"


def test_end_of_text_is_a_set(config: Read) -> None:
    assert config(eos_token_id=[3, 5]).eos_ids == {3, 5}
    assert config(eos_token_id=[3]).eos_ids == {3}
    assert config(eos_token_id=7).eos_ids == {7}
    assert config(eos_token_id=None).eos_ids == set()
    assert config(eos_token_id=...).eos_ids == {2}
    assert config(bos_token_id=None).bos_ids == set()
    assert config("olmoe", vocab_size=50304).eos_ids == {50279}


def test_generation_config_wins(config: Read) -> None:
    config.generation(eos_token_id=[2, 7], bos_token_id=None, temperature=0.6)
    got = config(eos_token_id=2, bos_token_id=4)
    assert got.eos_ids == {2, 7}
    assert got.sources["eos_ids"] == "generation_config.json: eos_token_id"
    assert got.bos_ids == {4}
    assert got.sources["bos_ids"] == "config.json: bos_token_id"


@pytest.mark.parametrize("family", ["mistral", "mixtral"])
def test_windows_of_mistral(config: Read, family: str) -> None:
    got = config(family, sliding_window=16)
    assert (got.sliding_window, got.sliding_layers) == (16, (True,))
    none = config(family, sliding_window=None)
    assert (none.sliding_window, none.sliding_layers) == (0, (False,))


@pytest.mark.parametrize("family", ["llama", "olmoe"])
def test_a_stray_window_is_ignored(config: Read, family: str) -> None:
    assert config(family, sliding_window=16).sliding_window == 0


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_windows_of_qwen(config: Read, family: str) -> None:
    """Off unless use_sliding_window; then the layers from max_window_layers on, or what layer_types says."""

    def flags(**changes: object) -> tuple[bool, ...]:
        got = config(family, num_hidden_layers=4, **changes)
        assert got.sliding_window == (4 if any(got.sliding_layers) else 0)
        return got.sliding_layers

    off, on = (False,) * 4, (True,) * 4
    assert flags(sliding_window=4, max_window_layers=2) == off
    assert flags(sliding_window=4, max_window_layers=2, use_sliding_window=False) == off
    assert flags(sliding_window=4, max_window_layers=0, use_sliding_window=True) == on
    assert flags(sliding_window=4, max_window_layers=2, use_sliding_window=True) == (False, False, True, True)
    assert flags(sliding_window=4, max_window_layers=4, use_sliding_window=True) == off
    assert flags(sliding_window=4, use_sliding_window=True) == off  # max_window_layers is 28
    assert flags(sliding_window=None, max_window_layers=0, use_sliding_window=True) == off
    types = ["sliding_attention", "full_attention"] * 2
    assert flags(sliding_window=4, use_sliding_window=True, layer_types=types) == (True, False) * 2
    assert flags(sliding_window=4, use_sliding_window=True, layer_types=["full_attention"] * 4) == off


def test_windows_of_qwen3_moe(config: Read) -> None:
    assert config("qwen3_moe", sliding_window=4, use_sliding_window=True, max_window_layers=9).sliding_layers == (True,)
    assert config("qwen3_moe", sliding_window=4).sliding_layers == (False,)


def test_layers_of_gemma(config: Read) -> None:
    """The first four spellings of one model are one model."""
    words = ["sliding_attention"] * 5 + ["full_attention"]

    def read(**changes: object) -> ModelConfig:
        return config("gemma3_text", num_hidden_layers=6, **changes)

    same = [
        read(sliding_window_pattern=6),
        read(_sliding_window_pattern=6),
        read(layer_types=words),
        read(),
        read(layer_types=words, sliding_window_pattern=2, _sliding_window_pattern=3),
    ]
    assert all(each == same[0] for each in same)
    assert same[0].sliding_layers == (True,) * 5 + (False,)
    assert read(sliding_window_pattern=2, _sliding_window_pattern=6).sliding_layers == (True, False) * 3
    assert read(_sliding_window_pattern=3).sliding_layers == (True, True, False) * 2
    every = read(sliding_window_pattern=1)
    assert (every.sliding_layers, every.sliding_window, every.rope_local_theta) == ((False,) * 6, 0, None)
    assert read(sliding_window=None, sliding_window_pattern=1).sliding_window == 0
    assert read(sliding_window=512).sliding_window == 512


def test_extras_of_gemma(config: Read) -> None:
    got = config("gemma3_text", query_pre_attn_scalar=168, final_logit_softcapping=30.0, hidden_size=640)
    assert got.attention_scale == 168**-0.5
    assert got.final_logit_softcapping == 30.0
    assert got.embedding_scale == 640**0.5  # not rounded to bf16, which would be 25.25
    assert config("gemma3_text", tie_word_embeddings=False).tied_head is False
    assert config("gemma3_text", use_bidirectional_attention=False, attn_logit_softcapping=None).tied_head is True


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "olmoe"])
def test_names_of_expert_counts(config: Read, family: str) -> None:
    for names in (["num_experts"], ["num_local_experts"], ["num_experts", "num_local_experts"]):
        got = config(family, num_experts_per_tok=3, **dict.fromkeys(names, 4))
        assert (got.num_experts, got.experts_per_token) == (4, 3)


def test_experts(config: Read) -> None:
    assert config("qwen3_moe", norm_topk_prob=True, moe_intermediate_size=24).normalize_expert_weights is True
    assert config("qwen3_moe", moe_intermediate_size=24).expert_size == 24
    assert config("qwen3_moe", mlp_only_layers=[], decoder_sparse_step=1).num_experts == 128
    assert config("qwen3_moe", intermediate_size=...).expert_size == 768
    assert config("olmoe", norm_topk_prob=True).normalize_expert_weights is True
    assert config("mixtral", norm_topk_prob=True).normalize_expert_weights is True
    with pytest.raises(ConfigError, match="'intermediate_size' is missing"):
        config("mixtral", intermediate_size=...)


def test_unknown_keys_are_warned_about_once(config: Read) -> None:
    with pytest.warns(LoadWarning) as caught:
        config(new_switch=3, another={}, nothing=None)
    assert len(caught) == 1
    assert str(caught[0].message).endswith("config.json: unknown keys are ignored: new_switch, another")


def test_keys_that_change_nothing(config: Read) -> None:
    """Published files carry these; none of them warns, and none changes the config."""
    neutral: dict[str, object] = {
        "mlp_bias": False,
        "partial_rotary_factor": 1,
        "clip_qkv": None,
        "final_logit_softcapping": None,
        "attention_multiplier": None,
        "quantization_config": None,
        "use_sliding_window": False,
        "rope_interleaved": False,
        "pretraining_tp": 1,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
        "transformers_version": "5.24.0",
        "architectures": ["LlamaForCausalLM"],
        "router_aux_loss_coef": 0.001,
        "layer_types": ["full_attention"],
        "rope_scaling": None,
        "rope_parameters": {},
    }
    assert config(**neutral) == config()


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"config\.json: no such file"):
        from_hf(tmp_path)
