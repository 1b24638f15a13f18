"""Planted faults: each in copies of toys of both formats, each named at the step where it is, with the right hint.

A is the healthy toy, in the same format and in the other one; B is the damaged copy. Faults that no file can express
are planted in an implementation: a run in which one step's values are replaced, dumped to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import case
from planted import FORMATS, IDS, Copy, Floats, side, text_of

from rml.verify_bisect import bisect
from rml.verify_taps import deinterleave, interleave


@dataclass(frozen=True)
class Fault:
    """What is done to a copy of a toy, where it must be found, and words of its hints or evidence."""

    name: str
    toy: str
    damage: Callable[[Copy], object]
    step: str
    words: tuple[str, ...]
    files: tuple[str, ...] = ()  # words of the evidence from the files, if A is a file too


def keys(hf: Mapping[str, Any], gguf: Mapping[str, Any]) -> Callable[[Copy], object]:
    """Another value in the config of either format."""
    return lambda copy: copy.set(**(gguf if copy.is_gguf else hf))


def tensor(name: str, change: Callable[[Floats], Floats]) -> Callable[[Copy], object]:
    return lambda copy: copy.change(name, change)


def exchange(
    first: str, second: str, experts: tuple[int | None, int | None] = (None, None)
) -> Callable[[Copy], object]:
    """Two tensors in each other's places."""

    def damage(copy: Copy) -> None:
        a, b = copy.read(first, experts[0]), copy.read(second, experts[1])
        copy.write(first, b, experts[0])
        copy.write(second, a, experts[1])

    return damage


def unpermuted(copy: Copy) -> None:
    """q and k as the other format stores them."""
    order = deinterleave if copy.is_gguf else interleave
    for name in ("attn_q", "attn_k"):
        copy.change(f"blk.0.{name}.weight", lambda w: order(np.ascontiguousarray(w.T), copy.config.head_dim).T)


def swap_heads(copy: Copy) -> None:
    """Query heads 0 and 3 of layer 1."""
    d = copy.config.head_dim
    rows = np.arange(4 * d).reshape(4, d)[[3, 1, 2, 0]].ravel()
    copy.change("blk.1.attn_q.weight", lambda w: w[rows])


def without_one(copy: Copy) -> None:
    """A Gemma norm that scales by w: HF adds 1 to what it reads, GGUF holds 1 + w."""
    copy.change("blk.2.attn_norm.weight", lambda w: w - 1.0)


def swap_rows(first: int, second: int) -> Callable[[Floats], Floats]:
    def change(w: Floats) -> Floats:
        w = w.copy()
        w[[first, second]] = w[[second, first]]
        return w

    return change


def one_infinite(w: Floats) -> Floats:
    """Column 6 of row 1."""
    w = w.copy()
    w[1, 6] = np.inf
    return w


def other_experts(copy: Copy) -> None:
    """Experts 0 and 2 of layer 0 in each other's places."""
    for part in ("gate", "up", "down"):
        name = f"blk.0.ffn_{part}_exps.weight"
        exchange(name, name, (0, 2))(copy)


