"""Promises to the compiler about memories that a kernel is given.

What the kernel reads or writes of the one it does not write or read through the other: the release step of setup.py
makes this the compiler's assumption of separate storage, with which values may stay in registers. No other effect.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, u8


def apart(a: vec[u8], b: vec[u8]) -> None:
    """The promise about two vecs of bytes."""


def apart_i16(a: vec[i16], b: vec[u8]) -> None:
    """The same about one of i16 and one of bytes."""
