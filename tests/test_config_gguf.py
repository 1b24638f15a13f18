"""GGUF metadata of each architecture: required keys, llama.cpp's defaults, and what the tensor table says."""

from __future__ import annotations

from math import log

import pytest

from rml.config import ModelConfig, RopeConfig
from rml.config_gguf import Shapes, from_gguf
from rml.errors import BadFile, ConfigError, LoadWarning, Unsupported

Metadata = dict[str, object]

SHAPES: dict[str, tuple[int, ...]] = {"token_embd.weight": (64, 32), "output.weight": (64, 32)}


def read(arch: str = "llama", shapes: Shapes | None = None, /, **changes: object) -> ModelConfig:
    """The toy's metadata with changes; __ is a dot, a key without `general` or `tokenizer` is the architecture's."""
    metadata: Metadata = {
        "block_count": 6,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if arch in ("qwen3moe", "olmoe"):
        metadata |= {"expert_count": 4, "expert_used_count": 2}
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    top = {key: value for key, value in metadata.items() if key.startswith(("general.", "tokenizer."))}
    own = {f"{arch}.{key}": value for key, value in metadata.items() if key not in top and value is not ...}
    return from_gguf("toy.gguf", {"general.architecture": arch, **own, **top}, SHAPES if shapes is None else shapes)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "olmoe"])
def test_defaults_of_each_architecture(arch: str) -> None:
    got = read(arch)
    gemma, moe = arch == "gemma3", arch in ("qwen3moe", "olmoe")
    expected: dict[str, object] = {
        "model_type": {"qwen3moe": "qwen3_moe", "gemma3": "gemma3_text"}.get(arch, arch),
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 6,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
        "activation": "gelu_tanh" if gemma else "silu",
        "attention_bias": False,
        "output_bias": False,
        "qk_norm": {"olmoe": "row", "qwen3": "head", "qwen3moe": "head", "gemma3": "head"}.get(arch, "none"),
        "sliding_window": 0,
        "sliding_layers": (False,) * 6,
        "sandwich_norms": gemma,
        "norm_offset": 0.0,
        "embedding_scale": 32**0.5 if gemma else 1.0,
        "attention_scale": 8**-0.5,
        "tied_head": False,
        "rope": RopeConfig(1e4),
        "rope_local_theta": None,
        "rope_interleaved": arch == "llama",
        "num_experts": 4 if moe else 0,
        "experts_per_token": 2 if moe else 0,
        "expert_size": {"qwen3moe": 24, "olmoe": 48}.get(arch, 0),
        "normalize_expert_weights": arch == "qwen3moe",
        "bos_ids": set(),
        "eos_ids": set(),
    }
    assert {name: getattr(got, name) for name in expected} == expected
    missing = set(ModelConfig.__dataclass_fields__) - {"sources"} - set(got.sources)
    assert missing == set()
    assert got.sources["num_kv_heads"] == f"metadata: {arch}.attention.head_count_kv"


def test_mixtral_is_a_llama_with_experts() -> None:
    got = read(expert_count=4, expert_used_count=2)
    assert (got.model_type, got.expert_size, got.normalize_expert_weights) == ("mixtral", 48, True)
    assert read(expert_count=0, expert_used_count=0).model_type == "llama"


def test_uniform_arrays_are_scalars() -> None:
    same = read(attention__head_count=[4] * 6, attention__head_count_kv=[2] * 6, feed_forward_length=[48] * 6)
    assert same == read()
    assert read("olmoe", expert_used_count=[2] * 6).experts_per_token == 2


def test_missing_numbers_of_heads() -> None:
    assert read(attention__head_count_kv=...).num_kv_heads == 4
    assert read(attention__head_count_kv=...).sources["num_kv_heads"] == "default: as many as query heads"


def test_head_sizes() -> None:
    got = read("qwen3", attention__key_length=16, attention__value_length=16, rope__dimension_count=16)
    assert (got.head_dim, got.q_size, got.attention_scale) == (16, 64, 0.25)
    with pytest.raises(ConfigError, match="32 / 5 heads is not whole"):
        read(attention__head_count=5, attention__head_count_kv=5)
    with pytest.raises(Unsupported, match=r"value_length' is 16 .*differs from the key length 8"):
        read(attention__value_length=16)
    with pytest.raises(Unsupported, match=r"dimension_count' is 4 .*partial"):
        read("qwen3", rope__dimension_count=4)


