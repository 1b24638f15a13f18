"""Tensors by GGUF name: the same numbers from either format, however named, fused, sharded or typed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from toy_files import (
    HF_NAMES,
    TOY_SHAPES,
    Entry,
    Gguf,
    Safetensors,
    Tensor,
    array,
    i32,
    load,
    numbers,
    toy_config,
    toy_gguf,
    toy_safetensors,
    u64,
    values,
    write_hf,
)

from rml.errors import BadFile, InvalidArgument, LoadWarning, Unsupported
from rml.weight_source import WeightSource, open_weights

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MODELS = sorted(path for path in FIXTURES.glob("*/*") if path.suffix == ".gguf" or (path / "config.json").exists())
PAIRS = sorted(path.parent for path in FIXTURES.glob("*/hf") if (path.parent / "model.gguf").exists())

Array = npt.NDArray[np.float64]


def half_split(rows: Array, heads: int) -> Array:
    """Rows 2i and 2i + 1 of each head, llama.cpp's order, back to i and i + D/2."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def everything(source: WeightSource) -> dict[str, Array]:
    """All tensors that the config asks for, q and k rows in Hugging Face's order."""
    config, result = source.config, {}
    for name, shape in config.tensor_shapes():
        if len(shape) == 3:
            got = np.stack([values(matrix) for matrix in source.experts(name, *shape)])
        else:
            got = source.vector(name, *shape) if len(shape) == 1 else values(source.matrix(name, *shape))
        role = name.split(".")[-2]
        if config.rope_interleaved and role in ("attn_q", "attn_k"):
            got = half_split(got, config.num_heads if role == "attn_q" else config.num_kv_heads)
        result[name] = got
    return result


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_fixture_loads_with_nothing_left_over(path: Path) -> None:
    source = load(path)
    learned = sum(int(np.prod(tensor.shape)) for name, tensor in source.tensors.items() if name != "rope_freqs.weight")
    assert source.config.parameter_count == learned


@pytest.mark.parametrize("folder", PAIRS, ids=lambda folder: folder.name)
def test_both_formats_hold_the_same_numbers(folder: Path) -> None:
    hf, gguf = open_weights(folder / "hf"), open_weights(folder / "model.gguf")
    if any(not tensor.type.is_float for tensor in gguf.tensors.values()):
        pytest.skip("quantised")
    ours, theirs = everything(hf), everything(gguf)
    theirs.pop("rope_freqs.weight", None)
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not np.array_equal(value, theirs[name])] == []


def test_there_are_pairs_of_every_family() -> None:
    families = {open_weights(folder / "hf").config.model_type for folder in PAIRS}
    assert families >= {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "olmoe"}


def test_gemmas_norms_are_one_more_in_gguf_only(tmp_path: Path) -> None:
    """A norm of 0 in Hugging Face's file is a norm of 1 in GGUF's; both scale by 1."""
    hf, gguf = (open_weights(FIXTURES / "gemma3" / name) for name in ("hf", "model.gguf"))
    for name, length in (("output_norm.weight", 32), ("blk.0.attn_q_norm.weight", hf.config.head_dim)):
        stored = gguf.tensors[name].data.view("<f4")
        assert np.array_equal(hf.vector(name, length), stored.astype(np.float64))
        assert np.array_equal(gguf.vector(name, length), stored.astype(np.float64))
    raw = hf.tensors["model.norm.weight"]
    assert np.array_equal(
        (raw.data.view("<u2").astype("<u4") << 16).view("<f4") + 1.0, hf.vector("output_norm.weight", 32)
    )


# ------------------------------------------------------------------------------------------------- matrices


def test_a_matrix_is_a_view_of_the_file(tmp_path: Path) -> None:
    path = toy_gguf().write(tmp_path / "toy.gguf")
    source = load(path)
    matrix = source.matrix("blk.0.ffn_up.weight", 48, 32)
    assert (matrix.name, matrix.format.name, matrix.rows, matrix.cols, matrix.nbytes) == (
        "blk.0.ffn_up.weight",
        "F32",
        48,
        32,
        48 * 32 * 4,
    )
    assert matrix.file.path == path
    assert np.shares_memory(matrix.data, matrix.file.data)
    assert path.read_bytes()[matrix.offset : matrix.offset + matrix.nbytes] == matrix.data.tobytes()
    assert np.array_equal(values(matrix), numbers("blk.0.ffn_up.weight", (48, 32)))


