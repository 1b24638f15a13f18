"""GGUF files: typed metadata and the tensor table of one file or of a split set, without touching tensor data.

Layout (llama.cpp, ggml/include/gguf.h), all little-endian: magic, version u32, tensor count u64, key count u64; the
keys, each a string, a type u32 and a value; the tensors, each a string, its dimensions (fastest first), type u32 and
offset u64; padding; the data.

Arrays, above all the tokenizer's with up to 262,144 strings, are skipped when the file is opened, and read when asked
for. Nothing is allocated, and no loop started, on the word of a length that the rest of the file could not hold.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from rml.errors import BadFile, Unsupported
from rml.formats import stored_type
from rml.mapped_file import MappedFile, StoredTensor, but_it_is, check_no_overlap, map_file

Scalar = int | float | bool | str

_STRING: Final = 8
_ARRAY: Final = 9
_BOOL: Final = 7
_NUMBERS: Final = {  # value type -> name, layout for numpy, layout for struct
    0: ("u8", "<u1", struct.Struct("<B")),
    1: ("i8", "<i1", struct.Struct("<b")),
    2: ("u16", "<u2", struct.Struct("<H")),
    3: ("i16", "<i2", struct.Struct("<h")),
    4: ("u32", "<u4", struct.Struct("<I")),
    5: ("i32", "<i4", struct.Struct("<i")),
    6: ("f32", "<f4", struct.Struct("<f")),
    _BOOL: ("bool", "<u1", struct.Struct("<B")),
    10: ("u64", "<u8", struct.Struct("<Q")),
    11: ("i64", "<i8", struct.Struct("<q")),
    12: ("f64", "<f8", struct.Struct("<d")),
}
_U32: Final = _NUMBERS[4][2]
_U64: Final = _NUMBERS[10][2]

_MIN_KEY_BYTES: Final = 8 + 4 + 1  # an empty name, the type, a one-byte value
_MIN_TENSOR_BYTES: Final = 8 + 4 + 8 + 4 + 8  # an empty name, one dimension
_MAX_DIMENSIONS: Final = 4
_DEFAULT_ALIGNMENT: Final = 32


class _Cursor:
    """Reads forward through a header, and knows what it is reading when the file ends too early."""

    def __init__(self, file: MappedFile, position: int = 0) -> None:
        self.file = file
        self.buffer = file.data.data
        self.position = position
        self.what = "the header"

    def left(self) -> int:
        return len(self.buffer) - self.position

    def need(self, count: int, what: str) -> None:
        """BadFile unless `count` more bytes follow."""
        if count > self.left():
            raise BadFile(
                f"{self.file.path}: {self.what}: {what} needs {count} bytes, but the file ends after "
                f"{self.left()} more (at {len(self.buffer)} bytes); the file is truncated or damaged, fetch it again"
            )

    def number(self, form: struct.Struct, what: str) -> int | float:
        self.need(form.size, what)
        value: int | float = form.unpack_from(self.buffer, self.position)[0]
        self.position += form.size
        return value

    def u32(self, what: str) -> int:
        return int(self.number(_U32, what))

    def u64(self, what: str) -> int:
        return int(self.number(_U64, what))

    def string(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        self.need(length, what)
        raw = bytes(self.buffer[self.position : self.position + length])
        self.position += length
        return _text(raw, f"{self.file.path}: {self.what}: {what}")

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings; this loop is most of the time it takes to open a file with a large vocabulary."""
        buffer, position, unpack = self.buffer, self.position, _U64.unpack_from
        try:
            for _ in range(count):
                position += 8 + unpack(buffer, position)[0]
        except (struct.error, OverflowError):
            position = len(buffer) + 1  # a length led out of the file
        if position > len(buffer):
            raise BadFile(f"{self.file.path}: {self.what}: {what} of {count} strings runs past the end of the file")
        self.position = position


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{what} is not UTF-8: {raw[:40]!r}") from error


