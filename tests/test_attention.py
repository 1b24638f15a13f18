"""Attention kernels against their definition; the same bits for any ranks, chunks, mode and history of the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import attention_bits
import numpy as np
import numpy.typing as npt
import pytest
from cache_shapes import shape
from tolerances import ATTEND, ATTEND_HUGE_SCORES, CACHE_F16, CACHE_F32, CACHE_INT8

from rml import native
from rml.attention import LayerAttention, attend_ref, check_limits
from rml.build_info import BUILD
from rml.errors import InvalidArgument, Unsupported
from rml.kv_cache import DTYPES, CacheType, KvCache

Floats = npt.NDArray[np.float64]
COMPILED = BUILD.mode != "interpreted"
TOKENS = 300 if COMPILED else 50  # interpreted kernels are slow; 50 tokens still cross blocks and pages


class Case:
    """Random queries, keys and values of one layer, and a cache that holds them at layer 1 of 2."""

    def __init__(self, heads: int, kv_heads: int, dim: int, n: int, dtype: CacheType = "f64", seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.standard_normal((n, heads, dim))
        self.k, self.v = rng.standard_normal((2, n, kv_heads, dim))
        self.cache = KvCache(shape(heads, kv_heads, dim), n, dtype)
        self.fill()

    def fill(self) -> None:
        self.cache.reset()
        self.cache.extend(len(self.q))
        self.layer().store(self.k, self.v, 0, 1)

    def layer(self, ranks: int = 1) -> LayerAttention:
        return LayerAttention(self.cache, len(self.q), ranks)

    def attend(self, window: int = 0, ranks: int = 1, start: int = 0, stop: int | None = None) -> Floats:
        return self.layer(ranks).attend(self.q[start:stop], start, 1, window).copy()

    def expected(self, window: int = 0) -> Floats:
        return attend_ref(self.q, self.cache.read(1, 0), self.cache.read(1, 1), 0, window)


def close(a: Floats, b: Floats, limit: float) -> None:
    error = np.abs(a - b)
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error.max() <= limit, f"{error.max()} at (token, head, channel) {worst}: {a[worst]} and {b[worst]}"


# ----------------------------------------------------------------------------------------------- the definition


def test_definition_by_hand() -> None:
    q, k = np.array([[[1.0]], [[2.0]]]), np.array([[[0.0]], [[np.log(3) / 2]]])
    v = np.array([[[4.0]], [[8.0]]])
    assert attend_ref(q, k, v, 0).ravel().tolist() == pytest.approx([4.0, (4 + 3 * 8) / 4])
    assert attend_ref(q, k, v, 0, window=1).ravel().tolist() == pytest.approx([4.0, 8.0])
    assert attend_ref(q[1:], k, v, 1, scale=0.5).ravel().tolist() == pytest.approx(
        [(4 + np.sqrt(3) * 8) / (1 + np.sqrt(3))]
    )


# ----------------------------------------------------------------------------------------- kernels against it


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [
        *((4, 2, 16), (4, 2, 80), (8, 2, 64), (3, 1, 128), (4, 4, 256)),
        *((7, 1, 32), (8, 1, 48), (6, 2, 10), (2, 1, 2), (16, 1, 512)),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_the_definition(heads: int, kv_heads: int, dim: int, dtype: CacheType) -> None:
    n = TOKENS if COMPILED or dim <= 32 else 18
    case = Case(heads, kv_heads, dim, n, dtype)
    close(case.attend(), case.expected(), ATTEND)


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 31, 33, 64, 1000])
def test_window(window: int) -> None:
    case = Case(4, 2, 16, TOKENS)
    close(case.attend(window), case.expected(window), ATTEND)
    if window == 1:
        close(case.attend(1), np.repeat(case.v, 2, axis=1), ATTEND)


def test_window_counts_keys_with_the_query_itself() -> None:
    case = Case(4, 2, 16, 40)
    before = case.attend(20)
    case.k[0] += 1.0
    case.v[0] += 1.0
    case.fill()
    changed = np.any(case.attend(20) != before, axis=(1, 2))
    assert changed.tolist() == [True] * 20 + [False] * 20


def test_long_context() -> None:
    """Segments of 128, 256 and 512 keys, and 17 of them."""
    case = Case(2, 1, 16, 4200 if COMPILED else 200)
    for position in (127, 128, 2047, 2048, 2049, 4095, 4096, 4199) if COMPILED else (127, 128, 199):
        for window in (0, 100):
            one = case.attend(window, 2, position, position + 1)
            expected = attend_ref(case.q[position : position + 1], case.k, case.v, position, window)
            close(one, expected, ATTEND)


def test_all_scores_equal_give_the_mean() -> None:
    case = Case(4, 2, 16, 50)
    case.k[:] = case.k[0]
    case.fill()
    mean = np.cumsum(case.v, axis=0) / np.arange(1, 51)[:, None, None]
    close(case.attend(), np.repeat(mean, 2, axis=1), ATTEND)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scores_of_1e4(sign: float) -> None:
    case = Case(4, 2, 16, 100)
    case.q *= 1e4 * sign
    close(case.attend(), case.expected(), ATTEND_HUGE_SCORES)


def test_rising_scores_rescale_at_every_key() -> None:
    case = Case(4, 2, 16, 100)
    case.q[:], case.k[:] = 1.0, np.arange(100)[:, None, None] / 4
    case.fill()
    close(case.attend(), case.expected(), ATTEND)


@pytest.mark.parametrize(("dtype", "limit"), [("f32", CACHE_F32), ("f16", CACHE_F16), ("int8", CACHE_INT8)])
def test_what_a_cache_type_costs(dtype: CacheType, limit: float) -> None:
    case = Case(8, 2, 64, 60, dtype)
    close(case.attend(), attend_ref(case.q, case.k, case.v, 0), limit)


def test_pages_in_any_order() -> None:
    case = Case(4, 2, 16, 70)
    plain = case.attend()
    case.cache.table = case.cache.table[::-1].copy()
    case.fill()
    assert case.attend().tobytes() == plain.tobytes()


# ---------------------------------------------------------------------------------------------------- same bits
def test_a_product_and_a_sum_are_rounded_once() -> None:
    """(1 + 2^-52)^2 = 1 + 2^-51 + 2^-104, whose last term a product rounded by itself has lost."""
    f = native.copy(np.array([-(1 + 2**-51), 1 + 2**-52]), np.float64)
    native.kernel("attend_state.fold_row")(f, 0, 1, 1, 1.0, 1 + 2**-52)
    assert f[0] == 2**-104




@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "window"),
    [(4, 2, 16, 0), (3, 1, 80, 40), (4, 1, 16, 1), (16, 2, 32, 50), (8, 2, 16, 0)],
)
def test_bits_do_not_depend_on_ranks_or_chunks(
    heads: int, kv_heads: int, dim: int, window: int, dtype: CacheType
) -> None:
    case = Case(heads, kv_heads, dim, TOKENS, dtype)
    whole = case.attend(window)
    for ranks in (2, 4, 7):
        assert case.attend(window, ranks).tobytes() == whole.tobytes()
    for cuts in ([16], [17, 18, 33], [1, 32, 48]):
        parts = zip([0, *cuts], [*cuts, TOKENS], strict=True)
        together = np.concatenate([case.attend(window, 2, start, stop) for start, stop in parts])
        assert together.tobytes() == whole.tobytes()
    for ranks in (1, 2, 3):
        for i in [*range(0, TOKENS, 23), 15, 16, 31, 32, TOKENS - 1]:
            assert case.attend(window, ranks, i, i + 1).tobytes() == whole[i].tobytes(), (ranks, i)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_nearest_cache(monkeypatch: pytest.MonkeyPatch, dtype: CacheType) -> None:
    results = []
    for size in (0, 1 << 20):  # what is asked for goes into the second cache; into this one
        monkeypatch.setattr("rml.attention.nearest_cache", lambda size=size: size)
        case = Case(8, 2, 32, 60, dtype)
        close(case.attend(), case.expected(), ATTEND)
        results.append([case.attend(0, 1, i, i + 1).tobytes() for i in range(60)])
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_reused_cache_equals_a_fresh_one(dtype: CacheType) -> None:
    first, second = Case(4, 2, 16, 60, dtype), Case(4, 2, 16, 60, dtype, seed=1)
    expected = second.attend(20), second.attend()
    cache = first.cache
    if dtype == "f64":
        cache.arena.view(np.float64)[:] = np.nan  # what a failed forward pass may have left
    cache.truncate(0)
    second.cache = cache
    for start, stop in ((0, 30), (30, 31), (31, 60)):
        cache.extend(stop - start)
        second.layer().store(second.k[start:stop], second.v[start:stop], start, 1)
        assert second.attend(20, 2, start, stop).tobytes() == expected[0][start:stop].tobytes()
        assert second.attend(0, 1, start, stop).tobytes() == expected[1][start:stop].tobytes()


def test_interpreted_and_compiled_kernels_give_the_same_bits() -> None:
    environment = os.environ | {"RML_KERNELS": "interpreted"}
    script = Path(attention_bits.__file__)
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == attention_bits.digests()


def test_not_finite_scores_give_nan_not_an_answer() -> None:
    case = Case(4, 2, 16, 40)
    case.q[5] = np.nan
    case.q[6] = 1e308
    result = case.attend()
    assert np.isnan(result[5:7]).all()
    assert np.isfinite(np.delete(result, [5, 6], axis=0)).all()


# ------------------------------------------------------------------------------------------- limits, allocation


def test_limits() -> None:
    check_limits(32, 2, 512)
    with pytest.raises(Unsupported, match="34 query heads over 2 kv heads: at most 16"):
        check_limits(34, 2, 64)
    with pytest.raises(Unsupported, match="evenly"):
        check_limits(5, 2, 64)
    with pytest.raises(Unsupported, match="head_dim 514: at most 512"):
        LayerAttention(KvCache(shape(1, 1, 514), 1))
    layer = LayerAttention(KvCache(shape(), 8), 2)
    for n, start in ((3, 0), (2, 7), (1, -1)):
        with pytest.raises(InvalidArgument):
            layer.attend(np.zeros((n, 4, 16)), start)


def test_steps_allocate_nothing() -> None:
    case = Case(4, 2, 16, 64)
    parts = [case.layer().steps(1, position, 1) for position in range(40, 60)]
    tracemalloc.start()
    try:
        for part in parts[0]:  # interpreted kernels: Python keeps freed floats for the next ones
            part()
        before, _ = tracemalloc.get_traced_memory()
        for step in parts:
            for part in step:
                part()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 200
    assert peak - before < 20_000
