"""Faults that no file can express, planted in an implementation: a run in which one step's values are replaced.

The run is dumped to a file, and bisected against the engine, whichever side it is on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import case
from planted import FORMATS, IDS, Floats, side, text_of

import reference
import rml
from reference.rope import tables
from rml.verify_bisect import bisect
from rml.verify_sides import DumpSide
from rml.verify_taps import from_halves, to_halves

Wrong = Callable[[dict[str, Floats], Path], Floats]


def heads_of(values: Floats, dim: int) -> Floats:
    return values.reshape(len(values), -1, dim)


def attention(
    seen: dict[str, Floats], path: Path, key_head: Callable[[int, int, int], int], causal: bool = True
) -> Floats:
    """Attention of layer 0 in plain numpy; key_head(query head, heads, key heads)."""
    c = reference.load(path).config
    q, k, v = (heads_of(seen[f"blk.0.{name}"], c.head_dim) for name in ("q_rope", "k_rope", "v"))
    hidden = np.triu(np.ones((len(q), len(q)), bool), 1) & causal
    out = np.empty_like(q)
    for h in range(c.heads):
        shared = key_head(h, c.heads, c.kv_heads)
        scores = np.where(hidden, -np.inf, q[:, h] @ k[:, shared].T * c.attention_scale)
        e = np.exp(scores - scores.max(1, keepdims=True))
        out[:, h] = e / e.sum(1, keepdims=True) @ v[:, shared]
    return out.reshape(len(q), -1)


def right_attention(seen: dict[str, Floats], path: Path) -> Floats:
    return attention(seen, path, lambda h, heads, kv: h // (heads // kv))


def wrong_grouping(seen: dict[str, Floats], path: Path) -> Floats:
    return attention(seen, path, lambda h, heads, kv: h % kv)


def no_mask(seen: dict[str, Floats], path: Path) -> Floats:
    return attention(seen, path, lambda h, heads, kv: h // (heads // kv), causal=False)


def wrong_pairing(seen: dict[str, Floats], path: Path) -> Floats:
    """Neighbours are rotated where halves are meant."""
    model = reference.load(path)
    cos, sin = (t[:, None, :] for t in tables(model.config.rope, model.config.head_dim, len(IDS), model.maths))
    q = heads_of(seen["blk.0.q"], model.config.head_dim)
    out = np.empty_like(q)
    out[..., 0::2] = q[..., 0::2] * cos - q[..., 1::2] * sin
    out[..., 1::2] = q[..., 1::2] * cos + q[..., 0::2] * sin
    return out.reshape(len(q), -1)


def from_one(seen: dict[str, Floats], path: Path) -> Floats:
    """The first token is at position 1."""
    model = reference.load(path)
    cos, sin = (t[1:, None, :] for t in tables(model.config.rope, model.config.head_dim, len(IDS) + 1, model.maths))
    a, b = np.split(heads_of(seen["blk.0.q"], model.config.head_dim), 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(len(IDS), -1)


def dumped(path: Path, step: str, wrong: Wrong, out: Path) -> DumpSide:
    """A run in which one step is computed by `wrong`, in a file."""
    model = rml.load(path, threads=1, dot="exact")
    seen: dict[str, Any] = {"tokens": np.array(IDS)}

    def tap(name: str, values: Floats) -> Floats | None:
        seen[name] = to_halves(model.config, name, values)
        if name != step:
            return None
        seen[name] = wrong(seen, path)
        return from_halves(model.config, name, seen[name])

    model.forward(IDS, model.new_cache(64, "f64"), taps=tap)
    np.savez(out, **seen)
    return DumpSide(out)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS.values())
@pytest.mark.parametrize(
    ("toy", "step", "wrong", "words"),
    [
        (
            "llama",
            "blk.0.attn_out",
            wrong_grouping,
            "query head 1 reads key head 1, not 0, query head 2 reads key head 0",
        ),
        (
            "llama",
            "blk.0.attn_out",
            no_mask,
            "only the last position agrees: the others look at tokens after them",
        ),
        (
            "llama",
            "blk.0.q_rope",
            wrong_pairing,
            "position 0 agrees and those above it do not: rotary embedding",
        ),
        ("qwen2", "blk.0.attn_out", wrong_grouping, "grouping of query heads over key heads"),
        ("qwen2", "blk.0.q_rope", from_one, "QK-norm or rotary embedding of the queries"),
    ],
)
def test_a_fault_of_an_implementation_is_named(
    toy: str, step: str, wrong: Wrong, words: str, form: str, tmp_path: Path
) -> None:
    """Whichever side the dump is on: the engine is run on the dump's activations, or the other way round."""
    healthy = case(f"{toy}/{form}").model
    broken = dumped(healthy, step, wrong, tmp_path / "x.npz")
    found = bisect(side(healthy), broken)
    assert found.first is not None
    assert found.first.step.name == step
    assert found.fed == "A"
    assert words in text_of(found)
    assert [each.name for each in found.over] == [step], "the steps after it are right on what they were given"
    assert next(each for each in found.steps if each.name == "logits").total > 0.01
    turned = bisect(DumpSide(tmp_path / "x.npz"), side(healthy))
    assert turned.first is not None
    assert (turned.first.step.name, turned.fed) == (step, "B")


def test_the_planted_implementation_is_right_but_for_the_fault(tmp_path: Path) -> None:
    path = case("llama/hf").model
    found = bisect(side(path), dumped(path, "blk.0.attn_out", right_attention, tmp_path / "x.npz"))
    assert found.first is None
    assert all(step.total < 1e-12 for step in found.steps)
