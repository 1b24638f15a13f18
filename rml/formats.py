"""Every way in which a tensor can be stored: one table, in the order of ggml's type numbers.

A stored type packs a fixed number of weights (a block) into a fixed number of bytes. F32, F16, BF16 are blocks of one.
Source of the numbers: `enum ggml_type` and the block structures of ggml-common.h (llama.cpp).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class StoredType:
    """One way to store weights.

    name, id: ggml's; the id is also the kernel id of the types that have kernels.
    block_weights, block_bytes: size of one block; 0 bytes = the layout is not known here (removed types, forks).
    has_kernel: the engine multiplies this type directly.
    slow: no kernel; dequantised through the gguf package, a block row at a time.
    activation_group: int8 activations share one scale per this many positions (0 = float type, no int8 path).
    """

    name: str
    id: int
    block_weights: int
    block_bytes: int
    has_kernel: bool = False
    slow: bool = False
    activation_group: int = 0

    @property
    def is_float(self) -> bool:
        """Whether a block is one floating-point number that the engine can multiply."""
        return self.has_kernel and self.block_weights == 1

    @property
    def usable(self) -> bool:
        """Whether a tensor of this type can serve as weights."""
        return self.has_kernel or self.slow

    def row_bytes(self, weights: int) -> int:
        """Bytes of a row of `weights` weights, which must be whole blocks (the caller has checked)."""
        return weights // self.block_weights * self.block_bytes

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.id >= 0 else self.name


def _float(name: str, number: int, size: int) -> StoredType:
    return StoredType(name, number, 1, size, has_kernel=True)


def _quant(name: str, number: int, weights: int, size: int) -> StoredType:
    return StoredType(name, number, weights, size, has_kernel=True, activation_group=weights)


def _slow(name: str, number: int, weights: int, size: int) -> StoredType:
    return StoredType(name, number, weights, size, slow=True)


F32: Final = _float("F32", 0, 4)
F16: Final = _float("F16", 1, 2)
BF16: Final = _float("BF16", 30, 2)

_TABLE: Final = (
    F32,
    F16,
    _quant("Q4_0", 2, 32, 18),
    _quant("Q4_1", 3, 32, 20),
    StoredType("Q4_2", 4, 1, 0),  # removed from ggml in 2023; only the name is left
    StoredType("Q4_3", 5, 1, 0),
    _quant("Q5_0", 6, 32, 22),
    _quant("Q5_1", 7, 32, 24),
    _quant("Q8_0", 8, 32, 34),
    StoredType("Q8_1", 9, 32, 40),  # activations, never weights; so is Q8_K
    _quant("Q2_K", 10, 256, 84),
    _quant("Q3_K", 11, 256, 110),
    _quant("Q4_K", 12, 256, 144),
    _quant("Q5_K", 13, 256, 176),
    _quant("Q6_K", 14, 256, 210),
    StoredType("Q8_K", 15, 256, 292),
    _slow("IQ2_XXS", 16, 256, 66),
    _slow("IQ2_XS", 17, 256, 74),
    _slow("IQ3_XXS", 18, 256, 98),
    _slow("IQ1_S", 19, 256, 50),
    _slow("IQ4_NL", 20, 32, 18),
    _slow("IQ3_S", 21, 256, 110),
    _slow("IQ2_S", 22, 256, 82),
    _slow("IQ4_XS", 23, 256, 136),
    StoredType("I8", 24, 1, 1),  # integers have a layout but no meaning as weights
    StoredType("I16", 25, 1, 2),
    StoredType("I32", 26, 1, 4),
    StoredType("I64", 27, 1, 8),
    StoredType("F64", 28, 1, 8),
    _slow("IQ1_M", 29, 256, 56),
    BF16,
    StoredType("Q4_0_4_4", 31, 1, 0),  # removed: repacked at load by llama.cpp instead
    StoredType("Q4_0_4_8", 32, 1, 0),
    StoredType("Q4_0_8_8", 33, 1, 0),
    _slow("TQ1_0", 34, 256, 54),
    _slow("TQ2_0", 35, 256, 66),
    StoredType("IQ4_NL_4_4", 36, 1, 0),
    StoredType("IQ4_NL_4_8", 37, 1, 0),
    StoredType("IQ4_NL_8_8", 38, 1, 0),
    _slow("MXFP4", 39, 32, 17),
    _slow("NVFP4", 40, 64, 36),
    StoredType("Q1_0", 41, 128, 18),  # gguf-py 0.19 knows its size but cannot dequantise it
)

BY_ID: Final = {stored.id: stored for stored in _TABLE}
BY_NAME: Final = {stored.name: stored for stored in _TABLE}
KERNEL_TYPES: Final = tuple(stored for stored in _TABLE if stored.has_kernel)


def stored_type(number: int) -> StoredType:
    """The type with this ggml number; an unknown number gets a name that says so, and cannot be used as weights."""
    return BY_ID.get(number) or StoredType("unknown", number, 1, 0)
