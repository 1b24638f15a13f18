"""Floats of 16 bits. Those of bf16 are the upper half of an f32's; those of f16, shifted, belong to the f32 that is
2^112 times smaller, exactly: an f16 exponent stands 112 below the f32 one of the same value."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i32, i64

from rml.kernels.prefetch import prefetch

TWO_112: Final = 5192296858534827628530496329220096.0


def f32_of_f16(v: i32) -> i32:
    """The bits of an f32 that is 2^-112 times the f16 with bits v, exactly, subnormals included.

    Exponent 31 (infinity, NaN) becomes exponent 255, which no power of two changes.
    """
    high: i32 = ((v & 31744) + 1024) & 32768  # not zero where all exponent bits are set
    return (((v & 32767) << 13) + (high << 13) * 7) | (v & -2147483648)


def bits_f16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64, ahead: i64) -> None:
    """k[out + j] = f32_of_f16 of weight j of `count`. What lies `ahead` bytes further is asked for on the way."""
    blocks: i64 = count >> 5
    for b in range(blocks):
        prefetch(wb, start + b * 64 + ahead)
        for t in range(i64(32)):
            k[out + b * 32 + t] = f32_of_f16(i32(read_i16_le(wb, start + (b * 32 + t) * 2)))
    for j in range(blocks * 32, count):
        k[out + j] = f32_of_f16(i32(read_i16_le(wb, start + j * 2)))


def bits_bf16(wb: bytes, start: i64, count: i64, k: vec[i32], out: i64, ahead: i64) -> None:
    """k[out + j] = the bits of the f32 that bf16 weight j is the upper half of. Asks as bits_f16 does."""
    blocks: i64 = count >> 5
    for b in range(blocks):
        prefetch(wb, start + b * 64 + ahead)
        for t in range(i64(32)):
            k[out + b * 32 + t] = i32(read_i16_le(wb, start + (b * 32 + t) * 2)) << 16
    for j in range(blocks * 32, count):
        k[out + j] = i32(read_i16_le(wb, start + j * 2)) << 16