FAULTS = [
    Fault("permutation left out", "llama", unpermuted, "blk.0.q", ("other pairing order",)),
    Fault("permuted heads", "llama", swap_heads, "blk.1.q", ("head 0 of B is head 3 of A, head 3 of B is head 0",)),
    Fault(
        "window one too long",
        "mistral",
        keys({"sliding_window": 12}, {"attention__sliding_window": 12}),
        "blk.0.attn_out",
        ("positions below 11 agree", "a window of 11 keys (windows: A 11, B 12)"),
        ("sliding_window is 11 in A",),
    ),
    Fault(
        "window one too short",
        "gemma3",
        keys({"sliding_window": 10}, {"attention__sliding_window": 10}),
        "blk.0.attn_out",
        ("a window of 10 keys (windows: A 11, B 10)",),
    ),
    Fault("norm without 1 +", "gemma3", without_one, "blk.2.attn_norm", ("scales by w on B's side", "1 is missing")),
    Fault(
        "norm with 2 +",
        "gemma3-scale",
        tensor("output_norm.weight", lambda w: w + 1.0),
        "final_norm",
        ("2 + w on B's side",),
        ("output_norm.weight of B is A's + 1",),
    ),
    Fault(
        "gate and up exchanged",
        "llama",
        exchange("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"),
        "blk.1.ffn_out",
        ("gate, up and down matrices and which is which",),
        ("blk.1.ffn_gate.weight of B is blk.1.ffn_up.weight of A", "blk.1.ffn_up.weight of B is blk.1.ffn_gate"),
    ),
    Fault(
        "embedding scale left out",
        "gemma3-scale",
        tensor("token_embd.weight", lambda w: w / 4.0),
        "embed",
        ("B is 0.25 times A everywhere", "the embedding, or its scale"),
        ("token_embd.weight of B is 0.25 times A's",),
    ),
    Fault(
        "attention scale",
        "gemma3-scale",
        keys({"query_pre_attn_scalar": 16}, {"attention__scale": 0.25}),
        "blk.0.attn_out",
        ("position 0, which has one key and no choice, agrees",),
        ("attention_scale is 0.125 in A",),
    ),
    Fault(
        "experts in another order",
        "mixtral",
        other_experts,
        "blk.0.ffn_out",
        ("only tokens that chose expert 0 or 2",),
        ("blk.0.ffn_gate_exps.weight[0] of B is blk.0.ffn_gate_exps.weight[2] of A",),
    ),
    Fault(
        "router rows exchanged",
        "mixtral",
        tensor("blk.1.ffn_gate_inp.weight", swap_rows(1, 3)),
        "blk.1.router_probs",
        ("the router's matrix",),
        ("in 2 of 4 rows",),
    ),
    Fault(
        "experts' weights not normalised",
        "olmoe-renormalised",
        keys({"norm_topk_prob": False}, {"expert_weights_norm": False}),
        "blk.0.ffn_out",
        ("a factor of its own for every token", "the chosen experts' weights"),
        ("normalize_expert_weights is True in A",),
    ),
    Fault(
        "eps",
        "llama",
        keys({"rms_norm_eps": 1e-5}, {"attention__layer_norm_rms_epsilon": 1e-5}),
        "blk.0.attn_norm",
        ("a factor of its own for every token", "eps"),
        ("rms_norm_eps is 1e-06 in A", "1e-05 in B"),
    ),
    Fault(
        "theta",
        "llama-tied",
        keys({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, {"rope__freq_base": 5e5}),
        "blk.0.q_rope",
        ("rotary angles: pairs 1, 2", "position 0 agrees and those above it do not"),
        ("rope.theta is 10000 in A",),
    ),
    Fault(
        "theta of the sliding layers",
        "gemma3-softcap",
        keys({"rope_local_base_freq": 7000.0}, {"rope__freq_base_swa": 7000.0}),
        "blk.0.q_rope",
        ("rotary angles",),
        ("rope_local_theta is 5000 in A",),
    ),
    Fault(
        "scaling of positions",
        "gemma3-softcap",
        keys({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, {"rope__scaling__factor": 4.0}),
        "blk.1.q_rope",
        ("rotary angles: all pairs",),
        ("rope.factor is 8 in A",),
    ),
    Fault(
        "bias left out",
        "qwen2",
        tensor("blk.1.attn_v.bias", lambda b: b * 0.0),
        "blk.1.v",
        ("the same at every token: a bias",),
        ("blk.1.attn_v.bias is all 0 in B",),
    ),
    Fault(
        "bias of the output projection",
        "llama-bias",
        tensor("blk.0.attn_output.bias", lambda b: b * 0.0),
        "blk.0.o_proj",
        ("the same at every token: a bias",),
    ),
    Fault(
        "QK-norm",
        "qwen3",
        tensor("blk.1.attn_k_norm.weight", lambda w: w * 2.0),
        "blk.1.k_rope",
        ("B is 2 times A everywhere", "QK-norm"),
        ("blk.1.attn_k_norm.weight of B is 2 times A's",),
    ),
    Fault(
        "norm after attention",
        "gemma3",
        tensor("blk.3.post_attention_norm.weight", lambda w: w + 0.5),
        "blk.3.residual",
        ("the post-attention norm",),
        ("blk.3.post_attention_norm.weight of B is A's + 0.5",),
    ),
    Fault(
        "rows of the output matrix",
        "llama",
        tensor("output.weight", swap_rows(5, 9)),
        "logits",
        ("only tokens 5, 9 of 64 differ",),
    ),
    Fault(
        "soft cap left out",
        "gemma3-softcap",
        keys({"final_logit_softcapping": None}, {"final_logit_softcapping": 1e9}),
        "logits",
        ("a soft cap of 3 on the logits is left out on B's side",),
        ("final_logit_softcapping is 3 in A",),
    ),
    Fault(
        "a value that is not finite",
        "llama",
        tensor("blk.1.attn_output.weight", one_infinite),
        "blk.1.o_proj",
        ("values of B are not finite, the first at position 0, channel 1",),
        ("blk.1.attn_output.weight: 1 value of B is not finite",),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_a_file_is_named(fault: Fault, form: str, tmp_path: Path) -> None:
    damaged = Copy(f"{fault.toy}/{FORMATS[form]}", tmp_path)
    fault.damage(damaged)
    for other in FORMATS.values():
        found = bisect(side(case(f"{fault.toy}/{other}").model), side(damaged.path), IDS)
        assert found.first is not None, "nothing found"
        assert found.first.step.name == fault.step, text_of(found)
        assert found.fed == "B"
        for words in (*fault.words, *fault.files):
            assert words in text_of(found)
