"""GGUF headers: every value type, arrays that wait in the file, the gguf package's tables, split sets."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from corrupt_split import write_split
from gguf import GGUFReader
from toy_files import (
    TOY_SHAPES,
    Gguf,
    Tensor,
    array,
    boolean,
    f32,
    i32,
    load,
    numbers,
    raw_string,
    string,
    strings,
    toy_gguf,
    u32,
    u64,
)

from rml.errors import BadFile, InvalidArgument
from rml.formats import BY_ID, KERNEL_TYPES, stored_type
from rml.gguf_file import GgufArray, open_gguf, read_gguf

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FILES = sorted(FIXTURES.glob("*/*.gguf"))


def metadata(tmp_path: Path, **keys: bytes) -> dict[str, object]:
    return dict(open_gguf(Gguf(keys, {}).write(tmp_path / "keys.gguf")).metadata)


def test_scalars_keep_their_types(tmp_path: Path) -> None:
    values = metadata(
        tmp_path,
        u8=struct.pack("<IB", 0, 250),
        i8=struct.pack("<Ib", 1, -5),
        u16=struct.pack("<IH", 2, 65535),
        i16=struct.pack("<Ih", 3, -32768),
        u32=u32(2**32 - 1),
        i32=i32(-(2**31)),
        f32=f32(0.1),
        yes=boolean(1),
        no=boolean(0),
        text=string("größer\0"),
        u64=u64(2**64 - 1),
        i64=struct.pack("<Iq", 11, -(2**63)),
        f64=struct.pack("<Id", 12, 0.1),
    )
    assert values == {
        "u8": 250,
        "i8": -5,
        "u16": 65535,
        "i16": -32768,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "f32": float(np.float32(0.1)),
        "yes": True,
        "no": False,
        "text": "größer\0",
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f64": 0.1,
    }
    assert [type(value) for value in values.values()] == [int] * 6 + [float, bool, bool, str, int, int, float]


def test_arrays_are_read_when_asked_for(tmp_path: Path) -> None:
    words = ["", "a", "ß" * 300, "<|end|>"]
    values = metadata(
        tmp_path,
        words=strings(words),
        scores=array(6, "f", [0.5, -1.25]),
        types=array(5, "i", [1, -3, 6]),
        flags=array(7, "B", [1, 0]),
        wide=array(10, "Q", [2**63]),
        empty=array(8, "B", []),
        after=u32(7),
    )
    got = {name: value for name, value in values.items() if isinstance(value, GgufArray)}
    assert values["after"] == 7  # the arrays were stepped over exactly
    assert got["words"].strings() == words == list(got["words"])
    assert got["words"][1] == "a"
    assert got["words"][-2:] == words[-2:]
    assert {name: value.element_type for name, value in got.items()} == {
        "words": "string",
        "scores": "f32",
        "types": "i32",
        "flags": "bool",
        "wide": "u64",
        "empty": "string",
    }
    assert [len(value) for value in got.values()] == [4, 2, 3, 2, 1, 0]
    assert got["scores"].read() == [0.5, -1.25]
    assert got["types"].numbers().dtype == np.int32
    assert got["types"].read() == [1, -3, 6]
    assert got["flags"].read() == [True, False]
    assert got["wide"].read() == [2**63]
    assert got["empty"].read() == []
    assert repr(got["words"]) == "<4 x string>"


def test_an_array_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    values = metadata(tmp_path, words=strings(["a"]), scores=array(6, "f", [0.5]))
    words, scores = values["words"], values["scores"]
    assert isinstance(words, GgufArray)
    assert isinstance(scores, GgufArray)
    with pytest.raises(BadFile, match="key words: expected numbers, found <1 x string>"):
        words.numbers()
    with pytest.raises(BadFile, match="key scores: expected strings, found <1 x f32>"):
        scores.strings()


def test_tokens_are_not_decoded_before_they_are_asked_for(tmp_path: Path) -> None:
    raw = struct.pack("<IIQ", 9, 8, 2) + raw_string(b"fine") + raw_string(b"\xff")
    tokens = metadata(tmp_path, tokens=raw)["tokens"]
    assert isinstance(tokens, GgufArray)
    with pytest.raises(BadFile, match=r"key tokens: string 1 is not UTF-8: b'\\xff'"):
        tokens.strings()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_table_is_the_gguf_packages(path: Path) -> None:
    ours, theirs = read_gguf(path), GGUFReader(path)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.type.id, mine.type.name) == (tensor.tensor_type.value, tensor.tensor_type.name)
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.data.tobytes() == tensor.data.tobytes()
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            value = ours.metadata[name]
            assert (value.read() if isinstance(value, GgufArray) else value) == field.contents()


def test_there_are_fixtures_to_compare_with() -> None:
    assert len(FILES) > 20


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_versions_and_alignments(tmp_path: Path, version: int, alignment: int) -> None:
    toy = toy_gguf(general__alignment=u32(alignment))
    toy.version, toy.alignment = version, alignment
    source = load(toy.write(tmp_path / "toy.gguf"))
    for name, shape in TOY_SHAPES.items():
        tensor = source.tensors[name]
        assert tensor.offset % alignment == 0
        assert tensor.data.tobytes() == numbers(name, shape).tobytes()


def test_types_that_no_kernel_knows_are_listed_all_the_same(tmp_path: Path) -> None:
    toy = toy_gguf()
    names = list(toy.tensors)
    for name, number in zip(names, (39, 16, 23, 29, 34, 35, 24, 28, 4, 250), strict=False):
        toy.tensors[name] = Tensor((1, 256), bytes(4096), number)
    tensors = open_gguf(toy.write(tmp_path / "toy.gguf")).tensors
    shown = [str(tensors[name].type) for name in names[:10]]
    assert shown == [
        "MXFP4 (39)",
        "IQ2_XXS (16)",
        "IQ4_XS (23)",
        "IQ1_M (29)",
        "TQ1_0 (34)",
        "TQ2_0 (35)",
        "I8 (24)",
        "F64 (28)",
        "Q4_2 (4)",
        "unknown (250)",
    ]
    assert [tensors[name].nbytes for name in names[:10]] == [136, 66, 136, 56, 54, 66, 256, 2048, 0, 0]
    assert [tensors[name].type.usable for name in names[:10]] == [True] * 6 + [False] * 4


def test_the_table_of_types_is_the_gguf_packages() -> None:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import _type_traits

    for kind, (weights, size) in GGML_QUANT_SIZES.items():
        ours = BY_ID[kind.value]
        assert (ours.name, ours.block_weights, ours.block_bytes) == (kind.name, weights, size)
    dequantised = {kind.value for kind in _type_traits} | {0, 1}
    assert {kind for kind in dequantised if not BY_ID[kind].usable} == set()
    assert {kind.id for kind in BY_ID.values() if kind.usable} <= dequantised
    assert {kind.value for kind in GGMLQuantizationType} <= set(BY_ID)
    assert [kind.name for kind in KERNEL_TYPES] == (
        ["F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "BF16"]
    )


def test_sizes_of_rows() -> None:
    assert BY_ID[12].row_bytes(512) == 288
    assert BY_ID[30].row_bytes(7) == 14
    assert (BY_ID[12].activation_group, BY_ID[8].activation_group) == (256, 32)
    assert (BY_ID[1].activation_group, BY_ID[1].is_float, BY_ID[28].is_float) == (0, True, False)
    assert str(stored_type(77)) == "unknown (77)"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_shard_opens_the_whole_set(tmp_path: Path, number: int) -> None:
    paths = write_split(tmp_path)
    split = open_gguf(paths[number])
    assert split.path == paths[0]
    assert len(split.files) == 3
    assert split.metadata["general.name"] == "toy"
    assert set(split.tensors) == set(TOY_SHAPES)
    for name, shape in TOY_SHAPES.items():
        assert split.tensors[name].data.tobytes() == numbers(name, shape).tobytes()
    assert {tensor.file.path for tensor in split.tensors.values()} == set(paths[1:])
    load(paths[number])


def test_a_set_of_one_may_have_any_name(tmp_path: Path) -> None:
    toy = toy_gguf(split__no=struct.pack("<IH", 2, 0), split__count=struct.pack("<IH", 2, 1))
    assert len(open_gguf(toy.write(tmp_path / "model.gguf")).tensors) == 12


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.gguf: no such file"):
        open_gguf(tmp_path / "none.gguf")
    with pytest.raises(InvalidArgument, match="not a regular file"):
        open_gguf(tmp_path)


def test_a_large_vocabulary_opens_at_once(tmp_path: Path) -> None:
    """262,144 tokens, as Gemma has: the gguf package needs 14 s for them. Measured here: 0.02 s."""
    tokens = strings([f"token{i}" for i in range(262_144)])
    path = Gguf({"tokens": tokens, "scores": array(6, "f", [0.0] * 262_144)}, {}).write(tmp_path / "large.gguf")

    def seconds() -> float:
        start = time.process_time()
        open_gguf(path)
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.2
    value = open_gguf(path).metadata["tokens"]
    assert isinstance(value, GgufArray)
    assert value.strings()[262_143] == "token262143"


def test_tensor_views_outlive_the_reader(tmp_path: Path) -> None:
    data = open_gguf(toy_gguf().write(tmp_path / "toy.gguf")).tensors["output.weight"].data
    assert not data.flags.writeable
    assert data.view("<f4").tolist() == numbers("output.weight", (64, 32)).ravel().tolist()
