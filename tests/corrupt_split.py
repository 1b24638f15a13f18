"""One builder for each lie that a set of GGUF shards can tell."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from toy_files import Gguf, Lie, i32, string, toy_gguf

from rml.errors import BadFile


def write_split(directory: Path, count: int = 3, **changes: Callable[[list[Gguf]], None]) -> list[Path]:
    """The toy in `count` shards, the first of them metadata only."""
    toy = toy_gguf()
    names = list(toy.tensors)
    share = -(-len(names) // max(count - 1, 1))
    shards = []
    for number in range(count):
        held = names[(number - 1) * share : number * share] if number else []
        keys = toy.keys if number == 0 else {}
        split = {"split.no": struct.pack("<IH", 2, number), "split.count": struct.pack("<IH", 2, count)}
        split["split.tensors.count"] = i32(len(names))
        shards.append(Gguf(keys | split, {name: toy.tensors[name] for name in held}))
    for change in changes.values():
        change(shards)
    paths = [directory / f"toy-{number + 1:05}-of-{count:05}.gguf" for number in range(count)]
    for shard, path in zip(shards, paths, strict=True):
        shard.write(path)
    return paths


def _split(change: Callable[[list[Gguf]], None]) -> Callable[[Path], Path]:
    return lambda directory: write_split(directory, change=change)[0]


def _lost(directory: Path) -> Path:
    paths = write_split(directory)
    paths[1].unlink()
    return paths[2]


def _renamed(directory: Path) -> Path:
    return write_split(directory)[0].rename(directory / "model.gguf")


def _swap(directory: Path) -> Path:
    paths = write_split(directory)
    second = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].write_bytes(second)
    return paths[0]


SPLIT_LIES = [
    Lie("a shard lost", _lost, BadFile, ("toy-00002-of-00003.gguf", "missing")),
    Lie("a shard renamed", _renamed, BadFile, ("model.gguf", "-of-00003.gguf")),
    Lie("shards exchanged", _swap, BadFile, ("split.no is 2, expected 1",)),
    Lie(
        "counts that disagree",
        _split(lambda shards: shards[2].keys.update({"split.count": struct.pack("<IH", 2, 4)})),
        BadFile,
        ("toy-00003-of-00003.gguf", "split.count is 4, expected 3"),
    ),
    Lie(
        "a shard of no set",
        _split(lambda shards: shards[2].keys.clear()),
        BadFile,
        ("toy-00003-of-00003.gguf", "split.no is None"),
    ),
    Lie(
        "a tensor in two shards",
        _split(lambda shards: shards[2].tensors.update({"token_embd.weight": shards[1].tensors["token_embd.weight"]})),
        BadFile,
        ("'token_embd.weight'", "toy-00002-of-00003.gguf"),
    ),
    Lie(
        "a tensor in no shard",
        _split(lambda shards: shards[2].tensors.__delitem__("output.weight")),
        BadFile,
        ("split.tensors.count is 12", "11 tensors"),
    ),
    Lie(
        "a count of text",
        _split(lambda s: s[0].keys.update({"split.count": string("3")})),
        BadFile,
        ("split.count", "'3'"),
    ),
]
