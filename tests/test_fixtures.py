"""The toys: reproducible to the byte, laid out as the two formats are, and sensitive to every weight."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from pytest_regressions.data_regression import DataRegressionFixture

import reference
from reference.gguf_reader import HeaderReader
from reference.hf_files import HfWeights, Stored
from tools import fixture_gguf, fixture_hf, make_llm_fixtures
from tools.fixture_list import TOYS
from tools.fixture_quants import quantise
from tools.fixture_toys import FAMILY, Toy
from tools.fixture_weights import matrix, weights

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MANIFEST: dict[str, Any] = json.loads((FIXTURES / "MANIFEST.json").read_text(encoding="utf-8"))


def test_a_fresh_set_is_the_committed_one(capsys: pytest.CaptureFixture[str]) -> None:
    code = make_llm_fixtures.main(["--check"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.endswith(f"{len(MANIFEST['sha256'])} files, 0 differences\n")


def test_check_names_what_differs() -> None:
    lines = make_llm_fixtures.differences(
        {"a": "1" * 64, "b": "2" * 64}, {"a": "1" * 64, "b": "3" * 64}, {"a": "1" * 64}
    )
    assert lines == ["b: made now 222222222222, on disk 333333333333, MANIFEST.json missing"]


def test_every_family_has_both_formats() -> None:
    formats = {(case["family"], case["model"].endswith(".gguf")) for case in MANIFEST["cases"]}
    assert formats == {(family, is_gguf) for family in FAMILY for is_gguf in (False, True)}


def test_small_enough_to_commit() -> None:
    assert sum(file.stat().st_size for file in FIXTURES.rglob("*") if file.is_file()) < 8e6


def switched(value: Any) -> dict[str, Any]:
    """The fields of a Config or Rope that are not at their defaults."""
    out = {}
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if one != default:
            out[field.name] = switched(one) if dataclasses.is_dataclass(one) else one
    return out


def test_configs(data_regression: DataRegressionFixture) -> None:
    """Every switch of every model path that is not at its default, as the reference reads it."""
    configs = {case["model"]: switched(reference.load(FIXTURES / case["model"]).config) for case in MANIFEST["cases"]}
    data_regression.check(json.loads(json.dumps(configs)))


def moved(model: HfWeights, name: str, index: int, tokens: list[int], logits: Any) -> float:
    """How far the logits move when one stored bfloat16 weight changes its sign or, where that is little, its size."""
    stored = model.tensors[name]
    words = np.frombuffer(stored.data.tobytes(), np.uint16).copy()
    words[index] ^= 0x8000 if words[index] & 0x7FFF else 0x3E80  # a zero becomes 1/4
    model.tensors[name] = Stored(stored.dtype, stored.shape, words.view(np.uint8))
    try:
        return float(np.abs(reference.Model(model).forward(tokens) - logits).max())
    finally:
        model.tensors[name] = stored


@pytest.mark.parametrize("family", list(FAMILY))
def test_logits_react_to_every_tensor(family: str) -> None:
    """One weight in each tensor, experts included; the embedding's in a row that the prompt uses."""
    toy = next(toy for toy in TOYS if toy.family == family)
    golden = json.loads((FIXTURES / toy.name / "logits.json").read_text(encoding="utf-8"))
    tokens, logits = golden["tokens"], np.array(golden["logits"])
    model = HfWeights(FIXTURES / toy.name / "hf")
    for number, name in enumerate(list(model.tensors)):
        size = int(np.prod(model.tensors[name].shape))
        index = tokens[1] * toy.config()["hidden_size"] if "embed" in name else (number * 7919) % size
        assert moved(model, name, index, tokens, logits) > 1e-5, f"{name}[{index}]"


def test_gguf_layout_of_llama() -> None:
    """f16 matrices, f32 vectors; stored row 2i of a head is Hugging Face's row i, row 2i + 1 its row i + D/2."""
    toy = TOYS[0]
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(FIXTURES / "llama/model.gguf").tensors}
    hf = weights("llama", toy.config())
    q = hf["model.layers.1.self_attn.q_proj.weight"].reshape(4, 16, 32)
    stored = tensors["blk.1.attn_q.weight"].data.reshape(4, 16, 32)
    for i in range(8):
        assert np.array_equal(stored[:, 2 * i], q[:, i])
        assert np.array_equal(stored[:, 2 * i + 1], q[:, i + 8])
    assert tensors["blk.0.ffn_down.weight"].data.dtype == np.float16
    assert tensors["blk.0.ffn_norm.weight"].data.dtype == np.float32
    divisors = tensors["rope_freqs.weight"].data
    assert divisors.dtype == np.float32
    assert divisors[[0, 3, 7]].tolist() == [1.0, 8.0, 8.0]
    assert 1.0 < divisors[1] < divisors[2] < 8.0


