"""Fused multiply-add: a product and a sum, rounded once (IEEE 754, fusedMultiplyAdd).

A result that is defined exactly is the same on every processor, so kernels may use it where their bits are promised.
The build (setup.py) turns every call into the compiler's own: one instruction on x86-64-v3, every 64-bit ARM and
later, elsewhere the C library's function, which is exact and slow. What stands here is for kernels that CPython runs:
its own function from 3.13 on, before that the C library's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Final, cast


def of_c_library() -> Callable[[float, float, float], float]:
    """fma of the C library that CPython itself is linked with."""
    function = ctypes.PyDLL(None).fma  # PyDLL: to give the lock away for each product would take longer than it
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * 3
    return cast("Callable[[float, float, float], float]", function)


FUSED: Final[Callable[[float, float, float], float]] = getattr(math, "fma", None) or of_c_library()


def fma(a: float, b: float, c: float) -> float:
    """a * b + c with one rounding."""
    return FUSED(a, b, c)
