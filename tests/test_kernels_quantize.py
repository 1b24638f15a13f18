"""Activations rounded to int8: the definition and hard values."""

from __future__ import annotations

import numpy as np
import plain_quants
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rml.build_info import BUILD
from tools.kernel_case import Case, Floats

few = settings(max_examples=3 if BUILD.mode == "interpreted" else 25, deadline=None)
values = st.floats(-1e6, 1e6) | st.floats(-1e-300, 1e-300) | st.sampled_from([0.0, -0.0, 1.0, 0.5, 127.0, 63.5])


def case_of(x: Floats, group: int) -> Case:
    """A case with no weights worth the name."""
    name = "Q8_0" if group == 32 else "Q6_K"
    return Case(name, np.zeros((x.shape[1] // group, 34 if group == 32 else 210), np.uint8), 1, x.shape[1], x)


@pytest.mark.parametrize("group", [32, 256])
@few
@given(data=st.lists(values, min_size=32, max_size=32), seed=st.integers(0, 1000))
def test_rounding_is_the_definition(group: int, data: list[float], seed: int) -> None:
    x = np.random.default_rng(seed).permutation(np.array(data * (2 * group // 32))).reshape(1, 2 * group)
    case = case_of(x, group)
    q, scales = case.round_row(0)
    for g in range(2):
        expected, scale = plain_quants.round_group(x[0, g * group : g * group + group].tolist())
        assert q[g * group : g * group + group].tolist() == expected
        assert scales[g] == scale
    sums = case.k[case.sums : case.sums + 2 * group // 16]
    assert sums.tolist() == q.reshape(-1, 16).sum(1).tolist()


def test_halves_are_rounded_to_even() -> None:
    x = np.zeros((1, 32))
    x[0, :6] = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5]
    q, scales = case_of(x, 32).round_row(0)
    assert q[:6].tolist() == [127, 0, 2, 2, 0, -2]
    assert scales[0] == 1.0


@pytest.mark.parametrize("group", [32, 256])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_reaches_the_scale(group: int, bad: float) -> None:
    x = np.ones((1, 2 * group))
    x[0, group + 7] = bad
    case = case_of(x, group)
    q, scales = case.round_row(0)
    assert scales[0] == 1.0 / 127.0
    assert np.isnan(scales[1])
    assert not q[group:].any()
    assert np.isnan(case.one()[0])


@pytest.mark.parametrize("group", [32, 256])
@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-306])
def test_the_smallest_values_do_not_overflow_the_inverse(group: int, tiny: float) -> None:
    x = np.zeros((1, group))
    x[0, 3] = -tiny
    q, scales = case_of(x, group).round_row(0)
    assert np.isfinite(scales[0])
    assert np.abs(q).max() <= 127
