"""Q8_0: blocks of 32 weights in 34 bytes: f16 scale d, 32 int8 q; weight = d * q."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def matvec_q8_0(
    w: vec[u8], start: i64, first: i64, last: i64, blocks: i64, x: vec[u8], at: i64, k: vec[i32], sums: i64,
    f: vec[float], scale: i64, half: i64, y: i64, accumulate: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times the int8 activations x[at:]; layouts in matmul.matvec.

    Weights are taken as q + 128, unsigned, and 128 times the sum of the activations is taken off again: unsigned times
    signed bytes is one instruction (vpdpbusd). Two loops of 16, for of one of 32 the compiler makes i16 products, and
    not a function of their own, which it would call.
    """
    for r in range(first, last):
        p: i64 = start + r * blocks * 34
        total: float = 0.0
        for b in range(blocks):
            acc: i32 = 0
            for j in range(i64(16)):
                acc += i32(w[p + 2 + j] ^ 128) * ((i32(x[at + b * 32 + j]) ^ 128) - 128)
            for j in range(i64(16)):
                acc += i32(w[p + 18 + j] ^ 128) * ((i32(x[at + b * 32 + 16 + j]) ^ 128) - 128)
            total += float(acc - 128 * k[sums + b]) * f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))] * f[scale + b]
            p += 34
        if accumulate != 0:
            f[y + r] += total
        else:
            f[y + r] = total


def unpack_q8_0(w: vec[u8], p: i64, blocks: i64, h: vec[i16], out: i64, f: vec[float], d: i64, half: i64) -> None:
    """h[out + b * 256 + j] = q of weight j of block b, f[d + b * 8] = its scale; from byte p."""
    for b in range(blocks):
        f[d + b * 8] = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        for j in range(i64(32)):
            h[out + b * 256 + j] = i16((i32(w[p + 2 + j]) ^ 128) - 128)
        p += 34


def widen_q8_0(w: vec[u8], p: i64, blocks: i64, f: vec[float], half: i64, out: i64) -> None:
    """f[out + j] = weight j of `blocks` blocks from byte p, in float64."""
    for b in range(blocks):
        d: float = f[half + (i64(w[p]) | (i64(w[p + 1]) << 8))]
        for j in range(i64(32)):
            f[out + b * 32 + j] = d * float((i32(w[p + 2 + j]) ^ 128) - 128)
        p += 34
