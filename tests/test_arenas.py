"""Offsets in an arena: whole cache lines, and memory shared by what is never in use at once."""

from __future__ import annotations

import pytest

from rml.arenas import Plan


@pytest.mark.parametrize("alternatives", [([100, 10], [64]), ([64], [100, 10]), ([], [1])])
def test_alternatives_begin_at_one_place_and_end_before_what_follows(alternatives: tuple[list[int], ...]) -> None:
    plan = Plan()
    first = plan.take(3)
    offsets = plan.take_either(*alternatives)
    after = plan.take(1)
    assert first == 0
    for counts, starts in zip(alternatives, offsets, strict=True):
        ends = [64, *(start + count for start, count in zip(starts, counts, strict=True))]
        assert all(start % 64 == 0 and end <= start for start, end in zip(starts, ends, strict=False))
        assert all(start < end + 64 for start, end in zip(starts, ends, strict=False)), "nothing is left out"
        assert ends[-1] <= after
    assert after == max(-(-sum(-(-count // 64) * 64 for count in counts) // 64) * 64 for counts in alternatives) + 64
