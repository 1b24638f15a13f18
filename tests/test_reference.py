"""The float64 reference: its arithmetic, its parts against plain definitions, and its goldens from both formats."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import REFERENCE_ORDERED, SAME_MODEL

import reference
from reference import rope
from reference.config import NotExpressible, Rope
from reference.hf_config import read
from reference.maths import Blas, Ordered, log, power

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
CASES: list[dict[str, str]] = json.loads((FIXTURES / "MANIFEST.json").read_text(encoding="utf-8"))["cases"]


def golden(name: str) -> tuple[list[int], Any]:
    """Prompt and logits (n, V) of a logits file."""
    data = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    return data["tokens"], np.array(data["logits"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["model"])
def test_goldens(case: dict[str, str]) -> None:
    tokens, logits = golden(case["logits"])
    gap = np.abs(reference.load(FIXTURES / case["model"]).forward(tokens) - logits)
    made_from = json.loads((FIXTURES / case["logits"]).read_text(encoding="utf-8"))["model"]
    limit = REFERENCE_ORDERED if made_from == case["model"] else SAME_MODEL
    assert gap.max() < limit, f"position {gap.max(axis=1).argmax()}"


def test_ordered_arithmetic_gives_the_golden_digits() -> None:
    tokens, logits = golden("gemma3/logits.json")
    assert np.array_equal(reference.load(FIXTURES / "gemma3/hf", ordered=True).forward(tokens[:9]), logits[:9])


# ---------------------------------------------------------------------------------------------- arithmetic


def test_ordered_functions_are_right_to_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-40, 40, 4001), np.linspace(-700, 0, 999), [-746.0, -np.inf, 0.0]])
    ordered = Ordered()
    assert np.abs(ordered.exp(x) - np.exp(x)).max() <= 2 * np.spacing(np.exp(40.0))
    near = np.exp(x[x > -700])
    assert np.max(np.abs(ordered.exp(x[x > -700]) - near) / np.spacing(near)) <= 2
    assert ordered.exp(np.array([-1000.0, -np.inf])).tolist() == [0.0, 0.0]
    angles = np.concatenate([x[:4001], [0.0, 1e-9, 12345.678, -99999.9]])
    for mine, numpys in ((ordered.sin, np.sin), (ordered.cos, np.cos)):
        assert np.abs(mine(angles) - numpys(angles)).max() <= 3e-16
    assert np.abs(ordered.tanh(x) - np.tanh(x)).max() <= 3e-16


def test_ordered_sums_go_from_left_to_right() -> None:
    x = np.array([[1.0, 1e16, -1e16, 1.0]])
    assert Ordered().total(x).tolist() == [((1.0 + 1e16) - 1e16) + 1.0]
    assert Ordered().product(x, np.array([[1.0, 1.0, 1.0, 3.0]])).tolist() == [[((1.0 + 1e16) - 1e16) + 3.0]]


def test_powers_and_logarithms_are_rounded_once() -> None:
    assert power(10000.0, Fraction(1, 2)) == 100.0
    assert power(500000.0, Fraction(2 * 37, 128)) == pytest.approx(500000.0 ** (74 / 128), rel=3e-16)
    assert log(32.0) == 5 * 0.6931471805599453


# ---------------------------------------------------------------------------------------------- rotation


def test_llama_31_frequencies() -> None:
    """The worked example of Llama 3.1 8B: D 128, base 500000, factor 8, factors 1 and 4, original context 8192."""
    scaling = Rope(500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    plain, scaled = rope.frequencies(Rope(500000.0), 128), rope.frequencies(scaling, 128)
    wavelength = 2 * math.pi / plain
    ratio = scaled / plain
    assert np.all(ratio[wavelength < 2048] == 1.0)
    assert ratio[wavelength > 8192] == pytest.approx(1 / 8, rel=1e-15)
    assert ((wavelength >= 2048) & (wavelength <= 8192)).sum() == 6
    blended = rope.llama3_frequency(2 * math.pi / 4096.0, scaling)
    assert blended == pytest.approx(2 * math.pi / 4096.0 * (2 / 3 / 8 + 1 / 3), rel=1e-15)


def test_yarn_ramp() -> None:
    """Qwen's opt-in: D 128, base 1e6, factor 4, original context 32768: dimensions 23.6 and 39.6 bound the ramp."""
    plain = rope.frequencies(Rope(1e6), 128)
    ratio = rope.frequencies(Rope(1e6, "yarn", 4.0, original_max=32768), 128) / plain
    assert ratio[:24] == pytest.approx(1.0)
    assert ratio[40:] == pytest.approx(0.25)
    assert ratio[30] == pytest.approx(1 - 0.75 * (30 - 23) / (40 - 23))
    exact = rope.frequencies(Rope(1e6, "yarn", 4.0, original_max=32768, truncate=False), 128) / plain
    low = 128 * math.log(32768 / (32 * 2 * math.pi)) / (2 * math.log(1e6))
    high = 128 * math.log(32768 / (2 * math.pi)) / (2 * math.log(1e6))
    assert exact[30] == pytest.approx(1 - 0.75 * (30 - low) / (high - low))


