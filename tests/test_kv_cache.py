"""The paged cache: layout, rounding of every type, overflow, capacity, and memory that is not touched."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from cache_shapes import LLAMA_8B, shape

from rml.attention import LayerAttention
from rml.errors import CacheFull, InvalidArgument
from rml.kv_cache import DTYPES, PAGE_SIZE, CacheOverflow, CacheType, KvCache, bytes_per_token, int8_group, row_bytes

Floats = npt.NDArray[np.float64]


def filled(cache: KvCache, values: Floats, layer: int = 0, start: int = 0, ranks: int = 1) -> KvCache:
    """Stores `values` (n, kv_heads, dim) as keys and their negatives as values."""
    cache.size = max(cache.size, start + len(values))
    LayerAttention(cache, len(values), ranks).store(values, -values, start, layer)
    return cache


def random_rows(n: int, kv_heads: int = 2, dim: int = 16, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, kv_heads, dim))


# ------------------------------------------------------------------------------------------------ sizes, capacity


def test_sizes_of_llama_8b() -> None:
    assert [bytes_per_token(LLAMA_8B, dtype) for dtype in DTYPES] == [524288, 262144, 131072, 73728]
    assert KvCache(LLAMA_8B, 16, "int8").bytes_per_token == 32 * 2 * (1024 // 32 * 4 + 1024)


@pytest.mark.parametrize(
    ("dim", "group"), [(2, 2), (6, 2), (10, 2), (16, 16), (80, 16), (96, 32), (128, 32), (256, 32)]
)
def test_int8_groups_divide_the_head(dim: int, group: int) -> None:
    assert int8_group(dim) == group
    assert row_bytes(3, dim, "int8") == 3 * dim // group * 4 + -(-3 * dim // 4) * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_extend_truncate_reset(dtype: CacheType) -> None:
    cache = KvCache(shape(), 40, dtype)
    assert (cache.capacity, cache.size, cache.dtype) == (40, 0, dtype)
    assert [cache.extend(9), cache.extend(0), cache.extend(31)] == [0, 9, 9]
    assert cache.size == 40
    cache.truncate(17)
    assert cache.size == 17
    cache.truncate(17)
    cache.reset()
    assert cache.size == 0


def test_a_full_cache_changes_nothing() -> None:
    cache = filled(KvCache(shape(), 8), random_rows(8))
    before = cache.arena.copy()
    with pytest.raises(CacheFull, match=r"8 of 8 tokens, 1 more do not fit.*new_cache"):
        cache.extend(1)
    cache.truncate(3)
    with pytest.raises(CacheFull, match="3 of 8 tokens, 6 more"):
        cache.extend(6)
    assert cache.size == 3
    assert np.array_equal(cache.arena, before)
    assert cache.extend(5) == 3


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidArgument, match=r"bf16.*f64, f32, f16, int8"):
        KvCache(shape(), 8, "bf16")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="capacity 0"):
        KvCache(shape(), 0)
    cache = KvCache(shape(), 8)
    with pytest.raises(InvalidArgument, match="truncate"):
        cache.extend(-1)
    for position in (-1, 1):
        with pytest.raises(InvalidArgument, match="holds 0 tokens"):
            cache.truncate(position)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fresh_cache_is_not_resident(dtype: CacheType) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    model = shape(heads=32, kv_heads=8, dim=128, layers=8)
    before = resident()
    cache = KvCache(model, 32768, dtype)
    assert resident() - before < 1_000_000
    assert cache.arena.size == 32768 * cache.bytes_per_token
    filled(cache, random_rows(1, 8, 128))
    assert resident() - before < 16_000_000  # one page of positions, and what a huge page of the system adds


# --------------------------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_lie_page_layer_key_value_slot(dtype: CacheType) -> None:
    model = shape(layers=3)
    cache = KvCache(model, 50, dtype)
    keys = random_rows(40)
    filled(cache, keys, layer=1)
    rows = cache.arena.reshape(-1, 3, 2, PAGE_SIZE, cache.row_bytes)  # page, layer, which, slot
    assert not rows[:, 0].any()
    assert not rows[:, 2].any()
    assert rows[:, 1].any(axis=-1).sum() == 80
    for position in (0, 15, 16, 39):
        for which in (0, 1):
            page, slot = divmod(position, PAGE_SIZE)
            row = cache.row(position, 1, which)
            assert row == ((page * 3 + 1) * 2 + which) * PAGE_SIZE + slot
            assert np.array_equal(cache.arena.reshape(-1, cache.row_bytes)[row], rows[page, 1, which, slot])
    assert np.array_equal(cache.read(1, 1), -cache.read(1, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [10, 80])
def test_bytes_do_not_depend_on_ranks_or_chunks(dtype: CacheType, dim: int) -> None:
    model, keys = shape(heads=3, kv_heads=3, dim=dim), random_rows(20, 3, dim)
    whole = filled(KvCache(model, 24, dtype), keys).arena
    for ranks in (2, 4, 7):
        assert np.array_equal(filled(KvCache(model, 24, dtype), keys, ranks=ranks).arena, whole)
    pieces = KvCache(model, 24, dtype)
    for start, stop in ((0, 1), (1, 16), (16, 20)):
        filled(pieces, keys[start:stop], start=start, ranks=2)
    assert np.array_equal(pieces.arena, whole)


# ------------------------------------------------------------------------------------------------------- rounding


def hard_cases(bits: int, smallest: float, largest: float) -> Floats:
    """Doubles that are hard to round to a type of `bits` mantissa bits: ties and their neighbours, subnormals, ends."""
    rng = np.random.default_rng(2)
    exact = rng.integers(1 << bits, 2 << bits, 400) * 2.0 ** -float(bits) * 2.0 ** rng.integers(-14, 15, 400)
    ties = exact * (1 + 2.0 ** -(bits + 1.0) * rng.integers(0, 2, 400) / (exact / 2.0 ** np.floor(np.log2(exact))))
    steps = rng.integers(0, 3000, 400) * smallest
    tiny = np.concatenate([steps, steps + smallest / 2, steps * 2.0**-6, [smallest / 2, smallest * 0.75, 5e-324, 0.0]])
    some = np.concatenate([rng.standard_normal(400), ties, tiny, [largest]])
    around = np.concatenate([some, np.nextafter(some, np.inf), np.nextafter(some, -np.inf)])
    around = around[np.abs(around) <= largest]
    return np.concatenate([around, -around, [-0.0]])


def stored(values: Floats, dtype: CacheType) -> KvCache:
    padded = np.zeros(-(-values.size // 32) * 32)
    padded[: values.size] = values
    return filled(KvCache(shape(), len(padded) // 32, dtype), padded.reshape(-1, 2, 16))


@pytest.mark.parametrize(
    ("dtype", "target", "values"),
    [
        ("f32", np.float32, hard_cases(23, 2.0**-149, float(np.finfo(np.float32).max))),
        ("f16", np.float16, hard_cases(10, 2.0**-24, 65504.0)),
        ("f64", np.float64, hard_cases(52, 5e-324, 1.7e308)),
    ],
)
def test_rounding_is_that_of_ieee(dtype: CacheType, target: type[np.floating], values: Floats) -> None:
    kept = stored(values, dtype).read(0, 0).ravel()[: values.size]
    expected = values.astype(target).astype(np.float64)
    wrong = np.flatnonzero(kept.view(np.int64) != expected.view(np.int64))
    assert not wrong.size, [(values[i].hex(), kept[i].hex(), expected[i].hex()) for i in wrong[:5]]


def int8_definition(values: Floats, group: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    """Scales and values of rows (n, width)."""
    groups = values.reshape(len(values), -1, group)
    scales = (np.abs(groups).max(-1) / 127).astype(np.float32)
    step = np.where(scales > 0, scales, 1).astype(np.float64)[:, :, None]
    return scales, np.clip(np.rint(groups / step), -127, 127).astype(np.int8).reshape(values.shape)


@pytest.mark.parametrize(("kv_heads", "dim"), [(2, 16), (3, 10), (1, 80), (2, 128)])
def test_int8_rows_follow_the_definition(kv_heads: int, dim: int) -> None:
    rng = np.random.default_rng(6)
    values = rng.standard_normal((30, kv_heads, dim)) * 10.0 ** rng.integers(-3, 4, (30, kv_heads, 1))
    values[3] = 0.0
    values[4] = 1e-44  # the scale is a subnormal f32, coarse enough that values pass 127 and are held there
    values[5, 0, ::2] = values[5, 0].max() / 2  # ties
    values[6] = 1e-60
    cache = filled(KvCache(shape(kv_heads, kv_heads, dim), 32, "int8"), values)
    scales, bytes_ = int8_definition(values.reshape(30, -1), int8_group(dim))
    raw = cache.arena.reshape(-1, cache.row_bytes)[[cache.row(i, 0, 0) for i in range(30)]]
    assert np.array_equal(raw[:, : scales.shape[1] * 4].copy().view(np.float32), scales)
    assert np.array_equal(raw[:, scales.shape[1] * 4 :][:, : kv_heads * dim].view(np.int8), bytes_)


def test_int8_loses_what_is_small_beside_an_outlier() -> None:
    keys = np.ones((1, 2, 32))
    keys[0, 0, 5] = 600.0  # a bias of Qwen2: the step becomes 4.72
    kept = filled(KvCache(shape(dim=32), 1, "int8"), keys).read(0, 0)
    assert kept[0, 0].tolist() == [0.0] * 5 + [pytest.approx(600)] + [0.0] * 26
    assert kept[0, 1] == pytest.approx(np.ones(32))
    assert filled(KvCache(shape(dim=32), 1, "f16"), keys).read(0, 0).tolist() == keys.tolist()


# ------------------------------------------------------------------------------------------------------- overflow

F32_LIMIT = float.fromhex("0x1.ffffffp127")  # the first double that rounds to infinity


@pytest.mark.parametrize(
    ("dtype", "fits", "bad"),
    [
        ("f16", 65519.99, 65520.0),
        ("f16", 65504.0, np.nan),
        ("f32", np.nextafter(F32_LIMIT, 0), F32_LIMIT),
        ("f32", 3e38, -np.inf),
        ("f64", 1.7e308, np.inf),
        ("f64", -1.7e308, np.nan),
        ("int8", 127 * 3.4e38, 128 * F32_LIMIT),
        ("int8", 1.0, np.nan),
        ("int8", 1.0, np.inf),
    ],
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_overflow_names_layer_and_position(dtype: CacheType, fits: float, bad: float, ranks: int) -> None:
    cache = KvCache(shape(), 40, dtype)
    values = random_rows(20)
    values[13, 1, 7] = fits
    filled(cache, values, ranks=ranks)
    values[13, 1, 7] = values[17, 0, 0] = bad
    with pytest.raises(CacheOverflow, match=rf"layer 1, position 2[37]: a key .* {dtype} cache.*dtype='f(32|64)'") as e:
        filled(cache, values, layer=1, start=10, ranks=ranks)
    assert isinstance(e.value, OverflowError)
    keys = random_rows(20)
    with pytest.raises(CacheOverflow, match="position 13: a value"):
        LayerAttention(cache, 20).store(keys, values, 0)


def test_overflow_message() -> None:
    text = str(KvCache(shape(), 8, "f16").overflow(7, 5))
    assert re.search(r"layer 5, position 3: a value is not finite or beyond 65504.*f16 cache.*dtype='f32'", text)
