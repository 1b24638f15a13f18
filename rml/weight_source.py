"""Tensors by GGUF name over either format: matrices and experts as views into mapped files, vectors as float64."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.config_gguf import from_gguf
from rml.config_hf import from_hf
from rml.errors import BadFile, InvalidArgument, LoadWarning, Unsupported
from rml.formats import BF16, F16, F32, StoredType
from rml.gguf_file import GgufArray, Scalar, open_gguf
from rml.mapped_file import Bytes, MappedFile, StoredTensor
from rml.safetensors_file import open_safetensors
from rml.tensor_names import Place, gguf_places, hf_expert_names, hf_places, is_allowed, is_norm, refuse_known

__all__ = ["Experts", "MappedFile", "Matrix", "Vector", "WeightSource", "open_weights"]

Vector = npt.NDArray[np.float64]
Shape = tuple[int, ...]


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
    in_panels: bool = False  # not rows, but as kernels/pack.py lays them out

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
    """An opened model: its config and its tensors, by GGUF name.

    `tensors` is the table of the files' own names. Asking for a tensor consumes it; `check_all_consumed` after loading.
    """

    def __init__(
        self,
        path: Path,
        config: ModelConfig,
        tensors: Mapping[str, StoredTensor],
        metadata: Mapping[str, Scalar | GgufArray] | None = None,
        spare: Collection[str] = (),
    ) -> None:
        self.path = path  # the GGUF file (of a split set its first shard) or the directory
        self.config = config
        self.tensors = tensors
        self.metadata = metadata  # GGUF's; None for a Hugging Face directory
        self._spare = spare  # names in the files that may go unused
        self._used: dict[str, dict[int, int]] = {}  # name in the files -> first row -> rows that were handed out
        self._total: dict[str, int] = {}  # name in the files -> its rows (of each slice, if it is a stack)
        self._copies: dict[str, MappedFile] = {}

    def matrix(self, name: str, rows: int, cols: int) -> Matrix:
        """The matrix with this GGUF name, e.g. blk.0.attn_q.weight.

        BadFile if it is missing or misshapen, Unsupported if its type has no meaning as weights. A tied head,
        output.weight, is the embedding.
        """
        if name == "output.weight" and self.config.tied_head:
            return replace(self.matrix("token_embd.weight", rows, cols), name=name)
        tensor, place = self._find(name, (), rows, (cols,))
        return self._slices(name, tensor, place, 1, (rows, cols))[0]

    def experts(self, name: str, count: int, rows: int, cols: int) -> Experts:
        """The experts of e.g. blk.0.ffn_gate_exps.weight, stacked, fused or one by one in the files."""
        if self.metadata is None and self._present(hf_expert_names(name, 0)):
            return self._gather(name, count, (rows, cols))
        tensor, place = self._find(name, (count,), rows, (cols,))
        return self._slices(name, tensor, place, count, (rows, cols))

    def vector(self, name: str, length: int) -> Vector:
        """A norm or bias as float64 (length,); adds 1 to the norms of a Hugging Face Gemma, which scale by 1 + w."""
        tensor, place = self._find(name, (), length, ())
        values = _to_float64(tensor)[place.first : place.first + length]
        if name == "rope_freqs.weight" and not (np.isfinite(values) & (values > 0)).all():
            raise BadFile(f"{tensor.file.path}: tensor {name!r} divides frequencies, but holds {values.min()}")
        return values + self.config.norm_offset if is_norm(name) else values

    def check_all_consumed(self) -> None:
        """BadFile if the files hold tensors, or parts of fused tensors, that nobody asked for."""
        left = [name for name in self.tensors if not self._is_consumed(name)]
        if left:
            shown = ", ".join(repr(name) for name in left[:5]) + (", ..." if len(left) > 5 else "")
            raise BadFile(
                f"{self.path}: {len(left)} of {len(self.tensors)} tensors have no place in this model: {shown}; "
                "the config does not belong to these weights, or they are of a variant that is not supported"
            )

    def _is_consumed(self, name: str) -> bool:
        if name in self._used:
            return sum(self._used[name].values()) == self._total[name]
        return name in self._spare or is_allowed(name)

    def _present(self, names: Iterable[str]) -> str | None:
        return next((name for name in names if name in self.tensors), None)

    def _find(self, name: str, stack: Shape, rows: int, cols: Shape) -> tuple[StoredTensor, Place]:
        """The stored tensor [*stack, total, *cols] with the GGUF one [*stack, rows, *cols] in it; consumes that."""
        find = hf_places if self.metadata is None else gguf_places
        places = find(name, rows, self.config)
        for place in places:
            if place.name in self.tensors:
                self._check(name, place.name, (*stack, place.total, *cols))
                self._used.setdefault(place.name, {})[place.first] = rows
                self._total[place.name] = place.total
                return self.tensors[place.name], place
        raise BadFile(self._missing(name, [place.name for place in places], (*stack, rows, *cols)))

    def _missing(self, name: str, names: Sequence[str], shape: Shape) -> str:
        also = "" if list(names) == [name] else f" (looked for {', '.join(names)})"
        return f"{self.path}: tensor {name!r} {list(shape)}, which the config asks for, is missing{also}"

    def _check(self, name: str, stored_name: str, shape: Shape) -> None:
        tensor = self.tensors[stored_name]
        where = f"{tensor.file.path}: tensor {stored_name!r}" + (f" ({name})" if name != stored_name else "")
        if tensor.shape != shape:
            raise BadFile(f"{where} has the shape {list(tensor.shape)}, expected {list(shape)}")
        if not tensor.type.usable:
            raise Unsupported(f"{where}: type {tensor.type} is not supported as weights")

    def _slices(self, name: str, tensor: StoredTensor, place: Place, count: int, shape: tuple[int, int]) -> Experts:
        """Rows of each of `count` slices of a tensor."""
        rows, cols = shape
        file, offset = self._aligned(tensor)
        row = tensor.type.row_bytes(cols)
        offsets = tuple(offset + (each * place.total + place.first) * row for each in range(count))
        return Experts(name, tensor.type, rows, cols, (file,) * count, offsets, rows * row)

    def _gather(self, name: str, count: int, shape: tuple[int, int]) -> Experts:
        """Experts that are tensors of their own, all of one type."""
        rows, cols = shape
        tensors = []
        for expert in range(count):
            names = hf_expert_names(name, expert)
            single = self._present(names)
            if single is None:  # before anything is allocated for the rest of `count`
                raise BadFile(self._missing(f"{name}[{expert}]", names, shape))
            self._check(f"expert {expert} of {name}", single, shape)
            self._used[single], self._total[single] = {0: rows}, rows
            tensors.append(self.tensors[single])
        kind = tensors[0].type
        other = next((each for each in tensors if each.type != kind), None)
        if other is not None:
            raise Unsupported(
                f"{other.file.path}: tensor {other.name!r} is {other.type}, but {tensors[0].name!r} is {kind}: "
                "experts of a layer must share a type"
            )
        places = [self._aligned(each) for each in tensors]
        files, offsets = tuple(file for file, _ in places), tuple(offset for _, offset in places)
        return Experts(name, kind, rows, cols, files, offsets, tensors[0].nbytes)

    def _aligned(self, tensor: StoredTensor) -> tuple[MappedFile, int]:
        """The tensor's file and offset; for numbers that lie across their natural boundaries, of an aligned copy."""
        if not tensor.type.is_float or tensor.offset % tensor.type.block_bytes == 0:
            return tensor.file, tensor.offset
        if tensor.name not in self._copies:
            self._copies[tensor.name] = MappedFile(tensor.file.path, tensor.data.copy())
        return self._copies[tensor.name], 0