@pytest.mark.parametrize(
    ("options", "magnitude"),
    [
        ({}, 0.1 * math.log(4) + 1),
        ({"attention_scale": 0.5}, 0.05 * math.log(4) + 0.5),
        ({"attention_factor": 1.7}, 1.7),
        ({"mscale": 0.5, "mscale_all_dim": 2.0}, (0.05 * math.log(4) + 1) / (0.2 * math.log(4) + 1)),
        ({"mscale": 0.5}, 0.1 * math.log(4) + 1),
    ],
)
def test_yarn_magnitude(options: dict[str, float], magnitude: float) -> None:
    scaling = Rope(1e4, "yarn", 4.0, original_max=64, **options)  # type: ignore[arg-type]  # floats only, as above
    cos, sin = rope.tables(scaling, 16, 3, Blas())
    assert np.hypot(cos, sin) == pytest.approx(magnitude, rel=1e-15)


def test_rotation_turns_pairs_by_position_times_frequency() -> None:
    x = np.zeros((3, 1, 4))
    x[:, 0, 1] = 1.0  # the second pair is dimensions 1 and 3
    turned = rope.rotate(x, *rope.tables(Rope(1e4), 4, 3, Blas()))
    assert turned[2, 0].tolist() == [0.0, math.cos(0.02), 0.0, math.sin(0.02)]


# ---------------------------------------------------------------------------------------------- the forward pass


def changed_positions(name: str, at: int) -> list[int]:
    """Positions whose logits change when the token at one position does."""
    tokens, _ = golden(f"{name}/logits.json")
    model = reference.load(FIXTURES / name / "hf")
    other = [*tokens[:at], (tokens[at] + 7) % 64, *tokens[at + 1 :]]
    return np.nonzero(np.any(model.forward(tokens) != model.forward(other), axis=1))[0].tolist()


def test_causal() -> None:
    assert changed_positions("llama", 5) == list(range(5, 41))


def test_two_layers_with_a_window_of_11_look_back_20() -> None:
    assert changed_positions("mistral", 5) == list(range(5, 5 + 2 * (11 - 1) + 1))


def test_a_global_layer_looks_back_to_the_beginning() -> None:
    assert changed_positions("gemma3", 0) == list(range(41))


def test_taps_are_the_values_on_the_way() -> None:
    tokens, _ = golden("qwen3_moe/logits.json")
    model = reference.load(FIXTURES / "qwen3_moe/model.gguf")
    taps: dict[str, Any] = {}
    logits = model.forward(tokens, taps)
    assert list(taps)[:4] == ["embed", "blk.0.attn_norm", "blk.0.q", "blk.0.k"]
    assert list(taps)[-3:] == ["blk.1.output", "final_norm", "logits"]
    assert taps["logits"] is logits
    shapes = {name: taps["blk.0." + name].shape for name in ("q", "k_rope", "attn_out", "o_proj", "router_choice")}
    assert shapes == {
        "q": (41, 64),
        "k_rope": (41, 32),
        "attn_out": (41, 64),
        "o_proj": (41, 32),
        "router_choice": (41, 3),
    }
    assert np.array_equal(taps["embed"] + taps["blk.0.o_proj"], taps["blk.0.residual"])
    assert np.array_equal(taps["blk.0.residual"] + taps["blk.0.ffn_out"], taps["blk.0.output"])
    assert np.allclose(taps["blk.1.router_probs"].sum(axis=1), 1.0, rtol=0, atol=1e-15)
    assert np.array_equal(taps["blk.0.router_choice"][:, 0], taps["blk.0.router_probs"].argmax(axis=1))
    assert np.array_equal(taps["blk.0.v"][0], taps["blk.0.attn_out"][0].reshape(2, 2, 16)[:, 0].reshape(-1))


def test_taps_do_not_depend_on_the_format() -> None:
    """Rows of q and k are in Hugging Face's order, also from a GGUF file that stores them permuted."""
    tokens, _ = golden("llama-yarn/logits.json")
    ours: list[dict[str, Any]] = [{}, {}]
    for taps, model in zip(ours, ("hf", "model.gguf"), strict=True):
        reference.load(FIXTURES / "llama-yarn" / model).forward(tokens, taps)
    for name, value in ours[0].items():
        assert np.abs(value - ours[1][name]).max() < REFERENCE_ORDERED, name


def test_equal_router_scores_choose_the_lower_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = reference.load(FIXTURES / "mixtral/hf")
    monkeypatch.setattr(model, "_softmax", lambda scores: np.full_like(scores, 1.0 / scores.shape[1]))
    taps: dict[str, Any] = {}
    model.forward([1, 2, 3], taps)
    assert taps["blk.0.router_choice"].tolist() == [[0.0, 1.0]] * 3


