"""Calls kernels over borrowed memory: zero copies, arguments prepared once, without the GIL in the release build.

Three ways to run the same source (kernels.md of the specification, step 5):

- release: the compiled C functions, through `ctypes.CDLL`, without the GIL. A `vec` parameter is passed as
  struct {int64 length; void *items}, `bytes` as a pointer 32 bytes before the data. Nothing checks an index.
- checked: the same functions of a build with bounds tests, through `ctypes.PyDLL`, so that IndexError arrives.
- interpreted: the Python source, run by CPython, with memoryviews in place of vec.

Buffers of the last two lie inside a real `bytes` object, so that one piece of memory can be handed to a kernel as
vec[float], vec[i64] and bytes at once in every mode. Kernels rely on that: they write a float and read its bits.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rml.build_info import BUILD
from rml.errors import KernelsUnavailable

Array = npt.NDArray[Any]

FOLDER: Final = Path(__file__).parent / "kernels"
BYTES_HEADER: Final = 32  # from a bytes object's start to its data, CPython 3.11 to 3.13, 64-bit
ALIGNMENT: Final = 64  # one cache line
ITEM: Final = {
    "vec[u8]": np.dtype(np.uint8),
    "vec[i16]": np.dtype(np.int16),
    "vec[i32]": np.dtype(np.int32),
    "vec[i64]": np.dtype(np.int64),
    "vec[float]": np.dtype(np.float64),
}


class Vec(ctypes.Structure):
    """A borrowed `vec`: what a compiled kernel sees of an array."""

    _fields_ = (("length", ctypes.c_int64), ("items", ctypes.c_void_p))


C_TYPE: Final[dict[str, Any]] = {
    **dict.fromkeys(ITEM, Vec),
    "bytes": ctypes.c_void_p,
    "i64": ctypes.c_int64,
    "float": ctypes.c_double,
}
C_RESULT: Final[dict[str, Any]] = {"None": ctypes.c_char, "i64": ctypes.c_int64, "float": ctypes.c_double}


# ---------------------------------------------------------------------------------------------------------- memory


def _aligned(nbytes: int) -> Array:
    """(nbytes,) zeroed u8, 64-byte aligned; pages of a large buffer are not resident until touched."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _inside_bytes(nbytes: int) -> Array:
    """(nbytes,) zeroed u8, writable, the data of a bytes object that lives as long as the array."""
    raw = bytes(max(nbytes, 2))  # bytes of length 0 and 1 are shared by the interpreter
    memory = (ctypes.c_char * nbytes).from_address(id(raw) + BYTES_HEADER)
    memory.raw_bytes = raw  # type: ignore[attr-defined]
    return np.frombuffer(memoryview(memory).cast("B"), np.uint8) if nbytes else np.zeros(0, np.uint8)


def buffer(count: int, dtype: npt.DTypeLike) -> Array:
    """(count,) zeros of `dtype` that kernels may read and write, also through aliased views of other types."""
    nbytes = count * np.dtype(dtype).itemsize
    memory = _aligned(nbytes) if BUILD.mode == "release" else _inside_bytes(nbytes)
    return memory.view(dtype)


def copy(values: npt.ArrayLike, dtype: npt.DTypeLike) -> Array:
    """The values, flat, in a kernel buffer of their own."""
    source = np.asarray(values, dtype).ravel()
    result = buffer(source.size, dtype)
    result[:] = source
    return result


def join(parts: Sequence[Array]) -> tuple[Array, list[int]]:
    """One u8 memory in which all `parts` (u8 arrays, mapped files for instance) can be reached, and each one's offset.

    In release no byte moves: the memory is the first part, and the offset of another is the distance of their
    addresses, which may be negative or beyond the first part's end. The others copy all parts into one buffer.
    The caller keeps the parts alive.
    """
    if BUILD.mode == "release":
        return parts[0], [part.ctypes.data - parts[0].ctypes.data for part in parts]
    memory = buffer(sum(part.size for part in parts), np.uint8)
    offsets, position = [], 0
    for part in parts:
        memory[position : position + part.size] = part
        offsets.append(position)
        position += part.size
    return memory, offsets


def _bytes_of(array: Array) -> bytes:
    """The bytes object whose data the whole array is (checked and interpreted modes)."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    memory = base.obj if isinstance(base, memoryview) else base
    raw = getattr(memory, "raw_bytes", None)
    if not isinstance(raw, bytes) or id(raw) + BYTES_HEADER != array.ctypes.data:
        raise TypeError("a bytes argument must be a whole buffer made by rml.native.buffer")
    return raw


# --------------------------------------------------------------------------------------------------------- kernels


class _SourceFinder:
    """Loads rml.kernels.* from their .py files although compiled modules lie beside them (interpreted mode)."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> Any:
        package, _, module = name.rpartition(".")
        if package != "rml.kernels":
            return None
        loader = importlib.machinery.SourceFileLoader(name, str(FOLDER / f"{module}.py"))
        return importlib.util.spec_from_file_location(name, loader.path, loader=loader)


if BUILD.mode == "interpreted":
    sys.meta_path.insert(0, _SourceFinder())


@cache
def _module(name: str) -> ModuleType:
    module = importlib.import_module(f"rml.kernels.{name}")
    compiled = not str(module.__file__).endswith(".py")
    if compiled != (BUILD.mode != "interpreted"):
        raise KernelsUnavailable(f"{module.__file__}: {BUILD.mode} kernels expected. Reinstall the project")
    return module


