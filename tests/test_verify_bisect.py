"""`rml verify bisect` and `taps`: healthy pairs have no finding, dumps are checked, errors are each step's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from golden_cases import FIXTURES, MANIFEST, case
from planted import Copy, Floats

import rml
from rml import cli
from rml.errors import BadFile, InvalidArgument
from rml.kv_cache import CacheType
from rml.verify_bisect import EXACT, INT8, SINGLE, bisect
from rml.verify_evidence import config_differences, tensor_differences
from rml.verify_hints import Picture, hints
from rml.verify_sides import DumpSide, EngineSide, dump
from rml.verify_taps import deinterleave, interleave
from rml.verify_text import random_ids
from tools import verify_reference

IDS = random_ids(64, 41)
FAMILIES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3", "olmoe"]
PAIRS = sorted(
    {
        name
        for entry in MANIFEST["cases"]
        if (name := entry["model"].partition("/")[0])
        and (FIXTURES / name / "hf").exists()
        and (FIXTURES / name / "model.gguf").exists()
    }
)


def side(path: Path, dot: str = "exact", cache: CacheType = "f64") -> EngineSide:
    return EngineSide(rml.load(path, threads=1, dot=dot), path.name, cache)


def as_arrays(arrays: Any) -> dict[str, Any]:
    """For np.savez, whose keywords are typed otherwise."""
    return dict(arrays)


def toy(name: str) -> EngineSide:
    return side(case(name).model)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_both_files_of_a_toy_are_the_same_at_every_step(name: str) -> None:
    found = bisect(toy(f"{name}/hf"), toy(f"{name}/model.gguf"), IDS)
    assert found.first is None
    assert not found.missing
    assert (found.tolerance, found.why) == (EXACT, "both sides in float64")
    assert max(step.total for step in found.steps) < 4e-7


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hf", "model.gguf"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_reference_is_the_same_at_every_step(name: str, form: str, tmp_path: Path) -> None:
    path = case(f"{name}/{form}").model
    ids = ",".join(map(str, IDS))
    assert verify_reference.main(["taps", str(path), "--ids", ids, "--out", str(tmp_path / "r.npz")]) == 0
    engine, reference = side(path), DumpSide(tmp_path / "r.npz")
    assert reference.names() == engine.names(), "the same names in the same order"
    found = bisect(reference, engine)
    assert found.first is None
    assert (found.fed, found.missing, found.tokens) == ("B", [], IDS)
    assert max(step.total for step in found.steps) < 1e-10


def test_a_fault_in_rotated_keys_stays_with_them(tmp_path: Path) -> None:
    """What is fed reaches the cache: attention of the fed run reads A's keys and values."""
    damaged = Copy("qwen3/hf", tmp_path).change("blk.0.attn_k_norm.weight", lambda w: w * 2.0)
    damaged.change("blk.1.attn_v.weight", lambda w: w * 2.0)
    found = bisect(toy("qwen3/model.gguf"), side(damaged.path), IDS)
    assert [step.name for step in found.over] == ["blk.0.k_rope", "blk.1.v"], "both faults, and nothing else"
    assert max(step.error for step in found.steps if step not in found.over) < 1e-12
    assert found.steps[-1].total > 0.01


def test_errors_are_lengths_at_the_worst_token(tmp_path: Path) -> None:
    names = ["embed", "logits"]
    a = {"tokens": np.arange(4), "embed": np.eye(4) * 3.0 + 1.0, "logits": np.ones((4, 5))}
    b = {**a, "logits": a["logits"].copy()}
    b["logits"][2, 1] = 3.0
    for name, arrays in (("a", a), ("b", b)):
        np.savez(tmp_path / f"{name}.npz", **as_arrays(arrays))
    found = bisect(DumpSide(tmp_path / "a.npz"), DumpSide(tmp_path / "b.npz"))
    assert [step.name for step in found.steps] == names
    assert [step.own for step in found.steps] == [None, None]
    assert found.fed == ""
    assert found.first is not None
    assert found.first.step.total == pytest.approx(2 / 5**0.5)
    assert (found.first.step.position, found.first.token, found.first.channel) == (2, 2, 1)
    assert (found.first.value_a, found.first.value_b, found.first.head) == (1.0, 3.0, None)
    assert found.first.positions == (1, 4)