def test_matrices_are_widened_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, logits = golden("llama-blocks/logits.json")
    model = reference.load(FIXTURES / "llama-blocks/model.gguf")
    monkeypatch.setattr("reference.weights.CHUNK", 5 * 32)
    matrix = model.weights.matrix("blk.0.attn_q.weight", 64, 32)
    assert [rows.stop - rows.start for rows, _ in matrix.chunks()] == [5] * 12 + [4]
    assert np.abs(model.forward(tokens) - logits).max() < REFERENCE_ORDERED


@pytest.mark.parametrize("name", ["llama-blocks", "llama-k"])
def test_gguf_dequantiser_as_the_alternative(name: str) -> None:
    """gguf's float32 holds every product; only a scale and a minimum of very unlike sizes would round."""
    tokens, logits = golden(f"{name}/logits.json")
    model = reference.load(FIXTURES / name / "model.gguf", exact=False)
    assert np.abs(model.forward(tokens) - logits).max() < REFERENCE_ORDERED


def test_greedy() -> None:
    model = reference.load(FIXTURES / "qwen2/hf")
    tokens, _ = golden("qwen2/logits.json")
    continuation = model.greedy(tokens[:6], 5)
    logits = model.forward([*tokens[:6], *continuation])
    assert logits[5:10].argmax(axis=1).tolist() == continuation
    some, every = model.logits(model.states(tokens)[3:5]), model.forward(tokens)[3:5]
    assert np.abs(some - every).max() < REFERENCE_ORDERED  # BLAS may add two rows in another order than thirty


def test_logits_of_some_positions_are_rows_of_all() -> None:
    model = reference.load(FIXTURES / "qwen2/hf", ordered=True)
    tokens = golden("qwen2/logits.json")[0][:6]
    assert np.array_equal(model.logits(model.states(tokens)[3:5]), model.forward(tokens)[3:5])


@pytest.mark.parametrize("tokens", [[], [64], [-1], [[1, 2]]])
def test_bad_tokens(tokens: Any) -> None:
    with pytest.raises(ValueError, match="token ids from 0 to 63"):
        reference.load(FIXTURES / "llama/hf").forward(tokens)


# ---------------------------------------------------------------------------------------------- config.json


def config(family: str, **changes: Any) -> dict[str, Any]:
    """The keys that every family needs."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    return {"model_type": family, **sizes, **heads, **changes}


@pytest.mark.parametrize(
    ("family", "head_dim", "eps", "theta", "window"),
    [
        ("llama", 8, 1e-6, 1e4, 0),
        ("mistral", 8, 1e-6, 1e4, 4096),
        ("mixtral", 8, 1e-5, 1e6, 0),
        ("qwen2", 8, 1e-6, 1e4, 0),
        ("qwen3", 128, 1e-6, 1e4, 0),
        ("qwen3_moe", 8, 1e-6, 1e4, 0),
        ("gemma3_text", 256, 1e-6, 1e6, 4096),
        ("olmoe", 8, 1e-5, 1e4, 0),
    ],
)
def test_family_defaults(family: str, head_dim: int, eps: float, theta: float, window: int) -> None:
    recipe = read(config(family))
    assert (recipe.head_dim, recipe.eps, recipe.rope.theta, recipe.window) == (head_dim, eps, theta, window)
    assert recipe.tied == (family == "gemma3_text")
    assert (recipe.experts, recipe.experts_per_token) == {
        "mixtral": (8, 2),
        "qwen3_moe": (128, 8),
        "olmoe": (64, 8),
    }.get(family, (0, 0))


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("llama", {"mlp_bias": True}, "mlp_bias"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "dense layers"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "bidirectional"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3_text", {"sliding_window": None}, "window"),
        ("llama", {"hidden_act": "gelu"}, "gelu"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("llama", {"num_key_value_heads": 3}, "4 heads over 3"),
        ("phi3", {}, "phi3"),
    ],
)
def test_what_it_does_not_compute_is_refused(family: str, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(NotExpressible, match=word):
        read(config(family, **changes))


def test_rope_keys_in_both_spellings() -> None:
    old = read(config("llama", rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2}))
    new = read(config("llama", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}))
    assert old.rope == new.rope == Rope(5e5, "linear", 2.0)
    both = config("llama", rope_scaling={"rope_type": "linear", "factor": 3.0}, rope_parameters={"rope_theta": 7.0})
    assert read(both).rope == Rope(1e4, "linear", 3.0)  # rope_scaling replaces the other dictionary as a whole


def test_original_context_at_top_level_wins() -> None:
    scaling = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 128}
    recipe = read(config("llama", rope_scaling=scaling, original_max_position_embeddings=64))
    assert (recipe.rope.original_max, recipe.rope.factor) == (64, 4.0)


def test_gemma_patterns() -> None:
    assert read(config("gemma3_text", num_hidden_layers=7)).sliding == (True,) * 5 + (False, True)
    assert read(config("gemma3_text", sliding_window_pattern=1)).sliding == (False, False)
    flat = read(config("gemma3_text", rope_parameters={"rope_type": "default", "rope_theta": 5.0}))
    assert (flat.rope.theta, flat.local_rope) == (5.0, Rope(1e4))
