"""What a model file says and what it will cost, as plain data: the content of `rml inspect`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from rml.errors import RmlError
from rml.formats import StoredType
from rml.gguf_file import open_gguf
from rml.mapped_file import StoredTensor
from rml.memory import Memory, estimate
from rml.safetensors_file import open_safetensors
from rml.tokenizer_files import open_tokenizer
from rml.weight_source import WeightSource, open_weights


def inspect(path: str | Path, threads: int = 1, context: int | None = None) -> dict[str, Any]:
    """Everything `rml inspect` shows, JSON values only.

    A model that cannot be run, because something in it has no place in the recipe, is still listed: `problem` says why,
    and config and memory are missing.

    Raises:
        RmlError: the file's own table cannot be read.
    """
    place = Path(path)
    report: dict[str, Any] = {"path": str(place), "format": "hf" if place.is_dir() else "gguf"}
    try:
        source = open_weights(place)
        memory = estimate(source, threads)
    except RmlError as error:
        tensors = open_safetensors(place) if place.is_dir() else open_gguf(place).tensors
        return report | {"problem": str(error)} | tensor_report(tensors)
    config = source.config
    return (
        report
        | {"problem": None, "parameters": config.parameter_count, "config": config_report(source)}
        | tensor_report(source.tensors)
        | {
            "memory": memory_report(memory, context or config.max_position_embeddings),
            "tokenizer": tokenizer_report(place),
        }
    )


def config_report(source: WeightSource) -> dict[str, dict[str, Any]]:
    """Each value of the effective config, and where it came from; the parts of RoPE under their own names."""
    config, report = source.config, {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "sources":
            continue
        origin = config.sources.get(field.name, "")
        if dataclasses.is_dataclass(value):
            for part in dataclasses.fields(value):
                name = f"{field.name}.{part.name}"
                report[name] = {"value": getattr(value, part.name), "source": config.sources.get(name, origin)}
        else:
            plain = (
                sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value
            )
            report[field.name] = {"value": plain, "source": origin}
    return report


def tensor_report(tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensor table in the files' order, and its totals. bits_per_weight is None if a type's size is not known."""
    rows = [
        {
            "name": tensor.name,
            "type": tensor.type.name,
            "shape": list(tensor.shape),
            "bytes": max(tensor.nbytes, 0),
            "file": tensor.file.path.name,
            "offset": tensor.offset,
            "use": use_of(tensor.type),
        }
        for tensor in tensors.values()
    ]
    total = sum(max(tensor.nbytes, 0) for tensor in tensors.values())
    count = sum(prod(tensor.shape) for tensor in tensors.values())
    known = all(tensor.type.block_bytes for tensor in tensors.values())
    return {"stored_weights": count, "bits_per_weight": 8 * total / count if known and count else None, "tensors": rows}


def use_of(stored: StoredType) -> str:
    """How the engine would use a type."""
    if stored.has_kernel:
        return "fast"
    return "slow: dequantised through gguf" if stored.slow else "cannot be used as weights"


def grouped(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tensor table with the layers folded: one row per name, type and shape, the numbers in names written `*`."""
    groups: dict[tuple[str, str, tuple[int, ...]], dict[str, Any]] = {}
    for row in rows:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", row["name"])
        key = (name, row["type"], tuple(row["shape"]))
        group = groups.setdefault(key, {**row, "name": name, "count": 0, "bytes": 0})
        group["count"] += 1
        group["bytes"] += row["bytes"]
    return list(groups.values())


def memory_report(memory: Memory, context: int) -> dict[str, Any]:
    """Bytes by purpose, and the cache for `context` positions in each dtype."""
    return {
        "weights": memory.weights,
        "panels": memory.panels,
        "copies": memory.copies,
        "workspace": memory.workspace,
        "logits": memory.logits,
        "threads": memory.threads,
        "context": context,
        "cache": {dtype: memory.cache_bytes(dtype, context) for dtype in memory.cache},
    }


def tokenizer_report(place: Path) -> dict[str, Any]:
    """What the tokenizer says about itself, or why there is none."""
    try:
        tokenizer = open_tokenizer(place)
    except RmlError as error:
        return {"problem": str(error)}
    return {
        "problem": None,
        "tokens": tokenizer.vocab_size,
        "bos": tokenizer.bos_id,
        "add_bos": tokenizer.add_bos,
        "eos": sorted(tokenizer.eos_ids),
        "chat_template": tokenizer.chat_template is not None,
    }