def test_gguf_layout_of_experts_and_gemma() -> None:
    toys = {toy.name: toy for toy in TOYS}
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(FIXTURES / "qwen3_moe/model.gguf").tensors}
    hf = weights("qwen3_moe", toys["qwen3_moe"].config())
    stack = tensors["blk.0.ffn_up_exps.weight"].data
    assert stack.shape == (6, 24, 32)
    assert np.array_equal(stack[4], hf["model.layers.0.mlp.experts.4.up_proj.weight"])
    assert tensors["blk.0.ffn_gate_inp.weight"].data.dtype == np.float32
    gemma = {tensor.name: tensor for tensor in gguf.GGUFReader(FIXTURES / "gemma3/model.gguf").tensors}
    hf = weights("gemma3_text", toys["gemma3"].config())
    for name, theirs in (("post_attention_norm", "post_attention_layernorm"), ("attn_k_norm", "self_attn.k_norm")):
        assert np.array_equal(gemma[f"blk.3.{name}.weight"].data, 1.0 + hf[f"model.layers.3.{theirs}.weight"])


def test_fused_experts_have_the_gate_rows_first() -> None:
    toy = next(toy for toy in TOYS if toy.name == "mixtral-fused")
    fused = fixture_hf.fuse_experts(weights("mixtral", toy.config()))
    single = weights("mixtral", toy.config())
    both = fused["model.layers.1.mlp.experts.gate_up_proj"]
    assert both.shape == (4, 128, 32)
    assert np.array_equal(both[3, :64], single["model.layers.1.block_sparse_moe.experts.3.w1.weight"])
    assert np.array_equal(both[3, 64:], single["model.layers.1.block_sparse_moe.experts.3.w3.weight"])
    assert not any("block_sparse_moe" in name for name in fused)


@pytest.mark.parametrize(("name", "levels"), [("Q8_0", 254), ("Q4_0", 16), ("Q4_1", 15), ("Q5_0", 32), ("Q5_1", 31)])
def test_quantised_blocks_are_within_half_a_step(name: str, levels: int) -> None:
    x = np.concatenate([matrix("any", (40, 64), 1.0), np.zeros((1, 64)), np.full((1, 64), -0.75)])
    wide = gguf.dequantize(quantise("any", x, name), gguf.GGMLQuantizationType[name]).astype(np.float64)
    sizes = np.abs(x.reshape(-1, 32)).max(axis=1)
    span = np.ptp(x.reshape(-1, 32), axis=1) if name.endswith("1") else 2 * sizes
    reach = 1.0 if name in ("Q4_0", "Q5_0") else 0.5  # the code opposite to the largest weight's is missing: clipped
    assert np.all(np.abs(wide - x).reshape(-1, 32).max(axis=1) <= reach * span / levels + 2.0**-10 * sizes)
    assert not wide[40].any()


def test_inexact_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="bfloat16"):
        fixture_hf.bfloat16(np.array([1.0 + 2.0**-9]))
    writer = gguf.GGUFWriter(None, "llama")
    with pytest.raises(ValueError, match="odd is not exact in float16"):
        fixture_gguf.add_tensor(writer, "odd", np.array([[1.0 + 2.0**-12]]), "F16")


def test_header_reader_agrees_with_gguf_and_is_fast(tmp_path: Path) -> None:
    theirs, ours = (kind(FIXTURES / "gemma3-scale/model.gguf") for kind in (gguf.GGUFReader, HeaderReader))
    for key, field in theirs.fields.items():
        if key != "tokenizer.ggml.tokens":
            assert ours.fields[key].contents() == field.contents(), key
    assert ours.length("tokenizer.ggml.tokens") == len(theirs.fields["tokenizer.ggml.tokens"].contents()) == 64
    assert [t.data_offset for t in ours.tensors] == [t.data_offset for t in theirs.tensors]
    assert ours.value("gemma3.attention.sliding_window_pattern") == [False, True, True]
    path = tmp_path / "many.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token {i}" for i in range(100_000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    start = time.process_time()
    assert HeaderReader(path).length("tokenizer.ggml.tokens") == 100_000
    assert time.process_time() - start < 1.0  # gguf.GGUFReader: 5 s; this: 0.04 s


def test_toy_changes_can_remove_a_key() -> None:
    toy = Toy("x", "qwen3", "", {"head_dim": TOYS[1].changes["num_key_value_heads"], "rms_norm_eps": 0.5})
    config = toy.config()
    assert "head_dim" not in config
    assert config["rms_norm_eps"] == 0.5
