"""The arithmetic under the decoder, in two forms with the same meaning.

`Blas` is for real checkpoints: numpy's matrix products and functions, fast, but their last bits depend on the
processor and on the number of threads. `Ordered` is for the committed fixtures: it uses only operations that IEEE
754 fixes to the last bit (add, subtract, multiply, divide, square root, rounding, scaling by powers of two) in an
order written down here, so that every machine computes the same logits to the last digit.

Letters: n rows of activations, m rows of weights, k columns.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Maths(Protocol):
    """What the decoder needs beyond add, multiply and divide."""

    def product(self, x: Array, w: Array) -> Array:
        """(n, k) activations times (m, k) weights: (n, m) dot products."""
        ...

    def total(self, x: Array) -> Array:
        """Sum over the last axis."""
        ...

    def exp(self, x: Array) -> Array: ...

    def cos(self, x: Array) -> Array: ...

    def sin(self, x: Array) -> Array: ...

    def tanh(self, x: Array) -> Array: ...


class Blas:
    """numpy as it comes: fast, equal between machines to about 1e-15 of each result."""

    def product(self, x: Array, w: Array) -> Array:
        return np.asarray(x @ w.T)

    def total(self, x: Array) -> Array:
        return np.asarray(x.sum(axis=-1))

    def exp(self, x: Array) -> Array:
        return np.asarray(np.exp(x))

    def cos(self, x: Array) -> Array:
        return np.asarray(np.cos(x))

    def sin(self, x: Array) -> Array:
        return np.asarray(np.sin(x))

    def tanh(self, x: Array) -> Array:
        return np.asarray(np.tanh(x))


LN2_HIGH = 6.93147180369123816490e-01  # the upper 33 bits of ln 2, so that n * LN2_HIGH is exact for |n| < 2^20
LN2_LOW = 1.90821492927058770002e-10
HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)  # pi/2 in three parts
FACTORIALS = [1.0]
for _n in range(1, 25):
    FACTORIALS.append(FACTORIALS[-1] * _n)  # exact: 22! and below fit a double, and the rest round once


def polynomial(x: Array, coefficients: list[float]) -> Array:
    """Horner's rule, lowest power first in `coefficients`."""
    value = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


class Ordered:
    """The same functions from IEEE-exact steps alone: about one unit in the last place, the same bits everywhere."""

    def product(self, x: Array, w: Array) -> Array:
        out = np.zeros((x.shape[0], w.shape[0]))
        for j in range(x.shape[1]):
            out = out + x[:, j : j + 1] * w[:, j]
        return out

    def total(self, x: Array) -> Array:
        return np.asarray(np.add.accumulate(x, axis=-1)[..., -1])  # a running sum has only one order

    def exp(self, x: Array) -> Array:
        """exp(x) = 2^n exp(r) with r = x - n ln 2, |r| <= 0.35; below -745 the result is 0."""
        x = np.maximum(x, -1000.0)
        n = np.rint(x * (1.0 / (LN2_HIGH + LN2_LOW)))
        r = (x - n * LN2_HIGH) - n * LN2_LOW
        return np.asarray(np.ldexp(polynomial(r, [1.0 / f for f in FACTORIALS[:16]]), n.astype(np.int64)))

    def cos(self, x: Array) -> Array:
        return self._turn(x, 1)

    def sin(self, x: Array) -> Array:
        return self._turn(x, 0)

    def _turn(self, x: Array, quarters: int) -> Array:
        """sin(x + quarters * pi/2) by Taylor series on |r| <= pi/4, for |x| below a million."""
        k = np.rint(x * (2.0 / np.pi))
        r = ((x - k * HALF_PI[0]) - k * HALF_PI[1]) - k * HALF_PI[2]
        z = r * r
        sine = r * polynomial(z, [(-1.0) ** i / FACTORIALS[2 * i + 1] for i in range(11)])
        cosine = polynomial(z, [(-1.0) ** i / FACTORIALS[2 * i] for i in range(11)])
        quadrant = (k.astype(np.int64) + quarters) % 4
        value = np.where(quadrant % 2 == 0, sine, cosine)
        return np.asarray(np.where(quadrant >= 2, -value, value))

    def tanh(self, x: Array) -> Array:
        size = 1.0 - 2.0 / (self.exp(2.0 * np.minimum(np.abs(x), 30.0)) + 1.0)
        return np.asarray(np.copysign(size, x))


def power(base: float, exponent: Fraction) -> float:
    """base ** exponent, rounded once: a handful of frequencies per model, worth having right to the last bit."""
    with localcontext() as context:
        context.prec = 50
        return float(Decimal(base) ** (Decimal(exponent.numerator) / Decimal(exponent.denominator)))


def log(x: float) -> float:
    """Natural logarithm, rounded once."""
    with localcontext() as context:
        context.prec = 50
        return float(Decimal(x).ln())