def test_asking_twice_gives_the_same(tmp_path: Path) -> None:
    source = load(toy_gguf().write(tmp_path / "toy.gguf"))
    first, second = (source.matrix("output.weight", 64, 32) for _ in range(2))
    assert first.offset == second.offset
    source.check_all_consumed()


def test_what_was_not_asked_for_is_left_over(tmp_path: Path) -> None:
    source = open_weights(toy_gguf().write(tmp_path / "toy.gguf"))
    with pytest.raises(BadFile, match=r"12 of 12 tensors have no place in this model: 'token_embd\.weight'"):
        source.check_all_consumed()


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "layers.0.self_attn.rotary_emb.inv_freq"]
)
def test_old_frequencies_may_stay(tmp_path: Path, name: str) -> None:
    toy = toy_safetensors()
    toy.tensors[name] = Entry("F32", [4], bytes(16))
    load(write_hf(tmp_path, weights=toy))


def test_old_frequencies_may_stay_in_gguf(tmp_path: Path) -> None:
    toy = toy_gguf()
    toy.tensors["blk.0.attn_rot_embd.weight"] = Tensor((4,), bytes(16))
    load(toy.write(tmp_path / "toy.gguf"))


def test_names_of_a_base_model(tmp_path: Path) -> None:
    toy = toy_safetensors()
    toy.tensors = {
        name.removeprefix("model."): entry for name, entry in toy.tensors.items() if name != "lm_head.weight"
    }
    source = load(write_hf(tmp_path, toy_config(tie_word_embeddings=True), toy))
    assert "embed_tokens.weight" in source.tensors
    assert np.array_equal(values(source.matrix("output.weight", 64, 32)), numbers("token_embd.weight", (64, 32)))


def to_bf16(name: str, shape: tuple[int, ...]) -> bytes:
    return (numbers(name, shape).view("<u4") >> 16).astype("<u2").tobytes()


def to_f16(name: str, shape: tuple[int, ...]) -> bytes:
    return numbers(name, shape).astype("<f2").tobytes()


def test_every_tensor_may_have_its_own_type(tmp_path: Path) -> None:
    toy = toy_safetensors()
    writers: list[tuple[str, Callable[[str, tuple[int, ...]], bytes]]] = [("BF16", to_bf16), ("F16", to_f16)]
    for number, (name, shape) in enumerate(TOY_SHAPES.items()):
        if number % 3:
            dtype, write = writers[number % 3 - 1]
            toy.tensors[HF_NAMES[name]] = Entry(dtype, shape, write(name, shape))
    source = load(write_hf(tmp_path, weights=toy))
    assert {tensor.type.name for tensor in source.tensors.values()} == {"F32", "F16", "BF16"}
    for name, value in everything(source).items():
        assert np.array_equal(value, numbers(name, TOY_SHAPES[name])), name


@pytest.mark.parametrize("number", [0, 1, 30])
def test_vectors_of_each_float_type_are_exact(tmp_path: Path, number: int) -> None:
    write = {0: lambda name, shape: numbers(name, shape).tobytes(), 1: to_f16, 30: to_bf16}[number]
    toy = toy_gguf()
    toy.tensors["output_norm.weight"] = Tensor((32,), write("output_norm.weight", (32,)), number)
    got = load(toy.write(tmp_path / "toy.gguf")).vector("output_norm.weight", 32)
    assert got.dtype == np.float64
    assert got.tolist() == numbers("output_norm.weight", (32,)).tolist()


def test_a_quantised_vector_is_refused(tmp_path: Path) -> None:
    toy = toy_gguf()
    toy.tensors["output_norm.weight"] = Tensor((32,), bytes(34), 8)
    with pytest.raises(Unsupported, match=r"'output_norm\.weight': a vector of type Q8_0 \(8\)"):
        load(toy.write(tmp_path / "toy.gguf"))


def test_slow_types_are_handed_out(tmp_path: Path) -> None:
    toy = toy_gguf()
    toy.tensors["blk.0.ffn_up.weight"] = Tensor((48, 32), bytes(48 * 18), 20)
    matrix = load(toy.write(tmp_path / "toy.gguf")).matrix("blk.0.ffn_up.weight", 48, 32)
    assert (matrix.format.name, matrix.format.slow, matrix.nbytes) == ("IQ4_NL", True, 48 * 18)


