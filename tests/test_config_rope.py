"""The rotary part of config.json in every spelling, and which of them mean the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_files import toy_config

from rml.config import ModelConfig, RopeConfig
from rml.config_hf import from_hf
from rml.errors import ConfigError, LoadWarning, Unsupported

LLAMA3 = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}


def read(directory: Path, family: str = "llama", /, **changes: object) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps(toy_config(family, **changes)))
    return from_hf(directory)


@pytest.mark.parametrize("scaling", [None, {}, {"rope_type": "default"}, {"type": "default"}, {"type": None}])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_no_scaling(tmp_path: Path, key: str, scaling: object) -> None:
    assert read(tmp_path, **{key: scaling}).rope == RopeConfig(1e4)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("names", [["type"], ["rope_type"], ["type", "rope_type"]])
@pytest.mark.parametrize("factor", [8, 8.0])
def test_spellings_of_linear(tmp_path: Path, key: str, names: list[str], factor: float) -> None:
    got = read(tmp_path, **{key: {"factor": factor, **dict.fromkeys(names, "linear")}})
    assert got.rope == RopeConfig(1e4, "linear", 8.0)
    assert got.sources["rope.factor"] == f"config.json: {key}: factor"


def test_theta_before_and_after_transformers_5(tmp_path: Path) -> None:
    old = read(tmp_path, rope_theta=5e5)
    new = read(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500000})
    both = read(tmp_path, rope_theta=500000, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert old == new == both
    assert old.rope.theta == 5e5
    assert old.sources["rope.theta"] == "config.json: rope_theta"
    assert new.sources["rope.theta"] == "config.json: rope_parameters: rope_theta"
    assert read(tmp_path, "mixtral", rope_theta=None).rope.theta == 1e6
    assert read(tmp_path, rope_theta=1e5, rope_scaling={"type": "linear", "factor": 2}).rope == RopeConfig(
        1e5, "linear", 2.0
    )


def test_both_objects_that_agree(tmp_path: Path) -> None:
    got = read(
        tmp_path, rope_scaling={"type": "linear", "factor": 2}, rope_parameters={"rope_type": "linear", "factor": 2.0}
    )
    assert got.rope == RopeConfig(1e4, "linear", 2.0)


def test_llama3(tmp_path: Path) -> None:
    expected = RopeConfig(1e4, "llama3", 8.0, 1.0, 4.0, 64)
    assert read(tmp_path, rope_scaling={"rope_type": "llama3", **LLAMA3}).rope == expected
    outside = read(tmp_path, rope_scaling={"rope_type": "llama3", **LLAMA3}, original_max_position_embeddings=32)
    assert outside.rope.original_max_position == 32  # wins over the one inside
    assert outside.sources["rope.original_max_position"] == "config.json: original_max_position_embeddings"


def test_yarn(tmp_path: Path) -> None:
    def yarn(**values: object) -> RopeConfig:
        return read(tmp_path, "qwen2", rope_scaling={"type": "yarn", "factor": 4, **values}).rope

    plain = RopeConfig(1e4, "yarn", 4.0, original_max_position=128)
    assert yarn() == plain  # max_position_embeddings
    assert yarn(original_max_position_embeddings=64).original_max_position == 64
    assert yarn(factor=None, original_max_position_embeddings=32).factor == 4.0  # 128 / 32
    assert yarn(attention_factor=1.0).attention_factor == 1.0
    assert yarn(attention_factor=None) == plain
    assert yarn(beta_fast=0, beta_slow=0) == plain  # falsy values take the defaults
    assert yarn(beta_fast=16, beta_slow=2).beta_fast == 16.0
    assert yarn(beta_fast=16, beta_slow=2).beta_slow == 2.0
    assert yarn(mscale=1, mscale_all_dim=0.5).mscale == 1.0
    assert yarn(mscale=1, mscale_all_dim=0.5).mscale_all_dim == 0.5
    assert yarn(mscale=1).mscale_all_dim == 0.0
    assert yarn(truncate=False).truncate is False


@pytest.mark.parametrize("magnitude", [0, -1.0, "1"])
def test_yarn_with_a_wrong_attention_factor(tmp_path: Path, magnitude: object) -> None:
    with pytest.raises(ConfigError, match="'attention_factor': expected a positive number"):
        read(tmp_path, rope_scaling={"type": "yarn", "factor": 4, "attention_factor": magnitude})


def test_keys_that_mean_nothing_are_warned_about(tmp_path: Path) -> None:
    with pytest.warns(LoadWarning, match="rope_scaling: keys that mean nothing here are ignored: beta_fast, new"):
        rope = read(tmp_path, rope_scaling={"type": "linear", "factor": 2, "beta_fast": 16, "new": 1}).rope
    assert rope == RopeConfig(1e4, "linear", 2.0)
    with pytest.warns(LoadWarning, match="are ignored: factor"):
        assert read(tmp_path, rope_scaling={"type": "default", "factor": 2}).rope == RopeConfig(1e4)
    assert (
        read(tmp_path, rope_scaling={"type": "default", "factor": 1.0, "partial_rotary_factor": 1.0}).rope.factor == 1.0
    )


def test_multimodal_rope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="mrope_section"):
        read(tmp_path, "qwen2", rope_scaling={"type": "default", "mrope_section": [1, 1, 2]})


def test_gemma_before_and_after_transformers_5(tmp_path: Path) -> None:
    def gemma(**changes: object) -> ModelConfig:
        return read(tmp_path, "gemma3_text", num_hidden_layers=6, **changes)

    linear: dict[str, object] = {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6}
    old = gemma(rope_theta=2e6, rope_local_base_freq=2e4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    new = gemma(
        rope_parameters={"full_attention": linear, "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}
    )
    assert old == new
    assert old.rope == RopeConfig(2e6, "linear", 8.0)
    assert old.rope_local_theta == 2e4
    assert new.sources["rope_local_theta"] == "config.json: rope_parameters: rope_theta"
    flat = gemma(rope_parameters=linear, rope_local_base_freq=2e4)  # transformers 5.24 ignores it, by mistake
    assert flat == old
    assert gemma(rope_scaling={"type": "linear", "factor": 8.0}).rope == RopeConfig(1e6, "linear", 8.0)
    assert gemma(rope_parameters={"full_attention": None}).rope == RopeConfig(1e6)
    assert gemma(rope_parameters={"sliding_attention": {}}).rope_local_theta == 1e4


def test_gemma_with_two_local_bases(tmp_path: Path) -> None:
    nested = {"sliding_attention": {"rope_theta": 3e4}}
    with pytest.raises(
        ConfigError, match=r"'rope_theta' is 30000\.0, but beside it 'rope_local_base_freq' is 20000\.0"
    ):
        read(tmp_path, "gemma3_text", rope_parameters=nested, rope_local_base_freq=2e4)


def test_other_families_have_no_local_base(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="rope_local_base_freq"):
        read(tmp_path, rope_local_base_freq=2e4)
