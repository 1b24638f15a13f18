"""Q8_0: blocks of 32 weights in 34 bytes: f16 scale d, 32 int8 q; weight = d * q."""

from __future__ import annotations

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.prefetch import AHEAD, prefetch


def sums_q8_0(
    w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], out: i64,
    fi: vec[i64], d: i64
) -> None:  # fmt: skip
    """Row r of the rows from byte p: k[out + 8 b + r] = sum of (q + 128) * x[at + 32 b :], fi[d + 8 b + r] = bits of d.

    Weights are taken as q + 128, unsigned, for unsigned times signed bytes is one instruction (vpdpbusd); rows.py takes
    128 times the sum of the activations off again. Two loops of 16, for of one of 32 the compiler makes i16 products.
    These rows are read faster than the processor fetches them on its own, so they are asked for ahead of time.
    """
    for r in range(rows):
        for b in range(blocks):
            prefetch(wb, p + AHEAD)
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] ^ 128) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 18 + j] ^ 128) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            k[out + b * 8 + r] = acc
            fi[d + b * 8 + r] = fi[i64(read_i32_le(wb, p) & 65535)]
            p += 34


def unpack_q8_0(w: vec[u8], wb: bytes, p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        prefetch(wb, p + AHEAD)
        f[d + b * 8] = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(32)):
            h[out + b * 256 + j] = i16((i32(w[p + 2 + j]) ^ 128) - 128)
        p += 34


def widen_q8_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[i64(w[p]) | (i64(w[p + 1]) << 8)]
        for j in range(i64(32)):
            f[out + b * 32 + j] = d * float((i32(w[p + 2 + j]) ^ 128) - 128)
        p += 34