def test_the_size_of_the_vocabulary() -> None:
    assert read(vocab_size=64).sources["vocab_size"] == "metadata: llama.vocab_size"
    assert read().sources["vocab_size"] == "tensor table: rows of token_embd.weight"
    assert read(tokenizer__ggml__tokens=["a"] * 60).vocab_size == 64  # rows without a token
    with pytest.raises(ConfigError, match="has 65 tokens, more than the vocabulary's 64"):
        read(tokenizer__ggml__tokens=["a"] * 65)
    with pytest.raises(BadFile, match=r"neither a key 'llama\.vocab_size' nor a tensor 'token_embd\.weight'"):
        read("llama", {})


def test_what_the_tensor_table_says() -> None:
    def shapes(**extra: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return SHAPES | {name.replace("__", "."): shape for name, shape in extra.items()}

    biased = read("qwen2", shapes(blk__0__attn_q__bias=(32,)))
    assert (biased.attention_bias, biased.output_bias) == (True, False)
    assert biased.sources["attention_bias"] == "tensor table: has blk.0.attn_q.bias"
    assert read("llama", shapes(blk__0__attn_output__bias=(32,))).output_bias is True
    assert read("qwen2", shapes(blk__0__attn_qkv__bias=(64,))).attention_bias is True
    assert read("llama", {"token_embd.weight": (64, 32)}).tied_head is True
    assert read("olmoe", {"token_embd.weight": (64, 32)}).sources["tied_head"] == "tensor table: no output.weight"
    assert read("llama", shapes(blk__0__attn_q_norm__weight=(8,))).qk_norm == "head"
    assert read("llama", shapes(blk__0__attn_q_norm__weight=(32,))).qk_norm == "row"
    assert read("qwen3", shapes(blk__0__attn_q_norm__weight=(32,))).qk_norm == "row"
    one_head = {"attention__head_count": 1, "attention__head_count_kv": 1, "attention__key_length": 32}
    assert read("olmoe", shapes(blk__0__attn_q_norm__weight=(32,)), **one_head).qk_norm == "row"
    assert read("llama", shapes(rope_freqs__weight=(4,))).has_rope_freqs is True
    assert read("qwen2", shapes(rope_freqs__weight=(4,))).has_rope_freqs is False  # left over, refused at load


def test_windows_and_patterns() -> None:
    def gemma(**changes: object) -> ModelConfig:
        return read("gemma3", attention__sliding_window=16, **changes)

    default = gemma()
    assert default.sliding_layers == (True,) * 5 + (False,)
    assert (default.sliding_window, default.rope_local_theta) == (16, 1e4)
    assert gemma(attention__sliding_window_pattern=6) == default
    assert gemma(attention__sliding_window_pattern=[True] * 5 + [False]) == default
    assert gemma(attention__sliding_window_pattern=2).sliding_layers == (True, False) * 3
    assert gemma(attention__sliding_window_pattern=0).sliding_layers == (True,) * 6
    every = gemma(attention__sliding_window_pattern=1)
    assert (every.sliding_layers, every.sliding_window, every.rope_local_theta) == ((False,) * 6, 0, None)
    assert gemma(rope__freq_base_swa=2e4).rope_local_theta == 2e4
    assert read("gemma3", attention__sliding_window=0).sliding_layers == (False,) * 6
    mistral = read(attention__sliding_window=16)
    assert (mistral.sliding_window, mistral.sliding_layers, mistral.rope_local_theta) == (16, (True,) * 6, None)


def test_scales_of_gemma() -> None:
    big: Metadata = {"block_count": 62, "embedding_length": 5376, "attention__head_count": 32}
    big |= {"attention__head_count_kv": 16, "attention__key_length": 128, "attention__value_length": 128}
    shapes = {"token_embd.weight": (64, 5376)}
    assert read("gemma3", shapes, **big).attention_scale == 168**-0.5
    assert read("gemma3", shapes, **big | {"block_count": 61}).attention_scale == 128**-0.5
    assert read("gemma3", shapes, **big, attention__scale=0.5).attention_scale == 0.5
    assert read("qwen3", shapes, **big).attention_scale == 128**-0.5
    assert read("gemma3", final_logit_softcapping=30.0).final_logit_softcapping == 30.0


def test_expert_keys() -> None:
    assert read("qwen3moe", expert_feed_forward_length=16).expert_size == 16
    assert read("qwen3moe", expert_feed_forward_length=16, feed_forward_length=...).intermediate_size == 16
    assert read("qwen3moe", expert_weights_norm=False).normalize_expert_weights is False
    assert read("olmoe", expert_weights_norm=True).normalize_expert_weights is True
    assert read("qwen3moe").sources["expert_size"] == "default: feed_forward_length / expert_used_count"


def test_rope_as_llama_cpp_reads_it() -> None:
    assert read(rope__freq_base=5e5).rope == RopeConfig(5e5)
    assert read("gemma3").rope.theta == 1e4  # no default of its own
    linear = RopeConfig(1e4, "linear", 8.0)
    assert read(rope__scaling__type="linear", rope__scaling__factor=8.0).rope == linear
    assert read(rope__scaling__factor=8.0).rope == linear  # a factor without a type
    assert read(rope__scale_linear=8.0).rope == linear  # the older name
    assert read(rope__scaling__type="none", rope__scaling__factor=8.0).rope == RopeConfig(1e4)
    assert read(rope__scaling__factor=0.0).rope == RopeConfig(1e4)
    assert read(rope__scaling__factor=1.0).rope == RopeConfig(1e4)
    assert read(rope__scaling__attn_factor=2.0).rope == RopeConfig(1e4, attention_factor=2.0)


def test_yarn_as_llama_cpp_reads_it() -> None:
    def yarn(**changes: object) -> RopeConfig:
        changes = {f"rope__scaling__{key}": value for key, value in changes.items()}
        return read("qwen2", rope__scaling__type="yarn", rope__scaling__factor=4.0, **changes).rope

    assert yarn() == RopeConfig(1e4, "yarn", 4.0, original_max_position=128)
    assert yarn(original_context_length=32).original_max_position == 32
    assert yarn(attn_factor=2.0).attention_factor == pytest.approx(2 * (1 + 0.1 * log(4)), abs=1e-15)
    assert yarn(yarn_attn_factor=0.75).attention_factor == 0.75  # transformers' attention_factor
    assert yarn(yarn_attn_factor=0.75, attn_factor=2.0).attention_factor == 1.5
    assert (yarn(yarn_beta_fast=16.0).beta_fast, yarn(yarn_beta_slow=2.0).beta_slow) == (16.0, 2.0)
    with pytest.raises(Unsupported, match="yarn_ext_factor"):
        yarn(yarn_ext_factor=0.5)


def test_gemma_with_a_magnitude_for_local_layers_too() -> None:
    with pytest.raises(Unsupported, match="attn_factor"):
        read("gemma3", rope__scaling__attn_factor=2.0)


def test_ends_of_text() -> None:
    ids = {f"tokenizer__ggml__{role}_token_id": number for number, role in enumerate(("bos", "eos", "eot", "eom"))}
    got = read(**ids)
    assert got.bos_ids == {0}
    assert got.eos_ids == {1, 2, 3}
    assert "tokenizer.ggml.eot_token_id" in got.sources["eos_ids"]
    assert read(tokenizer__ggml__eos_token_id=7).eos_ids == {7}


def test_keys_that_change_nothing() -> None:
    neutral: Metadata = {
        "logit_scale": 0.0,
        "expert_gating_func": 1,
        "expert_shared_count": 0,
        "expert_weights_scale": 1.0,
        "attention.clamp_kqv": 0.0,
        "attention.causal": True,
        "final_logit_softcapping": 0.0,
        "rope.scaling.finetuned": True,
        "tensor_data_layout": "Meta AI original pth",
        "leading_dense_block_count": 0,
        "pooling_type": 0,
    }
    assert read(**{key.replace(".", "__"): value for key, value in neutral.items()}) == read()


def test_unknown_keys_are_warned_about_once() -> None:
    with pytest.warns(LoadWarning) as caught:
        assert read(new_switch=1, other=2.0, general__nothing=3) == read()
    assert [str(warning.message) for warning in caught] == [
        "toy.gguf: unknown keys are ignored: llama.new_switch, llama.other"
    ]


def test_keys_of_other_architectures_mean_nothing() -> None:
    metadata: Metadata = {"general.architecture": "llama", "gemma3.logit_scale": 2.0}
    for key in ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"):
        metadata[f"llama.{key}"] = 8
    metadata["llama.attention.layer_norm_rms_epsilon"] = 1e-6
    with pytest.raises(ConfigError, match="head_dim is 1, expected an even number"):
        from_gguf("toy.gguf", metadata, SHAPES)
    assert from_gguf("toy.gguf", metadata | {"llama.attention.key_length": 2}, SHAPES).head_dim == 2
