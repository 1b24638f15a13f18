"""Generation on a model whose next token is known: choices, stops, room, and text that comes out whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_tokenizers import byte_level, byte_level_metadata

from rml.config import ModelConfig, RopeConfig
from rml.errors import InvalidArgument
from rml.generate import BadLogits, Generation, Logits, Sampler, Sampling, argmax, candidates
from rml.kv_cache import CacheType, KvCache
from rml.tokenizer_files import from_gguf

EOS = 129  # of the byte-level toy

CONFIG = ModelConfig(
    model_type="llama",
    vocab_size=300,
    hidden_size=32,
    intermediate_size=32,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    max_position_embeddings=64,
    rope=RopeConfig(theta=10000.0),
)


class ScriptedModel:
    """Says `script` after the prompt, one token after the other, with a margin of 1; counts what it is fed."""

    def __init__(self, script: Sequence[int], **config: Any) -> None:
        self.config = dataclasses.replace(CONFIG, **config)
        self.script = list(script)
        self.calls: list[list[int]] = []

    def new_cache(self, capacity: int, dtype: CacheType = "f32") -> KvCache:
        return KvCache(self.config, capacity, dtype)

    def forward(
        self, tokens: Sequence[int], cache: KvCache, all_logits: bool = False, out: Logits | None = None
    ) -> Logits:
        cache.extend(len(tokens))
        self.calls.append(list(tokens))
        assert out is not None
        out[:] = 0.0
        out[self.script[max(len(self.calls) - 1, 0) % len(self.script)]] = 1.0
        return out


def ids_of(text: str) -> list[int]:
    return byte_level().encode(text)


def run(script: Sequence[int], prompt: str | Sequence[int] = "ab", **options: Any) -> tuple[Generation, list[str]]:
    generation = Generation(ScriptedModel(script), byte_level(), prompt, **options)
    return generation, list(generation)


def test_text_comes_out_piece_by_piece_until_an_end_token() -> None:
    generation, pieces = run([*ids_of("ab aba"), EOS, *ids_of("never")])
    assert pieces == ["ab", " ab", "a"]
    assert (generation.text, generation.stopped_by) == ("ab aba", "eos")
    assert EOS not in generation.tokens


@pytest.mark.parametrize("where", ["config", "tokenizer"])
def test_any_end_token_of_config_or_tokenizer_stops(where: str) -> None:
    metadata = byte_level_metadata(eos_token_id=None)
    if where == "tokenizer":
        metadata["tokenizer.ggml.eot_token_id"] = 5
    model = ScriptedModel([7, 5, 7], eos_ids=frozenset({4, 5} if where == "config" else {4}))
    generation = Generation(model, from_gguf(metadata, "toy.gguf"), "ab")
    assert len(list(generation)) == 1
    assert generation.stopped_by == "eos"


def test_end_tokens_can_be_ignored_and_show_no_text() -> None:
    generation, pieces = run([EOS, *ids_of("a")], ignore_eos=True, max_tokens=4)
    assert generation.tokens == [EOS, *ids_of("a")] * 2
    assert pieces == ["a", "a"]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_max_tokens(limit: int) -> None:
    generation, _ = run(ids_of("a"), max_tokens=limit)
    assert (len(generation.tokens), generation.stopped_by) == (limit, "max_tokens")


def test_the_last_token_chosen_is_not_run() -> None:
    model = ScriptedModel(ids_of("a"))
    list(Generation(model, byte_level(), "abab", max_tokens=3))
    assert model.calls == [ids_of("abab"), ids_of("a"), ids_of("a")]


def test_characters_of_several_tokens_are_held_back_until_whole() -> None:
    _, pieces = run([*ids_of("😀"), *ids_of("a"), EOS])
    assert pieces == ["😀", "a"]


def test_an_unfinished_character_at_the_end_is_shown_as_such() -> None:
    generation, pieces = run([*ids_of("a😀")[:-1], EOS])
    assert pieces == ["a", "\ufffd"]
    assert generation.text == "a\ufffd"


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_is_streamed_whole(text: str) -> None:
    generation, pieces = run([*ids_of(text), EOS], max_tokens=200)
    if len(ids_of(text)) < CONFIG.max_position_embeddings:
        assert "".join(pieces) == generation.text == text


def test_a_prompt_of_ids_is_taken_as_it_stands() -> None:
    model = ScriptedModel([EOS])
    list(Generation(model, byte_level(), [128, 3, EOS]))
    assert model.calls == [[128, 3, EOS]]


def test_the_context_is_used_up_to_its_last_position() -> None:
    model = ScriptedModel(ids_of("a"), max_position_embeddings=10)
    generation = Generation(model, byte_level(), [1] * 4, max_tokens=100)
    list(generation)
    assert generation.stopped_by == "context"
    assert sum(map(len, model.calls)) == 10
    assert len(generation.tokens) == 7, "the last one is chosen from the last position's logits"


def test_a_prompt_longer_than_the_context_is_refused_before_anything_runs() -> None:
    model = ScriptedModel([1], max_position_embeddings=10)
    with pytest.raises(InvalidArgument, match="a prompt of 11 tokens after 0 in the cache: the context holds 10"):
        Generation(model, byte_level(), [1] * 11)
    assert model.calls == []


def test_a_cache_is_continued() -> None:
    model = ScriptedModel(ids_of("a"))
    cache = model.new_cache(20)
    list(Generation(model, byte_level(), [1] * 5, max_tokens=3, cache=cache))
    assert cache.size == 7
    generation = Generation(model, byte_level(), [1] * 5, max_tokens=30, cache=cache)
    list(generation)
    assert (cache.size, generation.stopped_by) == (20, "context")


def test_a_watched_prompt_runs_in_pieces() -> None:
    model = ScriptedModel([EOS], max_position_embeddings=1000)
    seen: list[int] = []
    list(Generation(model, byte_level(), [1] * 300, on_prefill=seen.append))
    assert seen == [len(call) for call in model.calls] == [128, 128, 44]


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ("", {}, "the prompt is empty"),
        ("a", {"max_tokens": -1}, "max_tokens is -1"),
    ],
)
def test_mistakes_are_named(prompt: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Generation(ScriptedModel([1]), byte_level(), prompt, **options)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"seed": -3},
    ],
)
def test_sampling_values_out_of_range_are_named(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(values))} is "):
        Sampling(**values)


def test_a_model_with_more_rows_than_the_tokenizer_has_tokens() -> None:
    generation, pieces = run([299, EOS])
    assert (generation.tokens, pieces) == ([299], [])


# ---- choosing --------------------------------------------------------------------------------------------------------


def test_argmax_takes_the_lowest_of_equals() -> None:
    assert argmax(np.array([1.0, 3.0, 3.0, -np.inf])) == 1


@pytest.mark.parametrize("bad", [[0.0, np.nan, 5.0], [np.inf, 0.0], [-np.inf, -np.inf], [np.nan]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(bad: list[float], temperature: float) -> None:
    with pytest.raises(BadLogits, match="not finite"):
        Sampler(Sampling(temperature, seed=0)).choose(np.array(bad))


LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15]))


def test_candidates_are_filtered_in_order() -> None:
    def of(**values: Any) -> list[tuple[int, float]]:
        ids, probabilities = candidates(LOGITS, Sampling(**{"temperature": 1.0, **values}))
        return [(int(token), round(float(p), 6)) for token, p in zip(ids, probabilities, strict=True)]

    assert of() == [(1, 0.4), (3, 0.3), (4, 0.15), (0, 0.1), (2, 0.05)]
    assert of(top_k=2) == [(1, round(4 / 7, 6)), (3, round(3 / 7, 6))]
    assert [token for token, _ in of(top_p=0.7)] == [1, 3]
    assert [token for token, _ in of(top_p=0.71)] == [1, 3, 4]
    assert of(top_k=3, top_p=0.4) == [(1, 1.0)]
    assert of(temperature=0.5, top_k=2) == [(1, 0.64), (3, 0.36)]


def test_equal_candidates_come_by_rising_id() -> None:
    ids, _ = candidates(np.zeros(6), Sampling(1.0, top_k=3))
    assert ids.tolist() == [0, 1, 2]


def test_a_seed_fixes_the_draws() -> None:
    draws = [[Sampler(Sampling(1.0, seed=seed)).choose(LOGITS) for seed in range(50)] for _ in range(2)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 1


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(Sampling(1.0, seed=3))
    counts = np.bincount([sampler.choose(LOGITS) for _ in range(20_000)], minlength=5)
    assert np.abs(counts / 20_000 - np.exp(LOGITS)).max() < 0.015  # four standard deviations


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=30),
    st.floats(0.01, 5),
    st.integers(0, 40),
    st.floats(0.01, 1),
    st.integers(0, 1000),
)
def test_only_candidates_are_drawn(values: list[float], temperature: float, k: int, p: float, seed: int) -> None:
    logits = np.array(values)
    sampling = Sampling(temperature, k, p, seed)
    ids, probabilities = candidates(logits, sampling)
    assert Sampler(sampling).choose(logits) in ids
    assert abs(probabilities.sum() - 1) < 1e-12
    assert len(ids) <= (k or len(values))
    assert ids[0] == argmax(logits)