# ----------------------------------------------------------------------------------------- the head and ties


def with_head(data: bytes | None) -> Safetensors:
    toy = toy_safetensors()
    if data is None:
        del toy.tensors["lm_head.weight"]
    else:
        toy.tensors["lm_head.weight"] = replace(toy.tensors["lm_head.weight"], data=data)
    return toy


EMBEDDING, HEAD = (numbers(name, (64, 32)) for name in ("token_embd.weight", "output.weight"))


def head(source: WeightSource) -> Array:
    return values(source.matrix("output.weight", 64, 32))


def test_tied_without_a_head(tmp_path: Path) -> None:
    source = load(write_hf(tmp_path, toy_config(tie_word_embeddings=True), with_head(None)))
    assert source.config.tied_head is True
    assert np.array_equal(head(source), EMBEDDING)
    assert source.matrix("output.weight", 64, 32).name == "output.weight"


def test_tied_with_the_same_head(tmp_path: Path) -> None:
    """No warning (warnings are errors here), one copy in use, and the parameters counted once."""
    source = load(write_hf(tmp_path, toy_config(tie_word_embeddings=True), with_head(EMBEDDING.tobytes())))
    assert source.config.tied_head is True
    assert np.array_equal(head(source), EMBEDDING)


def test_tied_with_another_head(tmp_path: Path) -> None:
    directory = write_hf(tmp_path, toy_config(tie_word_embeddings=True))
    with pytest.warns(LoadWarning, match="lm_head.weight is there and differs: it is used"):
        source = load(directory)
    assert source.config.tied_head is False
    assert source.config.sources["tied_head"] == "tensor table: lm_head.weight differs from the embedding"
    assert np.array_equal(head(source), HEAD)


def test_tied_with_a_head_that_differs_at_the_end(tmp_path: Path) -> None:
    almost = EMBEDDING.copy()
    almost[-1, -1] += 1
    directory = write_hf(tmp_path, toy_config(tie_word_embeddings=True), with_head(almost.tobytes()))
    with pytest.warns(LoadWarning, match="differs"):
        assert np.array_equal(head(load(directory)), almost)


def test_untied_without_a_head(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"'lm_head\.weight' is missing, .*\(config\.json: tie_word_embeddings\)"):
        load(write_hf(tmp_path, toy_config(tie_word_embeddings=False), with_head(None)))


def test_the_familys_default_ties(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"'lm_head\.weight' is missing, .*\(default: family llama\)"):
        load(write_hf(tmp_path, toy_config(), with_head(None)))
    gemma = toy_config("gemma3_text", head_dim=8, num_hidden_layers=1)
    assert open_weights(write_hf(tmp_path, gemma, with_head(None))).config.tied_head is True


def test_only_a_head(tmp_path: Path) -> None:
    """The one tensor of both, saved under its other name."""
    toy = toy_safetensors()
    del toy.tensors["model.embed_tokens.weight"]
    source = load(write_hf(tmp_path, toy_config(tie_word_embeddings=True), toy))
    assert np.array_equal(values(source.matrix("token_embd.weight", 64, 32)), HEAD)
    assert np.array_equal(head(source), HEAD)


def test_tied_in_gguf(tmp_path: Path) -> None:
    toy = toy_gguf()
    del toy.tensors["output.weight"]
    source = load(toy.write(tmp_path / "toy.gguf"))
    assert source.config.tied_head is True
    assert np.array_equal(head(source), EMBEDDING)


# --------------------------------------------------------------------------------------------- fused q, k, v


def fused_qkv() -> Gguf:
    toy = toy_gguf()
    parts = [toy.tensors.pop(f"blk.0.attn_{role}.weight").data for role in "qkv"]
    toy.tensors["blk.0.attn_qkv.weight"] = Tensor((64, 32), b"".join(parts))
    toy.tensors["blk.0.attn_qkv.bias"] = Tensor((64,), numbers("bias", (64,)).tobytes())
    return toy


