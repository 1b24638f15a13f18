"""Experts: one by one under two namings, fused by transformers 5, stacked in GGUF; and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_files import (
    Entry,
    Gguf,
    Safetensors,
    Tensor,
    load,
    numbers,
    toy_config,
    toy_gguf,
    toy_safetensors,
    u32,
    values,
    write_hf,
)

import rml
from rml.errors import BadFile, Unsupported
from rml.kernels.experts import ROWS, TOGETHER
from rml.weight_source import WeightSource, open_weights

E, M, H = 4, 8, 32
STACKS = {
    "blk.0.ffn_gate_exps.weight": (E, M, H),
    "blk.0.ffn_up_exps.weight": (E, M, H),
    "blk.0.ffn_down_exps.weight": (E, H, M),
}
SINGLES = {  # of Mixtral, and of Qwen3-MoE and OLMoE
    "mixtral": ("block_sparse_moe.gate.weight", "block_sparse_moe.experts.{}.{}.weight", ("w1", "w3", "w2")),
    "qwen3_moe": ("mlp.gate.weight", "mlp.experts.{}.{}.weight", ("gate_proj", "up_proj", "down_proj")),
}
ROUTER = numbers("blk.0.ffn_gate_inp.weight", (E, H))


def without_ffn() -> Safetensors:
    toy = toy_safetensors()
    toy.tensors = {name: entry for name, entry in toy.tensors.items() if ".mlp." not in name}
    return toy


def one_by_one(names: str) -> Safetensors:
    toy = without_ffn()
    router, pattern, roles = SINGLES[names]
    toy.tensors[f"model.layers.0.{router}"] = Entry("F32", [E, H], ROUTER.tobytes())
    for (stack, (_, rows, cols)), role in zip(STACKS.items(), roles, strict=True):
        for expert, value in enumerate(numbers(stack, (E, rows, cols))):
            toy.tensors[f"model.layers.0.{pattern.format(expert, role)}"] = Entry("F32", [rows, cols], value.tobytes())
    return toy


def fused_experts() -> Safetensors:
    toy = without_ffn()
    gate, up, down = (numbers(name, shape) for name, shape in STACKS.items())
    both = np.concatenate([gate, up], axis=1)
    toy.tensors["model.layers.0.mlp.gate.weight"] = Entry("F32", [E, H], ROUTER.tobytes())
    toy.tensors["model.layers.0.mlp.experts.gate_up_proj"] = Entry("F32", [E, 2 * M, H], both.tobytes())
    toy.tensors["model.layers.0.mlp.experts.down_proj"] = Entry("F32", [E, H, M], down.tobytes())
    return toy


def moe_config() -> dict[str, object]:
    return toy_config("mixtral", intermediate_size=M, num_local_experts=E, num_experts_per_tok=2)


def stacked(width: int = M) -> Gguf:
    toy = toy_gguf(llama__expert_count=u32(E), llama__expert_used_count=u32(2), llama__feed_forward_length=u32(width))
    for role in ("gate", "up", "down"):
        del toy.tensors[f"blk.0.ffn_{role}.weight"]
    for name, shape in (STACKS | {"blk.0.ffn_gate_inp.weight": (E, H)}).items():
        sizes = tuple(width if size == M else size for size in shape)
        toy.tensors[name] = Tensor(sizes, numbers(name, sizes).tobytes())
    return toy


def experts_of(tmp_path: Path, layout: str) -> WeightSource:
    if layout == "stacked":
        return load(stacked().write(tmp_path / "toy.gguf"))
    weights = fused_experts() if layout == "fused" else one_by_one(layout)
    return load(write_hf(tmp_path, moe_config(), weights))


@pytest.mark.parametrize("layout", ["mixtral", "qwen3_moe", "fused", "stacked"])
def test_experts_however_they_are_stored(tmp_path: Path, layout: str) -> None:
    source = experts_of(tmp_path, layout)
    assert np.array_equal(values(source.matrix("blk.0.ffn_gate_inp.weight", E, H)), ROUTER)
    for name, shape in STACKS.items():
        experts = source.experts(name, *shape)
        assert (len(experts), experts.rows, experts.cols, experts.nbytes) == (E, *shape[1:], M * H * 4)
        assert np.array_equal(np.stack([values(matrix) for matrix in experts]), numbers(name, shape))
        assert np.array_equal(values(experts[-1]), numbers(name, shape)[-1])
        assert [matrix.offset for matrix in experts[1:3]] == list(experts.offsets[1:3])
        with pytest.raises(IndexError):
            experts[E]


def test_experts_of_more_rows_than_are_taken_at_once(tmp_path: Path) -> None:
    """A lone token's expert is taken in pieces of what the scratch holds; several tokens' panel by panel."""
    width = TOGETHER * ROWS + 700
    model = rml.load(stacked(width).write(tmp_path / "toy.gguf"), threads=1)
    tokens = [2, 9, 16, 23, 30, 37]
    together = model.forward(tokens, model.new_cache(6), all_logits=True)
    cache = model.new_cache(6)
    alone = np.stack([model.forward([token], cache) for token in tokens])
    assert np.isfinite(together).all()
    assert np.array_equal(together, alone)
    assert np.ptp(together, axis=0).min() > 0


@pytest.mark.parametrize(("layout", "stride"), [("stacked", M), ("fused", 2 * M)])
def test_slices_of_one_tensor_have_a_constant_stride(tmp_path: Path, layout: str, stride: int) -> None:
    experts = experts_of(tmp_path, layout).experts("blk.0.ffn_up_exps.weight", E, M, H)
    assert set(np.diff(experts.offsets).tolist()) == {stride * H * 4}
    assert len(set(map(id, experts.files))) == 1


def test_half_of_the_fused_experts_is_left_over(tmp_path: Path) -> None:
    source = open_weights(write_hf(tmp_path, moe_config(), fused_experts()))
    for name, shape in source.config.tensor_shapes():
        if len(shape) == 3 and "up" not in name:
            source.experts(name, *shape)
        elif len(shape) < 3:
            source.vector(name, *shape) if len(shape) == 1 else source.matrix(name, *shape)
    with pytest.raises(BadFile, match=r"1 of 12 tensors have no place in this model: .*gate_up_proj"):
        source.check_all_consumed()


def broken(change: Callable[[dict[str, Entry]], Any], weights: Safetensors, tmp_path: Path) -> Path:
    change(weights.tensors)
    return write_hf(tmp_path, moe_config(), weights)


EXPERT = "model.layers.0.block_sparse_moe.experts.2.w3.weight"
FUSED = "model.layers.0.mlp.experts.gate_up_proj"


def test_an_expert_is_missing(tmp_path: Path) -> None:
    path = broken(lambda tensors: tensors.pop(EXPERT), one_by_one("mixtral"), tmp_path)
    with pytest.raises(BadFile, match=r"'blk\.0\.ffn_up_exps\.weight\[2\]' \[8, 32\].* is missing .*experts\.2\.w3"):
        load(path)


def test_the_first_expert_is_missing(tmp_path: Path) -> None:
    first = EXPERT.replace(".2.", ".0.")
    path = broken(lambda tensors: tensors.pop(first), one_by_one("mixtral"), tmp_path)
    with pytest.raises(BadFile, match=r"ffn_up_exps\.weight.* is missing"):
        load(path)


def test_an_expert_too_many(tmp_path: Path) -> None:
    def add(tensors: dict[str, Entry]) -> None:
        tensors[EXPERT.replace(".2.", ".4.")] = tensors[EXPERT]

    with pytest.raises(BadFile, match=r"1 of 23 tensors have no place .*experts\.4\.w3"):
        load(broken(add, one_by_one("mixtral"), tmp_path))


def test_an_expert_of_another_shape(tmp_path: Path) -> None:
    def turn(tensors: dict[str, Entry]) -> None:
        tensors[EXPERT] = replace(tensors[EXPERT], shape=[32, 8])

    with pytest.raises(
        BadFile, match=r"experts\.2\.w3\.weight' \(expert 2 of .*has the shape \[32, 8\], expected \[8, 32\]"
    ):
        load(broken(turn, one_by_one("mixtral"), tmp_path))


def test_experts_of_two_types(tmp_path: Path) -> None:
    def halve(tensors: dict[str, Entry]) -> None:
        tensors[EXPERT] = Entry("F16", [8, 32], bytes(512))

    with pytest.raises(
        Unsupported, match=r"experts\.2\.w3\.weight' is F16 \(1\), but .*experts\.0\.w3\.weight' is F32"
    ):
        load(broken(halve, one_by_one("mixtral"), tmp_path))


def test_fused_experts_of_another_shape(tmp_path: Path) -> None:
    def cut(tensors: dict[str, Entry]) -> None:
        tensors[FUSED] = Entry("F32", [E, M, H], tensors[FUSED].data[: E * M * H * 4])

    with pytest.raises(BadFile, match=r"gate_up_proj' .*has the shape \[4, 8, 32\], expected \[4, 16, 32\]"):
        load(broken(cut, fused_experts(), tmp_path))


def test_unaligned_fused_experts(tmp_path: Path) -> None:
    weights = fused_experts()
    weights.pad = -len(weights.encode()) % 4 + 1
    source = load(write_hf(tmp_path, moe_config(), weights))
    for name, shape in STACKS.items():
        experts = source.experts(name, *shape)
        assert experts[1].data.ctypes.data % 4 == 0
        assert np.array_equal(np.stack([values(matrix) for matrix in experts]), numbers(name, shape))
        assert len(set(map(id, experts.files))) == 1  # one copy for all slices
    gate, up = (source.experts(f"blk.0.ffn_{role}_exps.weight", E, M, H) for role in ("gate", "up"))
    assert gate.files[0] is up.files[0]


def test_more_experts_than_could_be_counted(tmp_path: Path) -> None:
    """The search ends with the first expert that is missing, whatever number the config gives."""
    source = open_weights(write_hf(tmp_path, moe_config(), one_by_one("mixtral")))
    with pytest.raises(BadFile, match=r"ffn_up_exps\.weight\[4\]' .* is missing"):
        source.experts("blk.0.ffn_up_exps.weight", 2**31 - 1, M, H)
