"""What is read of the processor's caches, from a folder like the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rml.caches import bytes_ahead, nearest_cache
from rml.kernels.prefetch import FAR


def write_cache(folder: Path, index: int, level: str, kind: str, size: str) -> None:
    place = folder / f"index{index}"
    place.mkdir(parents=True)
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (place / name).write_text(f"{text}\n")


def test_the_nearest_data_cache_is_found(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, "1", "Instruction", "64K")
    write_cache(tmp_path, 1, "2", "Unified", "1024K")
    write_cache(tmp_path, 2, "1", "Data", "48K")
    assert nearest_cache(tmp_path) == 49152


def test_a_system_that_does_not_say_has_no_known_cache(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, "1", "Data", "unknown")
    (tmp_path / "index1").mkdir()
    assert nearest_cache(tmp_path) == 0
    assert nearest_cache(tmp_path / "missing") == 0


@pytest.mark.parametrize(("nearest", "ahead"), [(0, 0), (32768, 0), (49152, FAR), (65536, FAR)])
def test_only_a_larger_cache_is_filled_ahead(nearest: int, ahead: int) -> None:
    assert bytes_ahead(nearest) == ahead
