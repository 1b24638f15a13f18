"""Tensors by GGUF name over either format: matrices and experts as views into mapped files, vectors as float64."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.formats import StoredType

Bytes = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """One file's bytes, mapped read-only; `data` is the whole file, and keeps the mapping alive.

    A tensor that the file does not align to its number size lives in a MappedFile of its own: an aligned copy.
    """

    path: Path
    data: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A stored matrix [rows, cols], row-major, rows of whole blocks; nothing is copied."""

    name: str  # GGUF name
    format: StoredType
    rows: int
    cols: int
    file: MappedFile
    offset: int  # of row 0 in file.data
    nbytes: int

    @property
    def data(self) -> Bytes:
        """The matrix' bytes, a view (nbytes,)."""
        return self.file.data[self.offset : self.offset + self.nbytes]


@dataclass(frozen=True, slots=True, eq=False)
class Experts(Sequence[Matrix]):
    """The same matrix of every expert of a layer: experts[e] is a Matrix [rows, cols].

    The experts may be slices of one tensor (a constant stride) or tensors of their own, in several files.
    """

    name: str  # GGUF name of the stacked tensor
    format: StoredType
    rows: int
    cols: int
    files: tuple[MappedFile, ...]  # of each expert
    offsets: tuple[int, ...]  # of each expert, in its file
    nbytes: int  # of one expert

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Matrix: ...
    @overload
    def __getitem__(self, index: slice) -> list[Matrix]: ...
    def __getitem__(self, index: int | slice) -> Matrix | list[Matrix]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        file, offset = self.files[index], self.offsets[index]
        return Matrix(self.name, self.format, self.rows, self.cols, file, offset, self.nbytes)


class WeightSource:
    """An opened model: its config and its tensors, by GGUF name."""

    config: ModelConfig

    def matrix(self, name: str, rows: int, cols: int) -> Matrix:
        """The matrix with this GGUF name, e.g. blk.0.attn_q.weight.

        BadFile if it is missing or misshapen, Unsupported if its type has no meaning as weights.
        """
        raise NotImplementedError

    def experts(self, name: str, count: int, rows: int, cols: int) -> Experts:
        """The experts of e.g. blk.0.ffn_gate_exps.weight, stacked or one by one in the file."""
        raise NotImplementedError

    def vector(self, name: str, length: int) -> Vector:
        """A norm or bias as float64 (length,); adds 1 to the norms of a Hugging Face Gemma, which scale by 1 + w."""
        raise NotImplementedError

    def check_all_consumed(self) -> None:
        """BadFile if the files hold tensors that nobody asked for."""
        raise NotImplementedError


def open_weights(path: str | Path) -> WeightSource:
    """Open a GGUF file (any shard of a split one) or a directory with config.json and safetensors."""
    raise NotImplementedError
