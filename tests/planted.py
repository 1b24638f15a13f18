"""Copies of toy models with one thing wrong, in both formats: tensors changed in place, keys of configs rewritten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from golden_cases import case

import rml
from rml.mapped_file import MappedFile
from rml.verify_bisect import Bisection
from rml.verify_sides import EngineSide
from rml.verify_text import random_ids
from rml.weight_source import open_weights

Floats = npt.NDArray[np.float64]
Change = Callable[[Floats], Floats]
CODES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Copy:
    """A copy of fixtures/`name` ("llama/hf", "llama/model.gguf") below `folder`, to be damaged."""

    def __init__(self, name: str, folder: Path) -> None:
        original = case(name).model
        self.path = folder / name.replace("/", "-")
        (shutil.copytree if original.is_dir() else shutil.copy)(original, self.path)
        self.is_gguf = original.suffix == ".gguf"
        self.config = open_weights(self.path).config

    def change(self, name: str, change: Change, expert: int | None = None) -> Copy:
        """Replaces a tensor, by GGUF name: `change` gets it as float64, (rows, cols) or (length,), rows as they lie."""
        self.write(name, change(self.read(name, expert)), expert)
        return self

    def read(self, name: str, expert: int | None = None) -> Floats:
        """A tensor's numbers as they are stored."""
        file, offset, nbytes, kind, shape = self._place(name, expert)
        data = file.data[offset : offset + nbytes].tobytes()
        raw = np.frombuffer(data, CODES[kind])
        return (decode(raw) if kind == "BF16" else raw.astype(np.float64)).reshape(shape)

    def write(self, name: str, values: Floats, expert: int | None = None) -> None:
        """Stores numbers in the tensor's place and type; they must be exact in it, or the fault would be another."""
        file, offset, nbytes, kind, shape = self._place(name, expert)
        assert values.shape == shape
        stored = encode(values) if kind == "BF16" else values.astype(CODES[kind])
        back = decode(stored) if kind == "BF16" else stored.astype(np.float64)
        assert np.array_equal(back, values), f"{name}: not exact in {kind}"
        assert stored.nbytes == nbytes
        with file.path.open("r+b") as target:
            target.seek(offset)
            target.write(stored.tobytes())

    def _place(self, name: str, expert: int | None) -> tuple[MappedFile, int, int, str, tuple[int, ...]]:
        source = open_weights(self.path)
        shape = dict(source.config.tensor_shapes())[name]
        if len(shape) == 3:
            assert expert is not None
            one = source.experts(name, *shape)[expert]
            return one.file, one.offset, one.nbytes, one.format.name, shape[1:]
        if len(shape) == 2:
            matrix = source.matrix(name, *shape)
            return matrix.file, matrix.offset, matrix.nbytes, matrix.format.name, shape
        source.vector(name, *shape)  # finds the tensor under the files' own name
        tensor = source.tensors[next(iter(source._used))]
        return tensor.file, tensor.offset, tensor.nbytes, tensor.type.name, shape

    def set(self, **values: Any) -> Copy:
        """Sets keys of config.json, or of GGUF metadata (same type and size; `__` stands for a dot)."""
        if not self.is_gguf:
            file = self.path / "config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | values))
            return self
        reader = gguf.GGUFReader(self.path, "r+")
        architecture = reader.fields["general.architecture"].contents()
        for key, value in values.items():
            field = reader.fields[f"{architecture}.{key.replace('__', '.')}"]
            field.parts[field.data[0]][0] = value
        reader.data.flush()
        return self


def decode(stored: npt.NDArray[np.uint16]) -> Floats:
    """bfloat16 bits as numbers."""
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def encode(values: Floats) -> npt.NDArray[np.uint16]:
    """Numbers as bfloat16 bits, cut off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


IDS = random_ids(64, 41)
FORMATS = {"hf": "hf", "gguf": "model.gguf"}


def side(path: Path) -> EngineSide:
    """A run of the engine on a model, exact."""
    return EngineSide(rml.load(path, threads=1, dot="exact"), path.name)


def text_of(found: Bisection) -> str:
    """What a bisection says of the first step over the limit."""
    assert found.first is not None
    return "\n".join([*found.first.hints, *found.first.evidence])
