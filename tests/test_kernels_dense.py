"""F32, F16, BF16 and float64 rows: exact widening, one order of additions, agreement with float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rounded_once import fma
from tolerances import KERNEL_PRODUCT

from rml.build_info import BUILD
from tools.kernel_case import HALF, Bytes, Case, Floats, same_bits

few = settings(max_examples=3 if BUILD.mode == "interpreted" else 25, deadline=None)


def stored(name: str, values: Floats) -> tuple[Bytes, Floats]:
    """The values rounded to a float type, as bytes, and what they then are."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if name == "F32":
        return single.view(np.uint8), single.astype(np.float64)
    if name == "F16":
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        return half.view(np.uint8), half.astype(np.float64)
    bits: npt.NDArray[np.uint16] = (single.view(np.uint32) >> 16).astype(np.uint16)
    return bits.view(np.uint8), (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def in_lanes(weights: Floats, x: Floats) -> float:
    """The order that rml/kernels/lanes.py states: 16 partial sums, then those in halves."""
    lanes = [0.0] * 16
    for j, (w, v) in enumerate(zip(weights.tolist(), x.tolist(), strict=True)):
        lanes[j % 16] = fma(w, v, lanes[j % 16])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [low + high for low, high in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("cols", [1, 15, 16, 45, 160])
@few
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-9, 4))
def test_products(name: str, cols: int, seed: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    raw, weights = stored(name, rng.standard_normal((3, cols)) * 10.0**exponent)
    x = rng.standard_normal((2, cols)) * 10.0 ** rng.integers(-5, 5, (2, cols))
    case = Case(name, raw, 3, cols, x)
    for r in range(3):
        assert same_bits(case.widen(r), weights[r])
    exact = case.exact().copy()
    for t in range(2):
        got = case.one(t)
        assert same_bits(got, exact[t])
        assert same_bits(got, [in_lanes(weights[r], x[t]) for r in range(3)])
        assert (np.abs(got - weights @ x[t]) <= KERNEL_PRODUCT * (np.abs(weights) @ np.abs(x[t]))).all()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_long_rows_four_at_a_time_give_the_same_bits(name: str) -> None:
    """Rows longer than dense.NARROW are taken four at a time, the rest one by one."""
    rng = np.random.default_rng(4)
    cols = 4111
    raw, weights = stored(name, rng.standard_normal((7, cols)))
    x = rng.standard_normal((1, cols))
    case = Case(name, raw, 7, cols, x)
    got = case.one().copy()
    assert same_bits(got, [in_lanes(weights[r], x[0]) for r in range(7)])
    assert same_bits(got, case.exact()[0])
    case.f[case.y : case.y + 7] = 0.0
    case.one(0, 0, 5)
    assert same_bits(case.one(0, 5, 7), got)


def test_every_f16_is_widened_exactly() -> None:
    raw = np.arange(65536, dtype=np.uint16)
    case = Case("F16", raw.view(np.uint8), 1, 65536, np.zeros((1, 65536)))
    got = case.widen()
    assert same_bits(got, HALF)
    assert np.isnan(got).sum() == 2046
    assert got[0x0001] == 2.0**-24
    assert got[0x8000] == 0.0
    assert np.signbit(got[0x8000])


def test_every_bf16_is_widened_exactly() -> None:
    raw = np.arange(65536, dtype=np.uint16)
    case = Case("BF16", raw.view(np.uint8), 1, 65536, np.zeros((1, 65536)))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert same_bits(case.widen(), expected)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_infinite_and_nan_weights_reach_the_product(name: str) -> None:
    values = np.ones((4, 64))
    values[0, 40], values[1, 0], values[2, 63] = np.inf, -np.inf, np.nan
    raw, _ = stored(name, values)
    got = Case(name, raw, 4, 64, np.ones((1, 64))).one()
    assert got[0] == np.inf
    assert got[1] == -np.inf
    assert np.isnan(got[2])
    assert got[3] == 64.0


def test_a_weight_of_minus_113_is_no_error() -> None:
    """-113 is the mark of a possible error in mypyc's convention; the release build must not ask about it."""
    raw, _ = stored("F32", np.full((1, 32), -113.0))
    assert Case("F32", raw, 1, 32, np.eye(1, 32)).one()[0] == -113.0


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_row_ranges_and_accumulation(name: str) -> None:
    rng = np.random.default_rng(3)
    raw, _ = stored(name, rng.standard_normal((7, 40)))
    case = Case(name, raw, 7, 40, rng.standard_normal((2, 40)))
    whole = case.exact().copy()
    case.f[case.y : case.y + 2 * case.ystride] = 2.0
    case.one(0, 0, 3)
    assert (case.result()[3:] == 2.0).all()
    assert same_bits(case.one(0, 3, 7), whole[0])
    assert same_bits(case.one(0, 0, 7, True), whole[0] + whole[0])


@pytest.mark.parametrize("tokens", [2, 3, 4, 9])
@pytest.mark.parametrize(("rows", "cols"), [(1, 20), (7, 48), (67, 30), (131, 16), (6, 1303)])
def test_many_tokens_times_blocks_of_rows(tokens: int, rows: int, cols: int) -> None:
    """More rows than a block, rows in several pieces, tokens and rows left over; the same bits as one by one."""
    rng = np.random.default_rng(9)
    raw, weights = stored("F32", rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-8, 8, (rows, cols)))
    x = rng.standard_normal((tokens, cols))
    case = Case("F32", raw, rows, cols, x)
    got = case.exact()
    for t in range(tokens):
        for r in (0, rows // 2, rows - 1):
            assert got[t, r] == in_lanes(weights[r], x[t])
        assert same_bits(got[t], case.one(t))
    assert case.f[case.y + rows : case.y + case.ystride].any() == np.False_, "nothing behind a token's row is written"