@cache
def _library() -> ctypes.CDLL:
    """The shared library of the whole kernel group; importing one of its modules has initialised it."""
    _module("probe")
    group = next(m for name, m in sys.modules.items() if name.endswith("rml__mypyc"))
    return (ctypes.CDLL if BUILD.mode == "release" else ctypes.PyDLL)(str(group.__file__))


_PARSING = threading.Lock()  # ranks bind kernels at the same time, and CPython 3.11's ast fails when threads meet in it


@cache
def _signatures(module: str) -> dict[str, tuple[list[tuple[str, str]], str]]:
    """Function name -> ([(parameter, type)], result type), read from the source: compiled functions have none."""
    with _PARSING:
        tree = ast.parse((FOLDER / f"{module}.py").read_text())
    return {
        node.name: (
            [(a.arg, ast.unparse(a.annotation)) for a in node.args.args if a.annotation],
            ast.unparse(node.returns),
        )
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.returns is not None
    }


class Kernel:
    """One kernel function, bound. `Kernel(*arguments)` runs it; `prepare` converts the arguments once for many runs."""

    def __init__(self, name: str) -> None:
        """`name` is "module.function" below rml/kernels. Raises KernelsUnavailable when there is none."""
        self.name = name
        module, _, function = name.partition(".")
        try:
            parameters, self.result = _signatures(module)[function]
        except (FileNotFoundError, KeyError):
            raise KernelsUnavailable(f"no kernel {name}") from None
        self.parameters = [parameter for parameter, _ in parameters]
        self.kinds = [kind for _, kind in parameters]
        self._function = self._bind(module, function)

    def _bind(self, module: str, function: str) -> Callable[..., Any]:
        found = _module(module)
        if BUILD.mode == "interpreted":
            result: Callable[..., Any] = getattr(found, function)
            return result
        symbol = getattr(_library(), f"CPyDef_{module}___{function}")
        symbol.argtypes = [C_TYPE[kind] for kind in self.kinds]
        symbol.restype = C_RESULT[self.result]
        return symbol  # type: ignore[no-any-return]

    def _convert(self, position: int, value: Any) -> Any:
        kind = self.kinds[position]
        if kind not in ITEM and kind != "bytes":
            return (float if kind == "float" else int)(value)
        if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
            raise TypeError(f"{self.name}: {self.parameters[position]} must be a contiguous array, not {type(value)}")
        if kind in ITEM and value.dtype != ITEM[kind]:
            raise TypeError(f"{self.name}: {self.parameters[position]} is {kind}, given {value.dtype}")
        if BUILD.mode == "interpreted":
            return _bytes_of(value) if kind == "bytes" else memoryview(value.reshape(-1).data)
        if kind == "bytes":
            start = value.ctypes.data if BUILD.mode == "release" else id(_bytes_of(value)) + BYTES_HEADER
            return ctypes.c_void_p(start - BYTES_HEADER)
        return Vec(value.size, value.ctypes.data)

    def prepare(self, *arguments: Any) -> Callable[[], Any]:
        """A callable that runs the kernel on these arguments; keeps the arrays alive."""
        if len(arguments) != len(self.kinds):
            raise TypeError(f"{self.name} takes {self.parameters}, given {len(arguments)} arguments")
        converted = [self._convert(i, value) for i, value in enumerate(arguments)]
        function, as_result = self._function, self.result

        def call(keep: tuple[Any, ...] = arguments) -> Any:
            result = function(*converted)
            return None if as_result == "None" else result

        return call

    def __call__(self, *arguments: Any) -> Any:
        return self.prepare(*arguments)()


@cache
def kernel(name: str) -> Kernel:
    """The bound kernel "module.function"; bound once."""
    return Kernel(name)


# ----------------------------------------------------------------------------------------------------------- probe


def check_convention() -> None:
    """Calls the probe kernel with one argument of every kind. Raises KernelsUnavailable when an echo is wrong."""
    a, b, c = copy([1, 200], np.uint8), copy([1, -300], np.int16), copy([1, -70_000], np.int32)
    d, e = buffer(7, np.int64), copy([0, 0, 0, 2.5], np.float64)
    g = buffer(24, np.uint8)
    g[:8] = np.frombuffer(np.int64(-(2**62) + 0x8001_8002).tobytes(), np.uint8)
    g[8:16].view(np.float64)[:] = -1.2345678901234567e-7
    result = kernel("probe.echo")(a, b, c, d, e, g, -(2**40), -113.0)
    half, word, long = g[:2].view(np.int16)[0], g[:4].view(np.int32)[0], g[:8].view(np.int64)[0]
    single, double = g[8:12].view(np.float32)[0], g[8:16].view(np.float64)[0]
    expected = [200, -300, -70_000, -(2**40), int(half), int(word), int(long)]
    good = d.tolist() == expected and e.tolist()[:3] == [-113.0, float(single), float(double)] and result == -110.5
    if not good or kernel("probe.count")(-113) != -113:
        raise KernelsUnavailable(
            f"{BUILD}: the probe kernel echoed {d.tolist()}, {e.tolist()}, {result} where {expected} was expected: "
            "this interpreter or librt passes arguments in another way. Reinstall: `pip install --force-reinstall .`"
        )


check_convention()
