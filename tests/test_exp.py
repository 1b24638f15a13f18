"""exp, sigmoid and tanh kernels: accuracy, ends of the range, and bits that depend on nothing but the argument."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tolerances import EXP_ULP, SIGMOID_ULP, TANH

from rml.kernels.exp import EXP_SCRATCH
from rml.native import buffer, kernel

Floats = npt.NDArray[np.float64]


def run(name: str, values: npt.ArrayLike, in_place: bool = True) -> Floats:
    x = np.asarray(values, np.float64)
    f = buffer(2 * x.size + EXP_SCRATCH, np.float64)
    f[: x.size] = x
    out = 0 if in_place else x.size
    kernel(f"exp.{name}")(f, f.view(np.uint8), f.view(np.int64), 0, out, x.size, 2 * x.size)
    return f[out : out + x.size].copy()


def arguments(count: int = 3000) -> Floats:
    rng = np.random.default_rng(5)
    parts = rng.uniform(-708, 709, count), -rng.exponential(3.0, count), rng.normal(0, 1e-3, count)
    return np.concatenate(parts)


def ulps(values: Floats, exact: npt.NDArray[np.floating]) -> float:
    return float(np.max(np.abs(values - exact) / np.spacing(exact.astype(np.float64))))


def test_exp_is_within_one_ulp() -> None:
    x = arguments()
    assert ulps(run("exp_into", x), np.exp(x.astype(np.longdouble))) <= EXP_ULP


def test_sigmoid_and_tanh_are_close() -> None:
    x = arguments()
    assert ulps(run("sigmoid_into", x), 1 / (1 + np.exp(-x.astype(np.longdouble)))) <= SIGMOID_ULP
    assert np.max(np.abs(run("tanh_into", x) - np.tanh(x.astype(np.longdouble)))) <= TANH


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.0, 1.0), (-0.0, 1.0), (-708.1, 0.0), (-np.inf, 0.0), (-1.7e308, 0.0), (709.79, np.inf), (np.inf, np.inf)],
)
def test_exp_at_the_ends(x: float, expected: float) -> None:
    assert run("exp_into", [x])[0] == expected


def test_nan_stays_nan() -> None:
    for name in ("exp_into", "sigmoid_into", "tanh_into"):
        assert np.isnan(run(name, [np.nan, 1.0])).tolist() == [True, False], name


def test_sigmoid_and_tanh_at_the_ends() -> None:
    assert run("sigmoid_into", [-np.inf, np.inf, 0.0]).tolist() == [0.0, 1.0, 0.5]
    assert run("tanh_into", [-np.inf, np.inf, 0.0]).tolist() == [-1.0, 1.0, 0.0]


def test_bits_do_not_depend_on_company_or_place() -> None:
    x = arguments(100)
    together = run("exp_into", x)
    assert run("exp_into", x, in_place=False).tobytes() == together.tobytes()
    assert (
        np.concatenate([run("exp_into", part) for part in np.split(x, [1, 8, 37, 290])]).tobytes() == together.tobytes()
    )
