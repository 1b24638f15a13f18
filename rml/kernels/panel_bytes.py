"""One part of a panel, 32 positions of 128 rows, times the int8 activations of four tokens: Q8_0 and Q6_K.

It pays then to make pairs of i16 of the integers, once for all tokens: their products are added up in 32 bits, by one
instruction for 16 rows (vpdpwssd), so none of them is too large. For one token: panel_dot.py.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def pairs(u: vec[u8], p: i64, count: i64, offset: i16, h: vec[i16], out: i64) -> None:
    """h[out + e] = u[p + e] - offset, e < count: from units of two positions 2 j and 2 j + 1, bytes, pairs of i16."""
    for e in range(count):
        h[out + e] = i16(u[p + e]) - offset


def repeat(hu: vec[u8], x: i64, h: vec[i16], out: i64, scratch: i64) -> None:
    """h[out + 32 j + 2 r + i] = activation 2 j + i, for r < 16; the activations are bytes from hu[x] on.

    h[scratch : scratch + 32] is scratch.
    """
    for e in range(i64(32)):
        h[scratch + e] = i16((i32(hu[x + e]) ^ 128) - 128)
    for j in range(i64(16)):
        first: i16 = h[scratch + j * 2]
        second: i16 = h[scratch + j * 2 + 1]
        for r in range(i64(16)):
            h[out + j * 32 + r * 2] = first
            h[out + j * 32 + r * 2 + 1] = second


def dot_pairs_four(count: i64, h: vec[i16], w: i64, lanes: i64, activations: i64, k: vec[i32], out: i64) -> None:
    """k[out + 128 t + e] = the sum of the products of `count` pairs of positions of row e, for four tokens t.

    The pairs begin at h[w + 2 e], each 2 * lanes entries after the one before. The activations of each token are
    repeated from h[activations + 512 t] on. 64 rows at a time, so that the sums stay in registers; every weight is
    read once for four products.
    """
    for half in range(i64(2)):
        o: i64 = out + half * 64
        for e in range(i64(64)):
            k[o + e] = 0
            k[o + 128 + e] = 0
            k[o + 256 + e] = 0
            k[o + 384 + e] = 0
        for j in range(count):
            p: i64 = w + (j * lanes + half * 64) * 2
            y: i64 = activations + j * 32
            for r in range(i64(16)):
                u0: i32 = i32(h[p + r * 2])
                v0: i32 = i32(h[p + r * 2 + 1])
                u1: i32 = i32(h[p + 32 + r * 2])
                v1: i32 = i32(h[p + 32 + r * 2 + 1])
                u2: i32 = i32(h[p + 64 + r * 2])
                v2: i32 = i32(h[p + 64 + r * 2 + 1])
                u3: i32 = i32(h[p + 96 + r * 2])
                v3: i32 = i32(h[p + 96 + r * 2 + 1])
                a0: i32 = i32(h[y + r * 2])
                b0: i32 = i32(h[y + r * 2 + 1])
                a1: i32 = i32(h[y + 512 + r * 2])
                b1: i32 = i32(h[y + 512 + r * 2 + 1])
                a2: i32 = i32(h[y + 1024 + r * 2])
                b2: i32 = i32(h[y + 1024 + r * 2 + 1])
                a3: i32 = i32(h[y + 1536 + r * 2])
                b3: i32 = i32(h[y + 1536 + r * 2 + 1])
                k[o + r] += u0 * a0 + v0 * b0
                k[o + 16 + r] += u1 * a0 + v1 * b0
                k[o + 32 + r] += u2 * a0 + v2 * b0
                k[o + 48 + r] += u3 * a0 + v3 * b0
                k[o + 128 + r] += u0 * a1 + v0 * b1
                k[o + 144 + r] += u1 * a1 + v1 * b1
                k[o + 160 + r] += u2 * a1 + v2 * b1
                k[o + 176 + r] += u3 * a1 + v3 * b1
                k[o + 256 + r] += u0 * a2 + v0 * b2
                k[o + 272 + r] += u1 * a2 + v1 * b2
                k[o + 288 + r] += u2 * a2 + v2 * b2
                k[o + 304 + r] += u3 * a2 + v3 * b2
                k[o + 384 + r] += u0 * a3 + v0 * b3
                k[o + 400 + r] += u1 * a3 + v1 * b3
                k[o + 416 + r] += u2 * a3 + v2 * b3
                k[o + 432 + r] += u3 * a3 + v3 * b3
