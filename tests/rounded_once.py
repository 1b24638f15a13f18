"""Fused multiply-add from its definition: exact rational numbers, rounded once. Shares nothing with the kernels'."""

from __future__ import annotations

import math
from fractions import Fraction


def fma(a: float, b: float, c: float) -> float:
    """a * b + c with one rounding (IEEE 754); infinities and NaNs as the two operations have them."""
    if math.isfinite(a) and math.isfinite(b) and math.isfinite(c):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact:
            try:
                return float(exact)
            except OverflowError:
                return math.copysign(math.inf, exact)
    return a * b + c
