"""The quantised formats, three ways: against the plain definition, against gguf-py's dequantiser, against float64."""

from __future__ import annotations

import gguf
import numpy as np
import plain_quants
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import KERNEL_PRODUCT

from rml.build_info import BUILD
from rml.formats import BY_NAME
from tools.kernel_case import QUANTISED, Bytes, Case, Floats, random_blocks, same_bits

# f16 bit patterns: zeros, subnormals of both signs, smallest and largest normal numbers, ordinary ones, -113.0
HARD = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x2E66, 0xAE66, 0xD710, 0x3C00]
NOT_FINITE = [0x7C00, 0xFC00, 0x7E00, 0xFE01]

formats = pytest.mark.parametrize("name", QUANTISED)
hard_scales = st.lists(st.one_of(st.sampled_from(HARD), st.integers(0, 65535)), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=3 if BUILD.mode == "interpreted" else 25, deadline=None)


def make(name: str, seed: int, halves: list[int] | None, rows: int = 3, blocks: int = 2, tokens: int = 1) -> Case:
    """A random matrix; its activations are of very different sizes from group to group."""
    rng = np.random.default_rng(seed)
    cols = blocks * BY_NAME[name].block_weights
    x = rng.standard_normal((tokens, cols)) * 10.0 ** rng.integers(-6, 6, (tokens, 1))
    return Case(name, random_blocks(rng, name, rows * blocks, halves), rows, cols, x)


def blocks_of(case: Case, name: str) -> list[list[plain_quants.Block]]:
    """The matrix by the plain definition: [row][block]."""
    raw = np.array(case.w).reshape(case.rows, -1, BY_NAME[name].block_bytes)
    return [[plain_quants.block(name, block.tobytes()) for block in row] for row in raw]


def dequantised(case: Case, name: str) -> Floats:
    """(rows, cols): gguf-py's weights."""
    raw: Bytes = np.array(case.w).reshape(case.rows, -1)
    with np.errstate(all="ignore"):
        weights = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    return np.asarray(weights, np.float64).reshape(case.rows, case.cols)


@formats
@few
@given(seed=seeds, halves=hard_scales)
def test_int8_product_is_the_definition_bit_by_bit(name: str, seed: int, halves: list[int]) -> None:
    case = make(name, seed, halves)
    got = case.one()
    q, scales = case.round_row(0)
    size = BY_NAME[name].block_weights
    for r, row in enumerate(blocks_of(case, name)):
        total = 0.0
        for b, block in enumerate(row):
            total = plain_quants.add_product(total, block, q[b * size : b * size + size].tolist(), float(scales[b]))
        assert same_bits(got[r], total), f"{name} row {r}: {got[r]!r}, defined {total!r}"


@formats
@few
@given(seed=seeds, halves=hard_scales)
def test_widened_weights_are_the_definition_and_gguf_py_after_rounding(name: str, seed: int, halves: list[int]) -> None:
    case = make(name, seed, halves, rows=2)
    expected = dequantised(case, name)
    for r, row in enumerate(blocks_of(case, name)):
        got = case.widen(r)
        assert np.array_equal(got, [w for block in row for w in plain_quants.weights(block)], equal_nan=True)
        with np.errstate(over="ignore"):
            rounded = got.astype(np.float32).astype(np.float64)
        assert np.array_equal(rounded, expected[r], equal_nan=True)


@formats
@pytest.mark.parametrize("bits", NOT_FINITE)
def test_infinite_and_nan_scales_follow_ieee(name: str, bits: int) -> None:
    case = make(name, 5, [bits, 0x3C00], rows=4)
    expected = dequantised(case, name)
    for r in range(case.rows):
        with np.errstate(over="ignore"):
            assert np.array_equal(case.widen(r), expected[r], equal_nan=True)
    got, bad = case.one(), ~np.isfinite(expected).all(1)
    assert bad.any()
    assert not np.isfinite(got[bad]).any()
    assert np.isfinite(got[~bad]).all()
    assert same_bits(case.int8()[0], got)