class GgufArray(Sequence[Scalar]):
    """An array in the metadata, still in the file: `len` is free, `read` parses it."""

    def __init__(self, file: MappedFile, key: str, element: int, length: int, offset: int) -> None:
        self._file, self._key, self._element, self._length, self._offset = file, key, element, length, offset

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<{self._length} x {self.element_type}>"

    @property
    def element_type(self) -> str:
        """u8, i8, u16, i16, u32, i32, f32, bool, string, u64, i64 or f64."""
        return "string" if self._element == _STRING else _NUMBERS[self._element][0]

    def strings(self) -> list[str]:
        """The array's strings; BadFile if it holds numbers, or bytes that are not UTF-8."""
        if self._element != _STRING:
            raise BadFile(f"{self._file.path}: key {self._key}: expected strings, found {self!r}")
        buffer, position, unpack = self._file.data.data, self._offset, _U64.unpack_from
        result: list[bytes] = []
        for _ in range(self._length):
            start = position + 8
            position = start + unpack(buffer, position)[0]
            result.append(bytes(buffer[start:position]))
        where = f"{self._file.path}: key {self._key}"
        return [_text(raw, f"{where}: string {i}") for i, raw in enumerate(result)]

    def numbers(self) -> npt.NDArray[np.generic]:
        """The array's numbers or booleans (length,), of their own type; BadFile if it holds strings."""
        if self._element == _STRING:
            raise BadFile(f"{self._file.path}: key {self._key}: expected numbers, found {self!r}")
        name, form, _ = _NUMBERS[self._element]
        numbers = np.frombuffer(self._file.data, form, self._length, self._offset)
        return numbers.astype(np.bool_) if name == "bool" else numbers

    def read(self) -> list[Scalar]:
        """All elements as Python values."""
        if self._element == _STRING:
            return list(self.strings())
        values: list[Scalar] = self.numbers().tolist()
        return values

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self.read())

    @overload
    def __getitem__(self, index: int) -> Scalar: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scalar]: ...
    def __getitem__(self, index: int | slice) -> Scalar | list[Scalar]:
        return self.read()[index]


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """One GGUF file, or the union of a split set: the first shard's metadata and every shard's tensors."""

    path: Path
    files: tuple[MappedFile, ...]
    metadata: Mapping[str, Scalar | GgufArray]
    tensors: Mapping[str, StoredTensor]


def open_gguf(path: Path) -> GgufFile:
    """Read the header of a GGUF file; of every file of the set if it is one shard of a split model.

    BadFile for whatever contradicts the format, Unsupported for versions other than 2 and 3.
    """
    shard = read_gguf(path)
    count = _split_number(shard, "split.count")
    return shard if count is None or count < 2 else _join(shard, count)


def read_gguf(path: Path) -> GgufFile:
    """Read the header of this one file."""
    file = map_file(path)
    cursor = _Cursor(file)
    _check_magic(cursor)
    tensor_count, key_count = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
    cursor.need(key_count * _MIN_KEY_BYTES, f"a table of {key_count} keys")
    metadata = _read_metadata(cursor, key_count)
    cursor.what = "the tensor table"
    cursor.need(tensor_count * _MIN_TENSOR_BYTES, f"a table of {tensor_count} tensors")
    tensors = _read_tensors(cursor, tensor_count, _alignment(path, metadata))
    return GgufFile(path, (file,), metadata, tensors)


def _check_magic(cursor: _Cursor) -> None:
    path, head = cursor.file.path, bytes(cursor.buffer[:64])
    if head[:4] != b"GGUF":
        raise BadFile(f"{path}: not a GGUF file, its first four bytes should be b'GGUF'{but_it_is(head)}")
    cursor.position = 4
    version = cursor.u32("the version")
    if version in (2, 3):
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
        raise Unsupported(f"{path}: a big-endian file; convert it with gguf-py's gguf_convert_endian.py")
    raise Unsupported(f"{path}: unsupported version {version} of GGUF (2 and 3 are read); convert the model again")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Scalar | GgufArray]:
    metadata: dict[str, Scalar | GgufArray] = {}
    for index in range(count):
        cursor.what = f"key {index + 1} of {count}"
        key = cursor.string("its name")
        cursor.what = f"key {key!r}"
        if key in metadata:
            raise BadFile(f"{cursor.file.path}: {cursor.what} occurs twice")
        metadata[key] = _read_value(cursor, key, cursor.u32("its type"))
    return metadata


def _read_value(cursor: _Cursor, key: str, kind: int) -> Scalar | GgufArray:
    if kind == _STRING:
        return cursor.string("its value")
    if kind == _ARRAY:
        return _skip_array(cursor, key)
    if kind not in _NUMBERS:
        raise BadFile(f"{cursor.file.path}: {cursor.what} has the unknown value type {kind} (0 to 12 are defined)")
    value = cursor.number(_NUMBERS[kind][2], "its value")
    if kind != _BOOL:
        return value
    if value not in (0, 1):
        raise BadFile(f"{cursor.file.path}: {cursor.what} is a bool, expected 0 or 1, found {value}")
    return bool(value)


def _skip_array(cursor: _Cursor, key: str) -> GgufArray:
    element, length = cursor.u32("its element type"), cursor.u64("its length")
    what = f"its array of {length} elements"
    if element == _ARRAY:
        raise Unsupported(f"{cursor.file.path}: {cursor.what} is an array of arrays, which no known model uses")
    array = GgufArray(cursor.file, key, element, length, cursor.position)
    if element == _STRING:
        cursor.need(8 * length, what)
        cursor.skip_strings(length, "its array")
    elif element in _NUMBERS:
        cursor.need(_NUMBERS[element][2].size * length, what)
        cursor.position += _NUMBERS[element][2].size * length
    else:
        raise BadFile(f"{cursor.file.path}: {cursor.what} has the unknown element type {element} (0 to 12 are defined)")
    return array


