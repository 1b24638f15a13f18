"""A hint to the processor, which the loops of the kernels give while they compute."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, u8

FAR: Final = 12288  # bytes by which weights are asked for before they are read, where that is of use


def prefetch(memory: bytes, at: i64) -> None:
    """Asks for the cache line of byte `at`, which may lie past the end: the release step of setup.py makes it one
    instruction. No other effect."""


def prefetch_item(memory: vec[u8], at: i64) -> None:
    """As prefetch, for the item `at` of a vec."""


def prefetch_second(memory: bytes, at: i64) -> None:
    """As prefetch, into the second cache: the nearest one keeps what it has."""


def ask(memory: bytes, p: i64, size: i64) -> None:
    """Asks for the lines of `size` bytes from byte p on."""
    at: i64 = 0
    while at < size:
        prefetch(memory, p + at)
        at += 64


def ask_second(memory: bytes, p: i64, size: i64) -> None:
    """As ask, into the second cache."""
    at: i64 = 0
    while at < size:
        prefetch_second(memory, p + at)
        at += 64