def _to_float64(tensor: StoredTensor) -> Vector:
    """A float tensor's numbers, flat, exactly."""
    data = tensor.data.tobytes()  # also where the numbers are not aligned in the file
    if tensor.type == F32:
        return np.frombuffer(data, "<f4").astype(np.float64)
    if tensor.type == F16:
        return np.frombuffer(data, "<f2").astype(np.float64)
    if tensor.type == BF16:
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    raise Unsupported(f"{tensor.file.path}: tensor {tensor.name!r}: a vector of type {tensor.type} is not supported")


def open_weights(path: str | Path) -> WeightSource:
    """Open a GGUF file (any shard of a split one) or a directory with config.json and safetensors.

    InvalidArgument if there is no such thing, ConfigError, BadFile or Unsupported for what is wrong with it.
    """
    path = Path(path)
    if path.is_dir():
        return _open_hf(path)
    if path.name == "config.json" or path.suffix == ".safetensors":
        raise InvalidArgument(f"{path}: one file of a Hugging Face model; give its directory, {path.parent}")
    return _open_gguf(path)


def _open_gguf(path: Path) -> WeightSource:
    gguf = open_gguf(path)
    config = from_gguf(str(path), gguf.metadata, {name: tensor.shape for name, tensor in gguf.tensors.items()})
    refuse_known(str(path), gguf.tensors)
    return WeightSource(gguf.path, config, gguf.tensors, gguf.metadata)


def _open_hf(directory: Path) -> WeightSource:
    if not (directory / "config.json").exists():
        files = ", ".join(sorted(path.name for path in directory.glob("*.gguf"))[:4])
        hint = f"; it holds {files}: give such a file" if files else ""
        raise InvalidArgument(f"{directory}: has no config.json{hint}")
    config = from_hf(directory)
    tensors = open_safetensors(directory)
    refuse_known(str(directory), tensors)
    head, embedding = (
        next((tensors[place.name] for place in hf_places(name, 0, config) if place.name in tensors), None)
        for name in ("output.weight", "token_embd.weight")
    )
    if head is None:
        if not config.tied_head:
            raise BadFile(
                f"{directory}: tensor 'lm_head.weight' is missing, and the head is not tied to the embedding "
                f"({config.sources['tied_head']})"
            )
        return WeightSource(directory, config, tensors)
    if not config.tied_head:
        return WeightSource(directory, config, tensors)
    if embedding is None:  # the one tensor of both, saved under its other name
        tensors = {("model.embed_tokens.weight" if each is head else name): each for name, each in tensors.items()}
        return WeightSource(directory, config, tensors)
    if _same_data(head, embedding):
        return WeightSource(directory, config, tensors, spare=(head.name,))
    warnings.warn(
        f"{directory}: the config ties the head to the embedding, but lm_head.weight is there and differs: it is used",
        LoadWarning,
        stacklevel=3,
    )
    sources = dict(config.sources) | {"tied_head": "tensor table: lm_head.weight differs from the embedding"}
    return WeightSource(directory, replace(config, tied_head=False, sources=sources), tensors)


def _same_data(a: StoredTensor, b: StoredTensor) -> bool:
    if (a.type, a.shape) != (b.type, b.shape):
        return False
    start = 1 << 20  # different heads differ early; only equal ones are read whole
    return np.array_equal(a.data[:start], b.data[:start]) and np.array_equal(a.data, b.data)
