"""DecoderLM: what it refuses, what stays unchanged then, and bits that depend on nothing they should not depend on."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from golden_cases import CASES, case

import rml
from rml.build_info import BUILD
from rml.kv_cache import CacheType
from rml.threads import available_cores

Logits = npt.NDArray[np.float64]
TOKENS = [(i * 37 + 11) % 64 for i in range(33)]
FAMILIES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3", "olmoe"]
PIECES = [[33], [1] * 33, [16, 17], [15, 1, 1, 16], [8, 7, 18]]


def run(model: rml.DecoderLM, pieces: list[int], dtype: CacheType = "f32") -> Logits:
    """All logits (33, 64), the prompt cut into pieces."""
    cache = model.new_cache(64, dtype)
    starts = np.cumsum([0, *pieces[:-1]])
    return np.concatenate(
        [model.forward(TOKENS[a : a + n], cache, all_logits=True) for a, n in zip(starts, pieces, strict=True)]
    )


@pytest.fixture(scope="module")
def llama() -> rml.DecoderLM:
    return rml.load(case("llama/model-q8_0.gguf").model, threads=1)


SMALL = ["llama/model-q8_0.gguf", "mixtral/model-q8_0.gguf"]
WIDE = [pytest.param(name, marks=pytest.mark.slow) for name in ("llama-k/model.gguf", "llama-blocks/model.gguf")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, "llama-k/model.gguf", "llama-blocks/model.gguf", "llama/hf", "qwen3_moe/hf"])
def test_logits_are_the_same_bits_for_every_cut_and_number_of_ranks(name: str) -> None:
    """int8 and float weights alike, whatever is said of `deterministic`."""
    want: Logits | None = None
    for threads in (1, 2, 3, 4, 7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more ranks than cores are meant here
            model = rml.load(case(name).model, threads=threads, deterministic=threads > 1)
        for pieces in PIECES if threads < 4 else PIECES[:1]:
            got = run(model, pieces)
            want = got if want is None else want
            np.testing.assert_array_equal(got, want, err_msg=f"{threads} ranks, pieces {pieces}")
    assert want is not None
    assert np.abs(want).max() > 1.0


@pytest.mark.parametrize("name", [*SMALL, *WIDE])
def test_int8_products_come_near_the_exact_ones(name: str) -> None:
    exact = run(rml.load(case(name).model, threads=1, dot="exact"), [33])
    rounded = run(rml.load(case(name).model, threads=1), [33])
    error = np.abs(rounded - exact).max() / np.abs(exact).max()
    assert 1e-6 < error < 0.1, "int8 activations round to one part in 127, and do round"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", [*SMALL, *(f"{family}/model.gguf" for family in FAMILIES)])
def test_the_last_tokens_logits_are_the_last_row_of_all(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last layer only the last token is worked out then; without logits, nothing but keys and values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on one core
        model = rml.load(case(name).model, threads=threads)
    rows = run(model, [33])
    np.testing.assert_array_equal(model.forward(TOKENS, model.new_cache(33)), rows[-1])
    monkeypatch.setattr("rml.decoder.CALL_TOKENS", 14)
    cut = rml.load(case(name).model, threads=1)
    np.testing.assert_array_equal(cut.forward(TOKENS, cut.new_cache(33)), rows[-1])


def test_a_wide_vocabulary_cuts_all_logits_into_pieces(llama: rml.DecoderLM, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(llama, [33])
    monkeypatch.setattr("rml.decoder.LOGIT_ENTRIES", 64 * 5)
    np.testing.assert_array_equal(run(llama, [33]), rows)


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        ([], "one or more"),
        ([[1, 2]], "one dimension"),
        ([64], r"tokens\[0\] = 64: outside the vocabulary of 64"),
        ([1, -1], r"tokens\[1\] = -1"),
        ([1.5], "integers"),
    ],
)
def test_wrong_tokens_change_nothing(llama: rml.DecoderLM, tokens: list[int], match: str) -> None:
    cache = llama.new_cache(8)
    llama.forward([1, 2], cache)
    with pytest.raises(ValueError, match=match):
        llama.forward(tokens, cache)
    assert cache.size == 2


def test_a_wrong_out_or_a_foreign_cache_is_refused(llama: rml.DecoderLM) -> None:
    cache = llama.new_cache(8)
    wrong: list[Any] = [np.zeros(63), np.zeros(64, np.float32), np.zeros((1, 64))]
    for out in wrong:
        with pytest.raises(rml.InvalidArgument, match="out: expected a writable float64"):
            llama.forward([1], cache, out=out)
    other = rml.load(case("qwen3/model.gguf").model, threads=1)
    with pytest.raises(rml.InvalidArgument, match="another model"):
        llama.forward([1], other.new_cache(8))
    assert cache.size == 0
    right = np.full(64, np.nan)
    assert llama.forward([1], cache, out=right) is right
    assert np.isfinite(right).all()


def test_a_full_cache_is_an_error_before_anything_is_written(llama: rml.DecoderLM) -> None:
    roomy, tight = llama.new_cache(64), llama.new_cache(8)
    for cache in (roomy, tight):
        llama.forward(TOKENS[:6], cache)
    with pytest.raises(rml.CacheFull, match="holds 6 of 8 tokens, 3 more do not fit"):
        llama.forward(TOKENS[6:9], tight)
    assert tight.size == 6
    np.testing.assert_array_equal(llama.forward([5, 6], tight), llama.forward([5, 6], roomy))


def test_truncate_and_reuse_equal_a_fresh_cache(llama: rml.DecoderLM) -> None:
    cache = llama.new_cache(64)
    llama.forward(TOKENS, cache)
    cache.truncate(5)
    again = llama.forward([9, 8, 7], cache)
    fresh = llama.new_cache(64)
    llama.forward(TOKENS[:5], fresh)
    np.testing.assert_array_equal(again, llama.forward([9, 8, 7], fresh))


def test_a_failed_call_leaves_the_cache_as_it_was(llama: rml.DecoderLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = llama.new_cache(8)
    llama.forward([1, 2], cache)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(llama.engine, "run", fail)
    with pytest.raises(KeyboardInterrupt):
        llama.forward([3], cache)
    assert cache.size == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama/hf", "gemma3/hf", "qwen3_moe/model.gguf"])
def test_one_token_steps_allocate_nothing_that_stays(name: str) -> None:
    model = rml.load(case(name).model, threads=1)
    cache = model.new_cache(256)
    out = np.empty(64)
    model.forward(TOKENS, cache, out=out)
    for token in TOKENS[:8]:
        model.forward([token], cache, out=out)
    arenas = [
        model.engine.f.ctypes.data,
        model.engine.h.ctypes.data,
        model.engine.k.ctypes.data,
        cache.arena.ctypes.data,
    ]
    tracemalloc.start()
    for token in TOKENS[:4]:
        model.forward([token], cache, out=out)
    before = tracemalloc.take_snapshot()
    for token in TOKENS[:16]:
        model.forward([token], cache, out=out)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    ours = [tracemalloc.Filter(True, "*/rml/*")]
    growth = sum(s.size_diff for s in after.filter_traces(ours).compare_to(before.filter_traces(ours), "lineno"))
    assert growth < 1024, f"{growth} bytes more after 16 steps"
    assert arenas == [
        model.engine.f.ctypes.data, model.engine.h.ctypes.data, model.engine.k.ctypes.data, cache.arena.ctypes.data
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["llama/hf", "gemma3/hf", "qwen3_moe/hf", "olmoe/hf"])
def test_taps_name_every_step_and_change_nothing(name: str) -> None:
    model = rml.load(case(name).model, threads=1)
    plain = model.forward(TOKENS, model.new_cache(64, "f64"))
    seen: dict[str, Logits] = {}
    tapped = model.forward(TOKENS, model.new_cache(64, "f64"), taps=seen.__setitem__)
    assert list(seen) == model.tap_names()
    assert {"embed", "blk.0.q_rope", "blk.1.attn_out", "blk.1.o_proj", "blk.1.ffn_out", "final_norm", "logits"} <= set(
        seen
    )
    in_turn = 1e-12 if model.config.num_experts else 0.0  # tapped, experts are added up before they are added to x
    assert np.abs(plain - tapped).max() <= in_turn
    np.testing.assert_array_equal(seen["logits"][-1], tapped)


def test_what_a_tap_returns_takes_the_values_place(llama: rml.DecoderLM) -> None:
    def silence(name: str, values: Logits) -> Logits | None:
        return values * 0 if name == "blk.1.ffn_out" else None

    changed = llama.forward(TOKENS, llama.new_cache(64), taps=silence)
    assert np.abs(changed - llama.forward(TOKENS, llama.new_cache(64))).max() > 0.01


def test_unknown_options_are_refused() -> None:
    path = case("llama/hf").model
    with pytest.raises(rml.InvalidArgument, match="dot="):
        rml.load(path, dot="fast")
    with pytest.raises(rml.InvalidArgument, match="threads=0"):
        rml.load(path, threads=0)
    with pytest.warns(UserWarning, match="available cores"):
        rml.load(path, threads=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_starts_ranks_of_its_own() -> None:
    model = rml.load(case("llama/model-q8_0.gguf").model, threads=2)
    want = model.forward(TOKENS, model.new_cache(64)).tobytes()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, model.forward(TOKENS, model.new_cache(64)).tobytes())
        os._exit(0)
    os.close(write)
    got = b"".join(iter(lambda: os.read(read, 4096), b""))
    os.waitpid(child, 0)
    assert got == want


def test_several_models_work_in_turn() -> None:
    a, b = (rml.load(case(name).model, threads=2) for name in ("llama/model-q8_0.gguf", "qwen3/model.gguf"))
    caches = a.new_cache(64), b.new_cache(64)
    alone = [m.forward(TOKENS, m.new_cache(64)) for m in (a, b)]
    for token in TOKENS:
        last = [m.forward([token], c) for m, c in zip((a, b), caches, strict=True)]
    for got, want in zip(last, alone, strict=True):
        assert np.abs(got - want).max() < 1e-5


@pytest.mark.slow
def test_every_kernel_type_is_multiplied() -> None:
    """No stored type falls through the dispatch: each appears in a golden case, with logits that are not zero."""
    from rml.formats import KERNEL_TYPES

    used = {
        matrix.format.name
        for c in CASES
        for matrix in rml.load(c.model, threads=1).layers.matrices()
    }  # fmt: skip
    assert used >= {stored.name for stored in KERNEL_TYPES}


def test_build_is_named_in_the_package() -> None:
    assert rml.BUILD is BUILD


@pytest.mark.compiled
def test_a_dead_worker_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from rml import native

    epochs = native.buffer(16, np.int64)
    assert native.kernel("sync.barrier")(epochs, 0, 2, 1, 0.05) == 2, "worker 1 never comes: its number plus one"
    epochs[8] = 1
    assert native.kernel("sync.barrier")(epochs, 0, 2, 1, 0.05) == 0
    model = rml.load(case("llama/hf").model, threads=1)
    monkeypatch.setattr(model.engine, "use_cache", lambda cache: setattr(model.engine, "_call", lambda: 2))
    with pytest.raises(rml.EngineError, match="worker 1 did not reach a barrier"):
        model.forward([1], model.new_cache(8))
    with pytest.raises(rml.EngineError, match="load the model again"):
        model.forward([1], model.new_cache(8))


@pytest.mark.compiled
def test_workers_park_when_idle_and_end_with_their_model() -> None:
    if BUILD.mode != "release" or available_cores() < 2:
        pytest.skip("needs release kernels and two cores: there are no workers otherwise")
    before = set(threading.enumerate())
    model = rml.load(case("llama/model-q8_0.gguf").model, threads=2)
    model.forward(TOKENS, model.new_cache(64))
    (worker,) = set(threading.enumerate()) - before
    reference = weakref.ref(model)
    assert wait_until(lambda: parked(reference()) == 1), "an idle worker parks"
    model.forward(TOKENS, model.new_cache(64))  # and wakes
    del model
    gc.collect()
    assert wait_until(lambda: not worker.is_alive()), "a worker ends with its model"


def parked(model: rml.DecoderLM | None) -> int:
    """How many of the model's workers have parked."""
    return 0 if model is None or model.engine.crew is None else model.engine.crew.parked


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()