def test_fused_query_key_value(tmp_path: Path) -> None:
    source = load(fused_qkv().write(tmp_path / "toy.gguf"))
    assert source.config.attention_bias is True
    first = 0
    for role, rows in (("q", 32), ("k", 16), ("v", 16)):
        name = f"blk.0.attn_{role}"
        assert np.array_equal(values(source.matrix(f"{name}.weight", rows, 32)), numbers(f"{name}.weight", (rows, 32)))
        assert np.array_equal(source.vector(f"{name}.bias", rows), numbers("bias", (64,))[first : first + rows])
        first += rows


def test_a_part_of_a_fused_tensor_is_left_over(tmp_path: Path) -> None:
    source = open_weights(fused_qkv().write(tmp_path / "toy.gguf"))
    config = source.config
    for name, shape in config.tensor_shapes():
        if name != "blk.0.attn_v.weight":
            source.vector(name, *shape) if len(shape) == 1 else source.matrix(name, *shape)
    with pytest.raises(BadFile, match=r"1 of 11 tensors have no place in this model: 'blk\.0\.attn_qkv\.weight'"):
        source.check_all_consumed()


def test_fused_and_separate_at_once(tmp_path: Path) -> None:
    toy = toy_gguf()
    toy.tensors["blk.0.attn_qkv.weight"] = fused_qkv().tensors["blk.0.attn_qkv.weight"]
    with pytest.raises(BadFile, match=r"1 of 13 tensors .*'blk\.0\.attn_qkv\.weight'"):
        load(toy.write(tmp_path / "toy.gguf"))


def test_a_fused_tensor_of_another_size(tmp_path: Path) -> None:
    toy = fused_qkv()
    toy.tensors["blk.0.attn_qkv.weight"].dimensions = (32, 63)
    message = r"'blk\.0\.attn_qkv\.weight' \(blk\.0\.attn_q\.weight\) has the shape \[63, 32\], expected \[64, 32\]"
    with pytest.raises(BadFile, match=message):
        load(toy.write(tmp_path / "toy.gguf"))


# ---------------------------------------------------------------------------------------------------- opening


def test_paths_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no such file"):
        open_weights(tmp_path / "none.gguf")
    with pytest.raises(InvalidArgument, match=r"has no config\.json"):
        open_weights(tmp_path)
    write_hf(tmp_path)
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(InvalidArgument, match="give its directory"):
            open_weights(str(tmp_path / name))


def test_a_directory_with_a_gguf_file(tmp_path: Path) -> None:
    toy_gguf().write(tmp_path / "toy.gguf")
    with pytest.raises(InvalidArgument, match=r"has no config\.json; it holds toy\.gguf"):
        open_weights(tmp_path)


def test_metadata_tells_the_formats_apart(tmp_path: Path) -> None:
    gguf = open_weights(toy_gguf().write(tmp_path / "toy.gguf"))
    assert gguf.metadata is not None
    assert gguf.metadata["general.name"] == "toy"
    assert open_weights(write_hf(tmp_path)).metadata is None


REAL = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (0.15, 134_515_008, 49_152),
    "gemma-3-270m-q4_k_m.gguf": (0.3, 268_098_176, 262_144),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_open_at_once(name: str) -> None:
    """Measured on two shared cores: 0.02 s and 0.04 s."""
    path = Path(os.environ.get("RML_MODELS_DIR", FIXTURES.parent / ".models")) / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: tools/fetch_real_models.py fetches it")
    limit, parameters, vocabulary = REAL[name]

    def seconds() -> float:
        start = time.process_time()
        open_weights(path)
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < limit
    source = load(path)
    assert (source.config.parameter_count, source.config.vocab_size) == (parameters, vocabulary)


def test_arrays_in_a_file_where_a_scalar_would_do(tmp_path: Path) -> None:
    """Uniform arrays are scalars, flags are flags, and every width of integer counts."""
    window = {"llama__attention__sliding_window": u64(16)}
    plain = load(toy_gguf(**window).write(tmp_path / "plain.gguf")).config
    arrays = toy_gguf(
        **window,
        llama__attention__head_count=array(5, "i", [4]),
        llama__attention__head_count_kv=array(10, "Q", [2]),
        llama__attention__sliding_window_pattern=array(7, "B", [1]),
        llama__context_length=i32(128),
        llama__embedding_length=u64(32),
    )
    assert load(arrays.write(tmp_path / "arrays.gguf")).config == plain
    assert (plain.num_kv_heads, plain.sliding_window, plain.sliding_layers) == (2, 16, (True,))
