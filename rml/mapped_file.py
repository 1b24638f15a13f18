"""Files mapped read-only, the tensors that lie in them, and what a file really is when it is not what it should be."""

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rml.errors import BadFile, InvalidArgument
from rml.formats import StoredType

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """One file's bytes, mapped read-only; `data` is the whole file (size,), and keeps the mapping alive.

    A tensor that the file does not align to its number size lives in a MappedFile of its own: an aligned copy.
    """

    path: Path
    data: Bytes
    mapping: mmap.mmap | None = None  # None: `data` is memory of its own

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return len(self.data)

    def give_back(self, offset: int, nbytes: int) -> None:
        """Bytes that will hardly be read again need not stay resident; what is read again comes from the file."""
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        count = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if self.mapping is not None and count > 0:
            self.mapping.madvise(mmap.MADV_DONTNEED, first, count)


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as its file describes it: shape in row-major order, offset counted from the start of the file."""

    name: str
    type: StoredType
    shape: tuple[int, ...]
    file: MappedFile
    offset: int
    nbytes: int  # 0: the layout of the type is not known here

    @property
    def data(self) -> Bytes:
        """The tensor's bytes, a view (nbytes,)."""
        return self.file.data[self.offset : self.offset + self.nbytes]


def map_file(path: Path) -> MappedFile:
    """Map a whole file; InvalidArgument if it is not there, BadFile if there is nothing in it."""
    if not path.is_file():
        raise InvalidArgument(f"{path}: {'is not a regular file' if path.exists() else 'no such file'}")
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise BadFile(f"{path}: the file is empty; fetch it again")
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return MappedFile(path, np.frombuffer(mapping, np.uint8), mapping)


_SIGNATURES = (
    (b"GGUF", "a GGUF file"),
    (b"version https://git-lfs", "a Git LFS pointer: the real file was never fetched (run `git lfs pull`)"),
    (b"PK\x03\x04", "a zip archive (a PyTorch .bin or .pt file is one)"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"ggml", "a GGML file, GGUF's predecessor (convert the model again)"),
    (b"lmgg", "a GGML file, GGUF's predecessor (convert the model again)"),
    (b"tjgg", "a GGJT file, GGUF's predecessor (convert the model again)"),
    (b"<!DOCTYPE", "a web page: the download answered with HTML"),
    (b"<html", "a web page: the download answered with HTML"),
    (b"{", "JSON text"),
)


def identify(head: bytes) -> str:
    """What the first bytes of a file say that it is; "" if they say nothing."""
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40:
        return "a safetensors file"
    return next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), "")


def but_it_is(head: bytes) -> str:
    """A clause for an error message: what the file is instead."""
    kind = identify(head)
    return f"; it is {kind}" if kind else f"; it starts with {head[:8]!r}"


def check_no_overlap(tensors: Iterable[StoredTensor]) -> list[StoredTensor]:
    """The tensors of one file in the order of their bytes; BadFile naming both when two share bytes."""
    ordered = sorted((t for t in tensors if t.nbytes > 0), key=lambda t: t.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.nbytes > after.offset:
            raise BadFile(
                f"{after.file.path}: tensors {before.name!r} (bytes {before.offset} to "
                f"{before.offset + before.nbytes}) and {after.name!r} (from byte {after.offset}) overlap"
            )
    return ordered