def _alignment(path: Path, metadata: Mapping[str, Scalar | GgufArray]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(value) is not int or value < 8 or value & (value - 1) or value > 1 << 20:
        raise BadFile(f"{path}: key 'general.alignment' is {value!r}, expected a power of two from 8 to {1 << 20}")
    return value


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, StoredTensor]:
    table: list[tuple[str, tuple[int, ...], int, int]] = []
    for index in range(count):
        cursor.what = f"tensor {index + 1} of {count}"
        name = cursor.string("its name")
        cursor.what = f"tensor {name!r}"
        dimensions = _read_dimensions(cursor)
        table.append((name, dimensions, cursor.u32("its type"), cursor.u64("its offset")))
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, shape, type_number, offset in table:
        if name in tensors:
            raise BadFile(f"{cursor.file.path}: tensor {name!r} occurs twice")
        tensors[name] = _tensor(cursor.file, name, shape, type_number, (offset, data_start, alignment))
    check_no_overlap(tensors.values())
    return tensors


def _read_dimensions(cursor: _Cursor) -> tuple[int, ...]:
    """The shape in row-major order: the file lists the fastest dimension first."""
    count = cursor.u32("its number of dimensions")
    if not 1 <= count <= _MAX_DIMENSIONS:
        raise BadFile(f"{cursor.file.path}: {cursor.what} has {count} dimensions, expected 1 to {_MAX_DIMENSIONS}")
    shape = tuple(cursor.u64("its dimensions") for _ in range(count))[::-1]
    if 0 in shape:
        raise BadFile(f"{cursor.file.path}: {cursor.what} has no elements: its shape is {list(shape)}")
    if prod(shape) >= 1 << 63:
        raise BadFile(f"{cursor.file.path}: {cursor.what}: the product of its shape {list(shape)} overflows 64 bits")
    return shape


def _tensor(
    file: MappedFile, name: str, shape: tuple[int, ...], type_number: int, place: tuple[int, int, int]
) -> StoredTensor:
    offset, data_start, alignment = place
    stored = stored_type(type_number)
    where = f"{file.path}: tensor {name!r}"
    if shape[-1] % stored.block_weights:
        raise BadFile(
            f"{where}: row length {shape[-1]} is not a multiple of {stored.block_weights}, the block length of {stored}"
        )
    if offset % alignment:
        raise BadFile(f"{where}: offset {offset} is not a multiple of the alignment {alignment}")
    nbytes = prod(shape) // stored.block_weights * stored.block_bytes
    if data_start + offset + nbytes > file.size:
        raise BadFile(
            f"{where}: its {nbytes} bytes at offset {offset} of the data (byte {data_start + offset} of the file) "
            f"end at {data_start + offset + nbytes}, but the file has {file.size} bytes; fetch it again"
        )
    return StoredTensor(name, stored, shape, file, data_start + offset, nbytes)


_SHARD_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def _split_number(shard: GgufFile, key: str) -> int | None:
    value = shard.metadata.get(key)
    if value is not None and (type(value) is not int or value < 0):
        raise BadFile(f"{shard.path}: key {key!r} is {value!r}, expected a count")
    return value


def _join(shard: GgufFile, count: int) -> GgufFile:
    """All shards of the set that `shard` belongs to; split.no counts from 0, file names from 1."""
    name = _SHARD_NAME.fullmatch(shard.path.name)
    if name is None or int(name["count"]) != count:
        raise BadFile(
            f"{shard.path}: one of {count} shards (split.count), so its name should end in -0000N-of-{count:05}.gguf; "
            "give the shards their original names back"
        )
    paths = [shard.path.with_name(f"{name['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise BadFile(
            f"{shard.path}: one of {count} shards, of which these are missing beside it: {', '.join(missing)}"
        )
    shards = [shard if path == shard.path else read_gguf(path) for path in paths]
    for number, each in enumerate(shards):
        _check_shard(each, number, count)
    tensors = _union(shards)
    expected = _split_number(shards[0], "split.tensors.count")
    if expected is not None and expected != len(tensors):
        raise BadFile(
            f"{paths[0]}: split.tensors.count is {expected}, but the {count} shards hold {len(tensors)} tensors"
        )
    return GgufFile(paths[0], tuple(each.files[0] for each in shards), shards[0].metadata, tensors)


def _check_shard(shard: GgufFile, number: int, count: int) -> None:
    for key, expected in (("split.no", number), ("split.count", count)):
        found = _split_number(shard, key)
        if found != expected:
            raise BadFile(f"{shard.path}: {key} is {found}, expected {expected}; the shards are not of one set")


def _union(shards: list[GgufFile]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in tensors:
                raise BadFile(f"{shard.path}: tensor {name!r} is also in {tensors[name].file.path.name}")
            tensors[name] = tensor
    return tensors
