"""The recipe itself: what it validates, what it counts, what the shared key reader accepts."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from rml.config import ModelConfig, RopeConfig, fill_sources, validate
from rml.config_keys import Keys, describe
from rml.errors import ConfigError, Unsupported

TOY = ModelConfig(
    model_type="llama",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    max_position_embeddings=128,
    sliding_layers=(False, False),
    attention_scale=0.25,
    rope=RopeConfig(1e4),
)


def test_the_toy_is_valid() -> None:
    validate(TOY, "toy")
    assert (TOY.q_size, TOY.kv_size) == (64, 32)


ROPE = TOY.rope
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"vocab_size": 0}, "vocab_size is 0"),
    ({"hidden_size": -1}, "hidden_size is -1"),
    ({"intermediate_size": 2**31}, "intermediate_size is 2147483648"),
    ({"num_kv_heads": 3}, "num_heads is 4, expected a multiple of num_kv_heads, which is 3"),
    ({"head_dim": 15}, "head_dim is 15, expected an even number"),
    ({"rms_norm_eps": 0.0}, "rms_norm_eps is 0.0"),
    ({"rms_norm_eps": nan}, "rms_norm_eps is nan"),
    ({"embedding_scale": inf}, "embedding_scale is inf"),
    ({"attention_scale": -1.0}, "attention_scale is -1.0"),
    ({"sliding_layers": (False,)}, "sliding_layers has 1 flags, expected one for each of 2"),
    ({"sliding_layers": (True, False)}, "sliding_window is 0, but 1 layers slide"),
    ({"sliding_window": 4}, "sliding_window is 4, but 0 layers slide"),
    ({"final_logit_softcapping": -1.0}, "final_logit_softcapping is -1.0"),
    ({"rope_local_theta": 0.0}, "rope_local_theta is 0.0"),
    ({"num_experts": 4, "experts_per_token": 0, "expert_size": 8}, "experts_per_token is 0, expected 1 to 4"),
    ({"num_experts": 4, "experts_per_token": 5, "expert_size": 8}, "experts_per_token is 5, expected 1 to 4"),
    ({"num_experts": 4, "experts_per_token": 2}, "expert_size is 0"),
    ({"rope": replace(ROPE, theta=0.0)}, "rope theta is 0.0"),
    ({"rope": replace(ROPE, factor=-2.0)}, "rope factor is -2.0"),
    ({"rope": replace(ROPE, attention_factor=0.0)}, "rope attention_factor is 0.0"),
    ({"rope": RopeConfig(1e4, "yarn", 4.0)}, "original_max_position is 0"),
    ({"rope": RopeConfig(1.0, "yarn", 4.0, original_max_position=8)}, "more than 1 for yarn"),
    ({"rope": RopeConfig(1e4, "yarn", 4.0, original_max_position=8, beta_slow=64.0)}, "beta_slow is 64.0"),
    ({"rope": RopeConfig(1e4, "llama3", 4.0, 4.0, 4.0, 8)}, "low_freq_factor is 4.0, expected between 0"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_impossible_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(replace(TOY, **change), "model/config.json")
    assert str(caught.value).startswith("model/config.json: ")
    assert message in str(caught.value)


def test_parameter_count_by_hand() -> None:
    embedding, attention, norms = 64 * 32, 32 * 64 * 2 + 32 * 32 * 2, 2 * 32
    layer = attention + 3 * 48 * 32 + norms
    assert TOY.parameter_count == 2 * embedding + 2 * layer + 32
    assert replace(TOY, tied_head=True).parameter_count == embedding + 2 * layer + 32
    assert replace(TOY, attention_bias=True).parameter_count == TOY.parameter_count + 2 * (64 + 32 + 32)
    assert replace(TOY, output_bias=True).parameter_count == TOY.parameter_count + 2 * 32
    assert replace(TOY, qk_norm="head").parameter_count == TOY.parameter_count + 2 * 2 * 16
    assert replace(TOY, qk_norm="row").parameter_count == TOY.parameter_count + 2 * (64 + 32)
    assert replace(TOY, sandwich_norms=True).parameter_count == TOY.parameter_count + 2 * 2 * 32
    assert replace(TOY, has_rope_freqs=True).parameter_count == TOY.parameter_count  # computed, not learned
    moe = replace(TOY, num_experts=4, experts_per_token=2, expert_size=8)
    assert moe.parameter_count == 2 * embedding + 2 * (attention + 4 * 32 + 4 * 3 * 8 * 32 + norms) + 32


def test_shapes_of_a_mixture() -> None:
    moe = replace(TOY, num_layers=1, num_experts=4, experts_per_token=2, expert_size=8, has_rope_freqs=True)
    shapes = dict(moe.tensor_shapes())
    assert shapes["blk.0.ffn_gate_inp.weight"] == (4, 32)
    assert shapes["blk.0.ffn_up_exps.weight"] == (4, 8, 32)
    assert shapes["blk.0.ffn_down_exps.weight"] == (4, 32, 8)
    assert shapes["blk.0.attn_output.weight"] == (32, 64)
    assert shapes["rope_freqs.weight"] == (8,)
    assert not any("ffn_gate.weight" in name for name in shapes)


def test_sources_are_filled_and_kept() -> None:
    sources = {"vocab_size": "config.json: vocab_size"}
    fill_sources(sources, "family llama")
    assert sources["vocab_size"] == "config.json: vocab_size"
    assert sources["qk_norm"] == "default: family llama"
    assert "sources" not in sources


def keys(**values: object) -> Keys:
    return Keys("x.json", "x", values, {})


def test_null_is_absent() -> None:
    reader = keys(a=None)
    for get in (reader.integer, reader.number, reader.boolean, reader.string):
        assert get("a") is None
    assert reader.integer("b") is None
    assert reader.sources == {}
    assert reader.used == {"a", "b"}


def test_numbers_may_be_integers_but_sizes_must_be() -> None:
    reader = keys(a=8, b=8.0, c=10**300)
    assert reader.number("a", "factor") == reader.number("b") == 8.0
    assert reader.number("c") == 1e300
    assert type(reader.number("a")) is float
    assert reader.sources == {"factor": "x: a"}
    with pytest.raises(ConfigError, match=r"x\.json: key 'b': expected an integer from 1 to 2147483647, found 8\.0"):
        reader.integer("b")


@pytest.mark.parametrize("value", [True, "8", [8], {}, nan, inf, 10**400, 0, -1])
def test_what_is_not_a_positive_number(value: object) -> None:
    with pytest.raises(ConfigError, match="key 'a': expected a positive number, found "):
        keys(a=value).number("a")


@pytest.mark.parametrize(
    ("value", "ids"), [(3, {3}), ([3, 5], {3, 5}), ([3], {3}), ([], set()), (None, None), (0, {0})]
)
def test_token_ids(value: object, ids: set[int] | None) -> None:
    assert keys(a=value).ids("a", "eos_ids") == ids


def test_missing_and_null_read_differently() -> None:
    with pytest.raises(ConfigError, match="key 'a' is null, expected an integer"):
        keys(a=None).need_integer("a", "a")
    with pytest.raises(ConfigError, match="key 'b' is missing, expected an integer"):
        keys().need_integer("b", "b")


def test_refusing_names_the_value() -> None:
    with pytest.raises(Unsupported, match=r"x\.json: key 'a' is 'dynamic' \(string\): no table"):
        keys(a="dynamic").refuse("a", "no table")


def test_long_values_are_cut() -> None:
    assert len(describe("x" * 1000)) < 80
    assert describe(None) == "None (null)"
    assert describe([1]) == "[1] (array)"
