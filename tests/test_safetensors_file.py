"""Safetensors: what the safetensors package writes, unaligned data, header order, shards, links of a cache."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corrupt_hf import write_shards
from safetensors.numpy import save_file
from toy_files import HF_NAMES, TOY_SHAPES, Entry, Safetensors, load, numbers, toy_safetensors, write_hf

from rml.errors import BadFile, InvalidArgument
from rml.json_file import member
from rml.safetensors_file import open_safetensors, read_safetensors


def test_what_the_package_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float16),
        "c": np.arange(6, dtype=np.int64).reshape(1, 2, 3),
        "d": np.array(True),
        "e": np.zeros((0, 4), np.float32),
        "f": rng.standard_normal(2),
    }
    save_file(arrays, tmp_path / "x.safetensors", {"format": "np"})
    tensors = read_safetensors(tmp_path / "x.safetensors")
    assert set(tensors) == set(arrays)
    for name, value in arrays.items():
        assert tensors[name].shape == value.shape
        assert tensors[name].data.tobytes() == value.tobytes()
    assert {name: str(tensor.type) for name, tensor in tensors.items()} == {
        "a": "F32 (0)",
        "b": "F16 (1)",
        "c": "I64",
        "d": "BOOL",
        "e": "F32 (0)",
        "f": "F64",
    }
    assert [tensors[name].type.usable for name in "abcdef"] == [True, True, False, False, True, False]


@pytest.mark.parametrize("pad", range(5))
def test_data_that_is_not_aligned(tmp_path: Path, pad: int) -> None:
    """The data starts where the header ends, at any byte; the values come out all the same and stay."""
    toy = toy_safetensors()
    odd = (-len(toy.encode())) % 4 + 1
    toy.pad = odd + pad
    source = load(write_hf(tmp_path, weights=toy))
    assert {tensor.offset % 4 for tensor in source.tensors.values()} == {toy_offset(toy) % 4}
    matrix = source.matrix("blk.0.ffn_down.weight", 32, 48)
    data = matrix.data
    assert data.ctypes.data % 4 == 0
    del source, matrix
    assert data.view("<f4").tolist() == numbers("blk.0.ffn_down.weight", (32, 48)).ravel().tolist()


def toy_offset(toy: Safetensors) -> int:
    return int.from_bytes(toy.encode()[:8], "little") + 8


def test_an_odd_offset_is_really_tested(tmp_path: Path) -> None:
    offsets = set()
    for pad in range(4):
        toy = toy_safetensors()
        toy.pad = pad
        offsets.add(toy_offset(toy) % 4)
    assert offsets == {0, 1, 2, 3}


def test_unaligned_vectors(tmp_path: Path) -> None:
    for pad in range(4):
        toy = toy_safetensors()
        toy.pad = pad
        source = load(write_hf(tmp_path, weights=toy))
        assert source.vector("output_norm.weight", 32).tolist() == numbers("output_norm.weight", (32,)).tolist()


def test_the_header_need_not_be_in_the_order_of_the_data(tmp_path: Path) -> None:
    a, b = Entry("F32", [1], b"\1\2\3\4", [4, 8]), Entry("F32", [1], b"\5\6\7\10", [0, 4])
    path = Safetensors({"a": a, "b": b}).write(tmp_path / "x.safetensors")
    tensors = read_safetensors(path)
    assert tensors["a"].data.tobytes() == b"\5\6\7\10"
    assert tensors["b"].data.tobytes() == b"\1\2\3\4"


def test_the_first_tensor_that_is_cut_off_is_named(tmp_path: Path) -> None:
    a, b = Entry("F32", [4], bytes(16), [16, 32]), Entry("F32", [4], bytes(16), [0, 16])
    path = tmp_path / "x.safetensors"
    path.write_bytes(Safetensors({"a": a, "b": b}).encode()[:-20])
    with pytest.raises(BadFile, match="tensor 'b' ends at byte"):
        read_safetensors(path)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_shards(tmp_path: Path, count: int) -> None:
    tensors = open_safetensors(write_shards(tmp_path, count))
    assert len({tensor.file.path for tensor in tensors.values()}) == count
    for name, shape in TOY_SHAPES.items():
        assert tensors[HF_NAMES[name]].data.tobytes() == numbers(name, shape).tobytes()
    load(tmp_path)


def test_the_single_file_wins_over_an_index(tmp_path: Path) -> None:
    """As in transformers: a leftover index beside model.safetensors is not read."""
    write_shards(tmp_path)
    write_hf(tmp_path)
    assert {tensor.file.path.name for tensor in open_safetensors(tmp_path).values()} == {"model.safetensors"}


def test_nothing_to_open(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"neither model\.safetensors nor .*it has pytorch_model\.bin"):
        open_safetensors(tmp_path)


def hub_cache(tmp_path: Path) -> Path:
    """A snapshot of the Hugging Face cache: its files are links into ../../blobs."""
    snapshot, blobs = tmp_path / "models--toy" / "snapshots" / "main", tmp_path / "models--toy" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_hf(snapshot)
    for number, path in enumerate(sorted(snapshot.iterdir())):
        shutil.move(path, blobs / str(number))
        path.symlink_to(Path("../../blobs") / str(number))
    return snapshot


def test_links_of_the_hub_cache_are_followed(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    assert (snapshot / "model.safetensors").is_symlink()
    assert len(load(snapshot).tensors) == 12


def test_other_links_of_a_snapshot_are_not(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    shutil.copytree(snapshot.parent.parent / "blobs", snapshot.parent.parent / "blobs2")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../blobs2/1")
    with pytest.raises(BadFile, match="a link out of the directory"):
        load(snapshot)


def test_blobs_of_no_cache_are_outside(tmp_path: Path) -> None:
    """Only a directory inside `snapshots` has blobs of its own two levels up."""
    snapshot = hub_cache(tmp_path)
    other = snapshot.parent.with_name("copies")
    snapshot.parent.rename(other)
    with pytest.raises(BadFile, match="a link out of the directory"):
        load(other / "main")


def test_links_inside_the_directory_are_followed(tmp_path: Path) -> None:
    write_hf(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights")
    (tmp_path / "model.safetensors").symlink_to("weights")
    assert len(load(tmp_path).tensors) == 12
    assert member(tmp_path, "model.safetensors") == tmp_path / "model.safetensors"


def test_a_deep_index_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[" * 100_000)
    with pytest.raises(BadFile, match="nested too deeply"):
        open_safetensors(tmp_path)


def test_an_index_of_a_hundred_megabytes_is_not_read(tmp_path: Path) -> None:
    write_shards(tmp_path)
    with (tmp_path / "model.safetensors.index.json").open("r+b") as file:
        file.truncate(100_000_001)
    with pytest.raises(BadFile, match="100000001 bytes are too many"):
        open_safetensors(tmp_path)


def test_two_shards_with_one_tensor(tmp_path: Path) -> None:
    write_shards(tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    first = next(iter(index["weight_map"]))
    toy = toy_safetensors()
    held = [name for name, shard in index["weight_map"].items() if shard.startswith("model-00002")]
    shard = Safetensors({name: toy.tensors[name] for name in [*held, first]})
    shard.write(tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(BadFile, match=f"tensor '{first}' is also in model-00001-of-00002.safetensors"):
        open_safetensors(tmp_path)


def test_a_duplicate_among_many_keys_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    names = ",".join(f'"{number}":{{}}' for number in range(200_000))
    Safetensors({}, header=f'{{{names},"199999":{{}}}}'.encode()).write(path)
    start = time.process_time()
    with pytest.raises(BadFile, match="key '199999' occurs twice"):
        read_safetensors(path)
    assert time.process_time() - start < 2.0
