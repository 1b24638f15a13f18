"""Work shared among threads while a model is loaded; the workers of a running one are tests/test_decoder.py's."""

from __future__ import annotations

import threading

import pytest

from rml.threads import sum_of_all


@pytest.mark.parametrize("threads", [1, 3, 20])
def test_every_item_is_worked_on_once(threads: int) -> None:
    seen: list[int] = []

    def work(item: int) -> int:
        seen.append(item)
        return item

    assert sum_of_all(work, list(range(10)), threads) == 45
    assert sorted(seen) == list(range(10))


def test_an_error_in_another_thread_reaches_the_caller() -> None:
    here, both = threading.current_thread(), threading.Barrier(2, timeout=60)

    def work(item: int) -> int:
        both.wait()  # so that each thread has one of the two items
        if threading.current_thread() is not here:
            raise ValueError(f"item {item}")
        return 0

    with pytest.raises(ValueError, match=r"item [01]"):
        sum_of_all(work, [0, 1], 2)
