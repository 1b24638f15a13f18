"""One builder for each lie that a safetensors file or the index of a sharded model can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toy_files import (
    HF_NAMES,
    HIDDEN,
    VOCAB,
    Entry,
    Lie,
    Safetensors,
    toy_config,
    toy_safetensors,
    write_hf,
)

from rml.errors import BadFile, Unsupported

LONG = 1 << 63


def _hf(**fields: Any) -> Callable[[Path], Path]:
    return lambda directory: write_hf(directory, weights=replace(toy_safetensors(), **fields))


def _entry(name: str, **fields: Any) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        toy = toy_safetensors()
        toy.tensors[name] = replace(toy.tensors[name], **fields)
        return write_hf(directory, weights=toy)

    return build


def _raw(data: bytes) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        write_hf(directory)
        (directory / "model.safetensors").write_bytes(data)
        return directory

    return build


def _cut_hf(where: int) -> Callable[[Path], Path]:
    return lambda directory: _raw(toy_safetensors().encode()[:where])(directory)


SIZE = len(toy_safetensors().encode())
FIRST, LAST = HF_NAMES["token_embd.weight"], HF_NAMES["output.weight"]
EMBED_BYTES = VOCAB * HIDDEN * 4

SAFETENSORS_LIES = [
    Lie("header of 2^63 bytes", _hf(length=LONG), BadFile, ("model.safetensors", str(LONG))),
    Lie("header of the file + 1", _hf(length=SIZE + 1), BadFile, (str(SIZE + 1), f"in a file of {SIZE}")),
    Lie("header of 0 bytes", _hf(length=0), BadFile, ("header of 0 bytes",)),
    Lie("header cut short", _hf(length=50), BadFile, ("header", "not JSON")),
    Lie("a list for a header", _hf(header=b"[]"), BadFile, ("header", "list")),
    Lie("a header 100000 deep", _hf(header=b'{"a":' + b"[" * 100_000 + b"}"), BadFile, ("nested",)),
    Lie("a number of 5000 digits", _hf(header=b'{"a":' + b"9" * 5000 + b"}"), BadFile, ("not JSON",)),
    Lie("a header of NaN", _hf(header=b'{"a":NaN}'), BadFile, ("NaN",)),
    Lie("a header that is not text", _hf(header=b'{"a\xff":1}'), BadFile, ("not JSON",)),
    Lie("a tensor twice", _hf(header=b'{"a":{},"a":{}}'), BadFile, ("'a'", "twice")),
    Lie("metadata of text", _hf(metadata="pt"), BadFile, ("__metadata__", "str")),
    Lie("empty file", _raw(b""), BadFile, ("empty",)),
    Lie("7 bytes", _cut_hf(7), BadFile, ("7 bytes", "at least 8")),
    Lie("cut in the header", _cut_hf(200), BadFile, ("in a file of 200",)),
    Lie("cut by a byte", _cut_hf(SIZE - 1), BadFile, (LAST, str(SIZE), str(SIZE - 1))),
    Lie("a byte too many", _hf(tail=b"x"), BadFile, (LAST, str(SIZE), str(SIZE + 1))),
    Lie(
        "a Git LFS pointer",
        _raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        BadFile,
        ("LFS pointer",),
    ),
    Lie("a zip", _raw(b"PK\x03\x04" + bytes(100)), BadFile, ("zip",)),
    Lie("a GGUF", _raw(b"GGUF" + bytes(100)), BadFile, ("GGUF",)),
    Lie(
        "an overlap of 4 bytes",
        _entry(HF_NAMES["blk.0.attn_norm.weight"], offsets=[EMBED_BYTES - 4, EMBED_BYTES + 124]),
        BadFile,
        (FIRST, "input_layernorm", "overlap"),
    ),
    Lie(
        "a hole of 4 bytes",
        lambda directory: write_hf(
            directory,
            weights=Safetensors({"a": Entry("F32", [1], bytes(8), [0, 4]), "b": Entry("F32", [1], bytes(4), [8, 12])}),
        ),
        BadFile,
        ("4 bytes between tensor 'a' and tensor 'b'",),
    ),
    Lie("begin after end", _entry(FIRST, offsets=[8, 4]), BadFile, (FIRST, "[8, 4]")),
    Lie("end past the file", _entry(LAST, offsets=[0, 1 << 50]), BadFile, (LAST, str(1 << 50))),
    Lie("a shape of other size", _entry(FIRST, shape=[64, 31]), BadFile, (FIRST, "7936", "8192")),
    Lie("a negative shape", _entry(FIRST, shape=[-64, -32]), BadFile, (FIRST, "shape")),
    Lie("a shape of text", _entry(FIRST, shape=["64", 32]), BadFile, (FIRST, "shape")),
    Lie("a shape of 2^64", _entry(FIRST, shape=[2**64, 32]), BadFile, (FIRST, "bytes")),
    Lie("three offsets", _entry(FIRST, offsets=[0, 4, 8]), BadFile, (FIRST, "data_offsets")),
    Lie("offsets of text", _entry(FIRST, offsets="0"), BadFile, (FIRST, "data_offsets")),
    Lie("a dtype of 5", _entry(FIRST, dtype=5), BadFile, (FIRST, "dtype")),
    Lie("8-bit floats", _entry(FIRST, dtype="F8_E4M3", shape=[256, 32]), BadFile, ("[256, 32]", "[64, 32]")),
    Lie("integers", _entry(FIRST, dtype="I32"), Unsupported, (FIRST, "I32", "not supported")),
    Lie("a dtype of the future", _entry(FIRST, dtype="F4"), Unsupported, (FIRST, "F4", "not supported")),
    Lie(
        "float64 norm", _entry(HF_NAMES["output_norm.weight"], dtype="F64", shape=[16]), BadFile, ("model.norm", "[16]")
    ),
]


def write_shards(directory: Path, count: int = 2, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """The toy in shards with an index; `change` edits the index."""
    toy = toy_safetensors()
    (directory / "config.json").write_text(json.dumps(toy_config()))
    names = list(toy.tensors)
    weight_map: dict[str, str] = {}
    for number in range(count):
        shard = f"model-{number + 1:05}-of-{count:05}.safetensors"
        held = names[number::count]
        Safetensors({name: toy.tensors[name] for name in held}).write(directory / shard)
        weight_map |= dict.fromkeys(held, shard)
    index: dict[str, Any] = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    if change is not None:
        change(index)
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


SECOND_SHARD = "model-00002-of-00002.safetensors"


def _mapped_to(name: object) -> Callable[[Path], Path]:
    """An index that sends one tensor to `name`; a file that must not be read lies outside the directory."""

    def build(directory: Path) -> Path:
        inside = directory / "model"
        (inside / "a").mkdir(parents=True)
        toy_safetensors().write(directory / "x.safetensors")
        target = name.replace("OUTSIDE", str(directory)) if isinstance(name, str) else name
        return write_shards(inside, change=lambda index: index["weight_map"].update({FIRST: target}))

    return build


def _link_out(directory: Path) -> Path:
    build = _mapped_to("link.safetensors")(directory)
    (build / "link.safetensors").symlink_to(directory / "x.safetensors")
    return build


def _missing_shard(directory: Path) -> Path:
    (write_shards(directory) / SECOND_SHARD).unlink()
    return directory


def _linked_single(directory: Path) -> Path:
    inside = directory / "model"
    inside.mkdir()
    write_hf(inside)
    (inside / "model.safetensors").rename(directory / "x.safetensors")
    (inside / "model.safetensors").symlink_to(directory / "x.safetensors")
    return inside


def _indexed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], Path]:
    def edit(index: dict[str, Any]) -> None:
        change(index)

    return lambda directory: write_shards(directory, change=edit)


SHARD_LIES = [
    Lie("a shard missing", _missing_shard, BadFile, (SECOND_SHARD, "not in the directory")),
    Lie(
        "a tensor not in its shard",
        _indexed(lambda index: index["weight_map"].update({"model.more.weight": SECOND_SHARD})),
        BadFile,
        (SECOND_SHARD, "lacks", "'model.more.weight'"),
    ),
    Lie(
        "a tensor not in the index",
        _indexed(lambda index: index["weight_map"].pop(FIRST)),
        BadFile,
        (FIRST, "places in no shard"),
    ),
    Lie(
        "a tensor in another shard",
        _indexed(lambda index: index["weight_map"].update({FIRST: SECOND_SHARD})),
        BadFile,
        (FIRST, f"places in {SECOND_SHARD}"),
    ),
    Lie("no weight_map", _indexed(lambda index: index.pop("weight_map")), BadFile, ("weight_map", "NoneType")),
    Lie("an empty weight_map", _indexed(lambda index: index["weight_map"].clear()), BadFile, ("weight_map",)),
    Lie("..", _mapped_to("../x.safetensors"), BadFile, ("../x.safetensors", "not a plain file name")),
    Lie("an absolute path", _mapped_to("OUTSIDE/x.safetensors"), BadFile, ("not a plain file name",)),
    Lie("a/../../x", _mapped_to("a/../../x.safetensors"), BadFile, ("a/../../x", "not a plain file name")),
    Lie("backslashes", _mapped_to("..\\x.safetensors"), BadFile, ("not a plain file name",)),
    Lie("the directory itself", _mapped_to(".."), BadFile, ("'..'", "not a plain file name")),
    Lie("an empty name", _mapped_to(""), BadFile, ("''", "not a plain file name")),
    Lie("a name with NUL", _mapped_to("x\0.safetensors"), BadFile, ("not a plain file name",)),
    Lie("a number", _mapped_to(7), BadFile, (FIRST, "expected a file name", "7")),
    Lie("a link out", _link_out, BadFile, ("link.safetensors", "out of the directory")),
    Lie("a link out for the only file", _linked_single, BadFile, ("model.safetensors", "out of the directory")),
]
