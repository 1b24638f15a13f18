"""Safetensors files: the tensor table of one file or of a sharded set, without touching tensor data.

Layout (the safetensors README): header length u64, little-endian; the header, a JSON object of name -> {dtype, shape,
data_offsets}, which may end in spaces; the data, which the tensors fill without gap or overlap.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final, NoReturn, TypeGuard

from rml.errors import BadFile, InvalidArgument
from rml.formats import BF16, F16, F32, StoredType
from rml.json_file import MAX_JSON_BYTES, member, parse_json, read_json
from rml.mapped_file import MappedFile, StoredTensor, but_it_is, check_no_overlap, map_file

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"

# Types that are no weights here still have a size, so that a table with them can be checked and shown.
_OTHER_BYTES: Final = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16"), 2),
    **dict.fromkeys(("U32", "I32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
_TYPES: Final = {
    "F32": F32,
    "F16": F16,
    "BF16": BF16,
    **{name: StoredType(name, -1, 1, size) for name, size in _OTHER_BYTES.items()},
}


def open_safetensors(directory: Path) -> dict[str, StoredTensor]:
    """All tensors of a model directory: of model.safetensors, else of the shards that the index names.

    InvalidArgument if the directory has neither, BadFile for whatever is wrong with them.
    """
    single = member(directory, SINGLE)
    if single.exists():
        return read_safetensors(single)
    index = member(directory, INDEX)
    if index.exists():
        return _open_shards(directory, index)
    others = sorted(path.name for path in directory.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".safetensors"))
    hint = f"; it has {', '.join(others[:4])}: save the model as {SINGLE}" if others else ""
    raise InvalidArgument(f"{directory}: has neither {SINGLE} nor {INDEX}{hint}")


def _open_shards(directory: Path, index: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadFile(f"{index}: key 'weight_map' should map tensor names to files, found {type(weight_map).__name__}")
    paths: dict[str, Path] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            raise BadFile(f"{index}: tensor {name!r}: expected a file name, found {shard!r}")
        if shard not in paths:
            paths[shard] = member(directory, shard)
    missing = [shard for shard, path in paths.items() if not path.is_file()]
    if missing:
        raise BadFile(f"{index}: shards that it names are not in the directory: {', '.join(missing)}; fetch them")
    tensors: dict[str, StoredTensor] = {}
    for shard, path in paths.items():
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                raise BadFile(f"{path}: tensor {name!r} is also in {tensors[name].file.path.name}")
            if weight_map.get(name) != shard:
                place = weight_map.get(name, "no shard")
                raise BadFile(f"{path}: holds tensor {name!r}, which {INDEX} places in {place}")
            tensors[name] = tensor
    for name, shard in weight_map.items():
        if name not in tensors:
            raise BadFile(f"{paths[shard]}: lacks tensor {name!r}, which {INDEX} places in it")
    return tensors


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensor table of one file."""
    file = map_file(path)
    start = _data_start(file)
    header = parse_json(file.data[8:start].tobytes(), f"{path}: the header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise BadFile(f"{path}: __metadata__ should be an object, found {type(metadata).__name__}")
    tensors = {name: _tensor(file, start, name, entry) for name, entry in header.items()}
    _check_cover(file, start, tensors)
    return tensors


def _data_start(file: MappedFile) -> int:
    """Where the header ends; a length that the file cannot hold means that it is some other file."""
    head = file.data[:64].tobytes()
    if file.size < 8:
        raise BadFile(f"{file.path}: {file.size} bytes, a safetensors file has at least 8{but_it_is(head)}")
    length = int.from_bytes(head[:8], "little")
    limit = min(MAX_JSON_BYTES, file.size - 8)
    if not 2 <= length <= limit:
        kind = but_it_is(head)
        raise BadFile(
            f"{file.path}: not a safetensors file, or a truncated one: a header of {length} bytes, expected 2 to "
            f"{limit} in a file of {file.size}{kind}"
        )
    return 8 + length


def _tensor(file: MappedFile, start: int, name: str, entry: object) -> StoredTensor:
    def fail(what: str, found: object) -> NoReturn:
        raise BadFile(f"{file.path}: tensor {name!r}: expected {what}, found {found!r}"[:500])

    if not isinstance(entry, Mapping):
        fail("an object with dtype, shape and data_offsets", entry)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        fail("a dtype", dtype)
    if not _are_sizes(shape):
        fail("a shape", shape)
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        fail("data_offsets [begin, end]", offsets)
    begin, end = offsets
    stored = _TYPES.get(dtype, StoredType(dtype, -1, 1, 0))
    expected = prod(shape) * stored.block_bytes
    if stored.block_bytes and end - begin != expected:
        fail(f"{expected} bytes ({dtype} {list(shape)})", f"{end - begin} bytes ({begin} to {end})")
    return StoredTensor(name, stored, tuple(shape), file, start + begin, end - begin)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _check_cover(file: MappedFile, start: int, tensors: Mapping[str, StoredTensor]) -> None:
    """The tensors lie in the file and fill its data: bytes that none covers would be a place to hide something in."""
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        end = tensor.offset + tensor.nbytes
        if end > file.size:
            raise BadFile(
                f"{file.path}: tensor {tensor.name!r} ends at byte {end}, but the file has {file.size} bytes; "
                "the download is incomplete, fetch it again"
            )
    end, before = start, "the header"
    for tensor in check_no_overlap(tensors.values()):
        if tensor.offset > end:
            raise BadFile(
                f"{file.path}: {tensor.offset - end} bytes between {before} and tensor {tensor.name!r} are no tensor"
            )
        end, before = tensor.offset + tensor.nbytes, f"tensor {tensor.name!r}"
    if end != file.size:
        raise BadFile(
            f"{file.path}: {file.size - end} bytes after {before}, the last: expected {end} bytes, found {file.size}"
        )
