"""One block of a panel of Q8_0, 32 positions of 128 rows, times the int8 activations of many tokens.

It pays then to make pairs of i16 of the stored bytes, once for all tokens: their products are added up in 32 bits, by
one instruction for 16 rows (vpdpwssd). For one token: panel_dot.dot_bytes.
"""

from __future__ import annotations

from librt.strings import read_i16_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def pairs(wb: bytes, p: i64, lanes: i64, h: vec[i16], out: i64) -> None:
    """h[out + 2 (lanes j + e) + i] = q of position 2 j + i of row e; p is the byte of q + 128 of the first."""
    for e in range(lanes * 16):
        v: i32 = i32(read_i16_le(wb, p + e * 2))
        h[out + e * 2] = i16((v & 255) - 128)
        h[out + e * 2 + 1] = i16(((v >> 8) & 255) - 128)


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


def widen_planes(hu: vec[u8], planes: i64, lanes: i64, offset: i16, h: vec[i16], out: i64) -> None:
    """As `pairs`, of the planes of a part that panel_blocks.py unpacked: q - offset. hu is the same memory as h."""
    for e in range(lanes * 32):
        h[out + e] = i16(hu[planes * 2 + e]) - offset


def dot_pairs_four(h: vec[i16], w: i64, lanes: i64, activations: i64, k: vec[i32], out: i64) -> None:
    """k[out + 128 t + e] = the sum of eight pairs as in dot_pairs, for four tokens t.

    The activations of each are repeated from h[activations + 512 t] on. 64 rows at a time, so that the sums stay in
    registers; every weight is read once for four products.
    """
    for half in range(i64(2)):
        o: i64 = out + half * 64
        for e in range(i64(64)):
            k[o + e] = 0
            k[o + 128 + e] = 0
            k[o + 256 + e] = 0
            k[o + 384 + e] = 0
        for j in range(i64(8)):
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