@formats
@few
@given(seed=seeds)
def test_products_agree_with_float64(name: str, seed: int) -> None:
    case = make(name, seed, None, rows=5, blocks=3, tokens=2)
    weights = np.stack([case.widen(r) for r in range(5)])
    x = np.array(case.f[case.x : case.x + 2 * case.cols]).reshape(2, case.cols)
    exact = case.exact()
    for t in range(2):
        size = np.abs(weights) @ np.abs(x[t])
        assert (np.abs(exact[t] - weights @ x[t]) <= KERNEL_PRODUCT * size).all()
        got = case.one(t)
        q, scales = case.round_row(t)
        rounded = (q.reshape(-1, case.group) * scales[:, None]).ravel()
        # a minimum is taken off as a whole: the sum of the two parts' sizes, not of the weights', is what is rounded
        size = (np.abs(weights).max() * 32 + np.abs(weights)) @ np.abs(rounded)
        assert (np.abs(got - weights @ rounded) <= KERNEL_PRODUCT * size).all()
        half_a_step = np.repeat(scales, case.group) * (0.5 + 1e-9)
        assert (np.abs(x[t] - rounded) <= half_a_step).all()


@formats
@few
@given(seed=seeds, halves=hard_scales)
def test_a_row_of_a_panel_has_the_weights_of_the_row_in_the_file(name: str, seed: int, halves: list[int]) -> None:
    case = make(name, seed, halves, rows=131)
    for row in (0, 1, 127, 128, 130):
        assert same_bits(case.widen_from_panel(row), case.widen(row))


@formats
@pytest.mark.parametrize(("rows", "tokens"), [(1, 16), (67, 2), (131, 1), (131, 70), (261, 9)])
def test_many_tokens_give_the_bits_of_single_tokens(name: str, tokens: int, rows: int) -> None:
    """70 tokens are more than are taken at once, 131 rows more than a panel, 261 more than two."""
    if BUILD.mode == "interpreted":
        tokens = min(tokens, 5)  # a minute each otherwise; a four and one
    blocks = 5 if BY_NAME[name].block_weights == 32 else 2
    case = make(name, tokens * 100 + rows, None, rows, blocks, tokens)
    many = case.int8()
    for t in {0, tokens // 2, tokens - 1}:
        assert same_bits(many[t], case.one(t)), f"token {t} of {tokens}"


@formats
def test_extreme_integers_do_not_overflow(name: str) -> None:
    """All bits of the weights set or clear, every activation at +-127: the largest sums of each sign."""
    for fill in (0, 255, 127, 128):
        cols = 2 * BY_NAME[name].block_weights
        raw = np.full((2 * 2, BY_NAME[name].block_bytes), fill, np.uint8)
        for at in (0, 2, 80, 82, 108, 208):
            if at in {"Q3_K": {108}, "Q6_K": {208}, "Q2_K": {80, 82}}.get(name, {0, 2} if name[-1] in "1K" else {0}):
                raw[:, at : at + 2] = (0, 0x3C)
        x = np.ones((9, cols))
        x[1::2] = -1.0
        case = Case(name, raw, 2, cols, x)
        weights, many = dequantised(case, name), case.int8()
        for t in (0, 1, 8):
            assert same_bits(many[t], case.one(t))
            assert np.allclose(many[t], weights @ x[t], rtol=1e-12)


@formats
def test_row_ranges_strides_and_accumulation(name: str) -> None:
    """Ranges of an int8 product begin with a panel of 128 rows; the last panel of this matrix has five."""
    case = make(name, 77, None, rows=261, blocks=1, tokens=9)
    whole, exact = case.int8().copy(), case.exact().copy()
    untouched = case.f[case.y + case.rows : case.y + case.ystride]
    assert not untouched.any()
    for path, expected, cuts in ((case.int8, whole, (128, 256)), (case.exact, exact, (6, 7))):
        case.f[case.y : case.y + 9 * case.ystride] = 1.5
        path(0, cuts[0])
        path(*cuts)
        got = path(cuts[1], 261)
        assert same_bits(got, expected)
        assert (untouched == 1.5).all()
        assert same_bits(path(0, 261, True), expected + expected)
        untouched[:] = 0.0
    case.f[case.y : case.y + case.ystride] = 0.0
    case.one(0, 0, 128)
    assert not case.result()[128:].any()
    assert same_bits(case.one(0, 128, 261), whole[0])
    assert same_bits(case.one(0, 0, 261, True), whole[0] + whole[0])
