"""One block of a panel of Q8_0, 32 positions of 128 rows, times the int8 activations of many tokens.

It pays then to make pairs of i16 of the stored bytes, once for all tokens: their products are added up in 32 bits, by
one instruction for 16 rows (vpdpwssd). For one token: panel_dot.dot_bytes.
"""

from __future__ import annotations

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64


def pairs(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """h[out + 2 (lanes j + e) + i] = q of position 2 j + i of row e; p is the byte of q + 128 of the first."""
    for e in range(lanes * 16):
        v: i32 = i32(read_i16_le(wb, p + e * 2))
        h[out + e * 2] = i16((v & 255) - 128)
        h[out + e * 2 + 1] = i16(((v >> 8) & 255) - 128)


def repeat(h: vec[i16], x: i64, out: i64, scratch: i64) -> None:
    """h[out + 32 j + 2 r + i] = activation 2 j + i, for r < 16. h[scratch : scratch + 32] is scratch."""
    for j in range(i64(16)):
        both: i16 = h[x + j]
        h[scratch + j * 2] = i16(((i32(both) & 255) ^ 128) - 128)
        h[scratch + j * 2 + 1] = both >> 8
    for j in range(i64(16)):
        first: i16 = h[scratch + j * 2]
        second: i16 = h[scratch + j * 2 + 1]
        for r in range(i64(16)):
            h[out + j * 32 + r * 2] = first
            h[out + j * 32 + r * 2 + 1] = second


def dot_pairs(h: vec[i16], w: i64, lanes: i64, x: i64, scratch: i64, k: vec[i32], out: i64) -> None:
    """k[out + e] = the sum of the pairs from h[w] on times the activations h[x : x + 16], for 128 rows.

    h[scratch : scratch + 544] is scratch.
    """
    repeat(h, x, scratch, scratch + 512)
    for e in range(i64(128)):
        k[out + e] = 0
    for j in range(i64(16)):
        p: i64 = w + j * lanes * 2
        y: i64 = scratch + j * 32
        for r in range(i64(16)):
            a: i32 = i32(h[y + r * 2])
            b: i32 = i32(h[y + r * 2 + 1])
            u0: i32 = i32(h[p + r * 2])
            v0: i32 = i32(h[p + r * 2 + 1])
            u1: i32 = i32(h[p + 32 + r * 2])
            v1: i32 = i32(h[p + 32 + r * 2 + 1])
            u2: i32 = i32(h[p + 64 + r * 2])
            v2: i32 = i32(h[p + 64 + r * 2 + 1])
            u3: i32 = i32(h[p + 96 + r * 2])
            v3: i32 = i32(h[p + 96 + r * 2 + 1])
            u4: i32 = i32(h[p + 128 + r * 2])
            v4: i32 = i32(h[p + 128 + r * 2 + 1])
            u5: i32 = i32(h[p + 160 + r * 2])
            v5: i32 = i32(h[p + 160 + r * 2 + 1])
            u6: i32 = i32(h[p + 192 + r * 2])
            v6: i32 = i32(h[p + 192 + r * 2 + 1])
            u7: i32 = i32(h[p + 224 + r * 2])
            v7: i32 = i32(h[p + 224 + r * 2 + 1])
            k[out + r] += u0 * a + v0 * b
            k[out + 16 + r] += u1 * a + v1 * b
            k[out + 32 + r] += u2 * a + v2 * b
            k[out + 48 + r] += u3 * a + v3 * b
            k[out + 64 + r] += u4 * a + v4 * b
            k[out + 80 + r] += u5 * a + v5 * b
            k[out + 96 + r] += u6 * a + v6 * b
            k[out + 112 + r] += u7 * a + v7 * b
