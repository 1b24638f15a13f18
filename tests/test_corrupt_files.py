"""Every hostile file gets its own clear error, at once and without the memory that it lies about."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from corrupt_files import LIES
from toy_files import TOY_SHAPES, Lie, load, toy_gguf, write_hf

SECONDS = 0.05
BYTES = 10_000_000


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_is_refused(lie: Lie, tmp_path: Path) -> None:
    path = lie.build(tmp_path)
    with pytest.raises(lie.error) as caught:
        load(path)
    message = str(caught.value)
    assert type(caught.value) is lie.error
    assert [word for word in lie.words if word not in message] == [], message
    assert str(tmp_path) in message
    assert len(message) < 1200


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_costs_nothing(lie: Lie, tmp_path: Path) -> None:
    path = lie.build(tmp_path)
    best = min(_seconds(lie, path) for _ in range(3))
    assert best < SECONDS
    tracemalloc.start()
    try:
        _seconds(lie, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BYTES


def _seconds(lie: Lie, path: Path) -> float:
    start = time.process_time()
    with pytest.raises(lie.error):
        load(path)
    return time.process_time() - start


def test_messages_tell_the_lies_apart(tmp_path: Path) -> None:
    """Two lies about the same file never read the same."""
    messages: dict[str, str] = {}
    for number, (name, lie) in enumerate(LIES.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        with pytest.raises(lie.error) as caught:
            load(lie.build(directory))
        message = str(caught.value).replace(str(directory), "")
        assert messages.setdefault(message, name) == name
    assert len(messages) == len(LIES) > 200


def test_the_honest_toys_load(tmp_path: Path) -> None:
    """What the lies are changes of is in itself a good model: without this, every lie could fail for another reason."""
    gguf = load(toy_gguf().write(tmp_path / "toy.gguf"))
    hf = load(write_hf(tmp_path))
    assert set(gguf.tensors) == set(TOY_SHAPES)
    assert gguf.config.num_kv_heads == hf.config.num_kv_heads == 2
    assert gguf.config.parameter_count == hf.config.parameter_count == _count()


def _count() -> int:
    return 2 * 64 * 32 + 32 * 32 * 2 + 16 * 32 * 2 + 3 * 48 * 32 + 3 * 32