def test_a_dump_is_the_run_it_came_from(tmp_path: Path) -> None:
    engine = toy("llama/model.gguf")
    names = dump(engine, IDS, tmp_path / "x.npz")
    stored = DumpSide(tmp_path / "x.npz")
    assert stored.names() == names == engine.names()
    assert stored.about["head_dim"] == 16
    found = bisect(stored, engine)
    assert {step.total for step in found.steps} == {0.0}


@pytest.mark.parametrize(
    ("b", "tolerance", "why"),
    [
        (("llama/model-q8_0.gguf", "exact", "f64"), 0.033, "weights of 8.5 bits"),
        (("llama/hf", "exact", "f32"), SINGLE, "a side in float32"),
    ],
)
def test_the_tolerance_follows_from_the_sides(b: tuple[str, str, CacheType], tolerance: float, why: str) -> None:
    name, dot, cache = b
    found = bisect(toy("llama/hf"), side(case(name).model, dot, cache), IDS)
    assert found.tolerance == pytest.approx(tolerance, rel=0.01)
    assert why in found.why
    assert found.first is None
    assert max(step.error for step in found.steps) > tolerance / 1e5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama/model-q8_0.gguf", "llama-k/model.gguf", "llama-blocks/model.gguf"])
def test_int8_products_are_within_theirs(name: str) -> None:
    found = bisect(toy(name), side(case(name).model, "int8"), IDS)
    assert (found.tolerance, found.why) == (INT8, "int8 products")
    assert found.first is None


def test_one_file_tells_which_ffn_a_dump_computed(tmp_path: Path) -> None:
    """The dump is right and the file has gate and up exchanged, or the other way round."""
    path, names = case("llama/hf").model, ("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight")
    damaged = Copy("llama/hf", tmp_path)
    gate, up = (damaged.read(name) for name in names)
    damaged.write(names[0], up)
    damaged.write(names[1], gate)
    for good, bad in ((path, damaged.path), (damaged.path, path)):
        dump(side(good), IDS, tmp_path / "x.npz")
        for a, b in ((DumpSide(tmp_path / "x.npz"), side(bad)), (side(bad), DumpSide(tmp_path / "x.npz"))):
            found = bisect(a, b).first
            assert found is not None
            assert found.step.name == "blk.1.ffn_out"
            assert found.evidence == ["the other side's values are those of this model with gate and up exchanged"]


def test_one_file_tells_which_activation_a_dump_used(tmp_path: Path) -> None:
    dump(side(case("llama/hf").model), IDS, tmp_path / "x.npz")
    model = side(case("llama/hf").model)
    model.model.config = replace(model.model.config, activation="gelu_tanh")
    found = bisect(DumpSide(tmp_path / "x.npz"), model).first
    assert found is not None
    assert found.step.name == "blk.0.ffn_out"
    assert found.evidence == ["the other side's values are those of this model with the activation SiLU"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"blk\.0\.k has 32 values in A and 64 in B: not the same model"):
        bisect(toy("llama/hf"), toy("llama-tied/hf"), IDS)
    with pytest.raises(InvalidArgument, match="need tokens"):
        bisect(toy("llama/hf"), toy("llama/hf"))
    for name, ids in (("a", IDS), ("b", IDS[:5])):
        dump(toy("llama/hf"), ids, tmp_path / f"{name}.npz")
    a, b = DumpSide(tmp_path / "a.npz"), DumpSide(tmp_path / "b.npz")
    with pytest.raises(InvalidArgument, match="different tokens"):
        bisect(a, b)
    with pytest.raises(InvalidArgument, match="other tokens than those asked for"):
        bisect(a, toy("llama/hf"), IDS[:5])
    with pytest.raises(InvalidArgument, match="cannot be run on other inputs"):
        a.run(IDS, ["embed"], {"embed": np.zeros((1, 1))})
    np.savez(tmp_path / "c.npz", tokens=np.array(IDS), other=np.zeros((41, 2)))
    with pytest.raises(InvalidArgument, match="no activation in common"):
        bisect(DumpSide(tmp_path / "c.npz"), toy("llama/hf"))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"embed": np.zeros((3, 2))}, "no array `tokens`"),
        ({"tokens": np.zeros(3), "embed": np.zeros((3, 2))}, "no array `tokens`"),
        ({"tokens": np.zeros((1, 3), int), "embed": np.zeros((3, 2))}, "no array `tokens`"),
        ({"tokens": np.arange(3)}, "no activations"),
        (
            {"tokens": np.arange(3), "embed": np.zeros((4, 2))},
            r"embed is float64 \(4, 2\), expected numbers \(3, width\)",
        ),
        ({"tokens": np.arange(3), "embed": np.zeros(3)}, r"embed is float64 \(3,\)"),
        ({"tokens": np.arange(3), "embed": np.array([["a"]] * 3)}, "embed is <U1"),
        ({"tokens": np.arange(3), "embed": np.array([[None]] * 3)}, "not an .npz file of activations"),
        ({"tokens": np.arange(3), "embed": np.zeros((3, 2)), "about": np.array("no json")}, "not JSON"),
        ({"tokens": np.arange(3), "embed": np.zeros((3, 2)), "about": np.array("[1]")}, "expected an object"),
    ],
)
def test_lies_in_a_dump(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(BadFile, match=words):
        DumpSide(tmp_path / "x.npz")


def test_a_dump_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    dump(toy("llama/hf"), IDS[:3], path)
    data = path.read_bytes()
    for size in (0, 3, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(BadFile, match="npz file of activations"):
            DumpSide(path)


def test_activations_of_one_side_only_are_said(tmp_path: Path) -> None:
    engine = toy("llama/hf")
    dump(engine, IDS, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        few = {name: file[name].astype(np.float32) for name in ("embed", "blk.0.output", "logits")}
        np.savez(tmp_path / "y.npz", tokens=file["tokens"], extra=np.zeros((41, 1)), **few)
    found = bisect(DumpSide(tmp_path / "y.npz"), engine)
    assert [step.name for step in found.steps] == ["embed", "blk.0.output", "logits"]
    assert "extra" in found.missing
    assert "blk.1.output" in found.missing
    assert (found.tolerance, found.first) == (SINGLE, None)


def test_the_order_of_chosen_experts_does_not_matter(tmp_path: Path) -> None:
    choice = np.array([[3, 1], [0, 2], [1, 2]])
    for name, ids in (("a", choice), ("b", choice[:, ::-1]), ("c", choice + np.array([[0, 0], [0, 0], [2, 0]]))):
        np.savez(tmp_path / f"{name}.npz", tokens=np.arange(3), **as_arrays({"blk.0.router_choice": ids}))
    a, b, c = (DumpSide(tmp_path / f"{name}.npz") for name in "abc")
    assert bisect(a, b).steps[0].total == 0.0
    found = bisect(a, c)
    assert found.first is not None
    assert found.first.step.position == 2


def test_the_two_orders_of_rows_undo_each_other() -> None:
    values = np.arange(24.0).reshape(2, 12)
    assert deinterleave(values, 6)[0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert interleave(deinterleave(values, 6), 6).tolist() == values.tolist()


# ---- hints that no planted fault needs -------------------------------------------------------------------------------


def picture(name: str, a: Floats, b: Floats, **more: Any) -> str:
    errors = np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)
    return "\n".join(hints(Picture(name, a, b, 1e-6, errors, **more)))


VALUES = np.random.default_rng(0).normal(0, 1, (20, 64))


def test_scales_are_named() -> None:
    assert "8 times A everywhere (the square root of the width)" in picture("embed", VALUES, VALUES * 8.0)
    assert "0.125 times A everywhere (1 over the square root" in picture("embed", VALUES, VALUES / 8.0)
    text = picture("blk.0.q", VALUES, VALUES * 4.0, heads=4, head_dim=16)
    assert "(the square root of head_dim)" in text
    assert "a factor of its own for every channel: the weight of a norm" in picture(
        "blk.0.ffn_norm", VALUES, VALUES * np.linspace(1, 2, 64)
    )


def test_logits_that_rank_alike() -> None:
    assert "rank alike" in picture("logits", VALUES, np.sign(VALUES) * np.abs(VALUES) ** 0.8)
    assert "soft cap of 2 on the logits is left out on A's side" in picture("logits", VALUES, 2 * np.tanh(VALUES / 2))


def test_places_are_counted() -> None:
    b = VALUES.copy()
    b[[3, 7]] += 1.0
    assert "2 of 20 positions differ: 3, 7" in picture("blk.0.ffn_out", VALUES, b)
    b = VALUES.copy()
    b[:, 5] += np.arange(20)
    assert "only channels 5 of 64 differ" in picture("blk.0.o_proj", VALUES, b)
    b = VALUES.copy()
    b[4:, 16:32] *= np.random.default_rng(1).normal(0, 1, (16, 16))
    text = picture("blk.0.attn_out", VALUES, b, heads=4, head_dim=16, windows=(4, None))
    assert "a window of 4 keys (windows: A 4)" in text
    assert "only heads 1 of 4 differ: grouping" in text


def test_noise_gets_no_explanation() -> None:
    noise = VALUES + np.random.default_rng(2).normal(0, 1, VALUES.shape)
    assert (
        picture("blk.0.q", VALUES, noise, heads=4, head_dim=16)
        == "this step is the query projection: its matrix, its bias"
    )


def test_evidence_names_tensors_of_one_side() -> None:
    a, b = {"x": np.ones(3), "y": np.ones(2)}, {"x": np.ones(4), "z": np.ones(2)}
    assert tensor_differences(a, b) == ["x is (3,) in A and (4,) in B", "y is only in A", "z is only in B"]
    same = rml.load(case("llama/hf").model, threads=1).config
    assert config_differences(same, same) == []


# ---- commands --------------------------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli.main, ["verify", *map(str, arguments), "--threads", "1"])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_commands_dump_and_compare(tmp_path: Path) -> None:
    hf, gguf, out = case("llama/hf").model, case("llama/model.gguf").model, tmp_path / "x.npz"
    assert "27 activations of 31 tokens" in run("taps", gguf, "--out", out, "--tokens", 30).stdout
    text = run("bisect", out, hf).stdout
    assert "dumped in x.npz" in text
    assert "31 tokens (of the dump); tolerance 1e-06 (both sides in float64)" in text
    assert "No step is over the tolerance; at logits the errors have added up to " in text
    assert "Errors of 13 of 27 steps" in text
    assert "Errors of 27 of 27 steps" in run("bisect", out, hf, "--all").stdout


def test_the_command_names_a_fault(tmp_path: Path) -> None:
    hf = case("llama-tied/hf").model
    damaged = Copy("llama-tied/model.gguf", tmp_path).set(rope__freq_base=5e5).path
    text = run("bisect", hf, damaged, "--tokens", 20, code=1).stdout
    assert "21 tokens (the first 20 of the built-in text)" in text, "the words of the side that has a tokenizer"
    assert "First step over the tolerance: blk.0.q_rope\n" in text
    assert "added by this step alone (B run on the other's activations)" in text
    assert "hint: position 0 agrees and those above it do not: rotary embedding" in text
    assert "files: rope.theta is 10000 in A (config.json: rope_parameters: rope_theta) and 500000 in B" in text
    assert "3 more over the tolerance on their own: blk.0.k_rope, blk.1.q_rope, blk.1.k_rope" in text
    report = json.loads(run("bisect", hf, damaged, "--ids", "1,2,3,4,5,6", "--json", code=1).stdout)
    assert report["first"]["step"]["name"] == "blk.0.q_rope"
    assert report["over"] == ["blk.0.q_rope", "blk.0.k_rope", "blk.1.q_rope", "blk.1.k_rope"]
    assert report["tokens"] == [1, 2, 3, 4, 5, 6]
    run("bisect", hf, damaged, "--ids", "1,2,3", "--tolerance", 100)
