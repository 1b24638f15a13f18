"""One part of a panel, 32 positions of 128 rows, times the int8 activations of a token: integers, exact.

Two neighbouring positions of a row meet the same two of the activations, which `spread` has repeated for 32 rows: an
instruction (vpmaddubsw) multiplies 64 bytes, unsigned by signed, and adds them in pairs into 32 lanes of 16 bits, one
row each. A sum over 16 positions is formed there, of (q - middle) x, and begins at -middle times the sum of the x: that
it is formed modulo 2^16 is enough, since it fits.

    middle = 2^(width - 1):  |sum| <= 16 x 16 x 127 = 32,512 for 5 bits; for up to 4 even over 32 positions

Of 6 bits only two pairs of q x are sure to fit: a sum over 16 positions is four pieces, which panel_sums.py adds up.
Of Q8_0's q + 128 and a whole activation not one pair would fit: its activations are taken as low nibbles and what is
left of them, divided by 16, in four pieces of 4 pairs each, and the stored bytes are multiplied as they are.

Sums are 128 entries, one for each row; those of the first 16 positions lie 512 entries before those of the last 16, and
those over low nibbles 512 before those over the rest. A panel with fewer rows is multiplied as if it had all of them:
its last sums mean nothing.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def middle_of(width: i64) -> i64:
    """What is taken off q for the sums: half of its range, 0 of width 6."""
    if width == 6:
        return i64(0)
    return 1 << (width - 1)


def pieces_of(width: i64) -> i64:
    """In how many pieces the products of 16 positions are added up."""
    if width == 6:
        return i64(4)
    return i64(1)


def pairs_of(width: i64) -> i64:
    """Of how many pairs dot_four is to form a sum: widths 2 to 5. Halves of the K types have scales of their own."""
    if width == 4:
        return i64(16)
    return i64(8)


def spread(h: vec[i16], x: i64, out: i64) -> None:
    """h[out + 32 j + r] = h[x + j], j < 16: two int8 activations, for 32 rows."""
    for j in range(i64(16)):
        both: i16 = h[x + j]
        for r in range(i64(32)):
            h[out + j * 32 + r] = both


def limited(value: i32) -> i16:
    """The value, which an i16 holds. The limits are never met: they say what vpmaddubsw would do, so that the compiler
    may take it.
    """
    if value > 32767:
        value = 32767
    if value < -32768:
        value = -32768
    return i16(value)


def wrapped(value: i32) -> i16:
    """The low 16 bits of the value."""
    return i16(((value & 65535) ^ 32768) - 32768)


def dot_planes(
    h: vec[i16], hu: vec[u8], planes: i64, lanes: i64, x: i64, pieces: i64, first: i16, second: i16, scratch: i64,
    out: i64
) -> None:  # fmt: skip
    """The sums, from h[out] on, of the planes from h[planes] on times the activations h[x : x + 16].

    They begin at `first`, those of the last 16 positions at `second`. h[scratch : scratch + 512] is scratch.
    """
    spread(h, x, scratch)
    pairs: i64 = 8 >> (pieces >> 1)
    low: i64 = planes * 2
    top: i64 = low + lanes * 16
    q: i64 = scratch * 2
    for piece in range(pieces):
        for e in range(i64(128)):
            h[out + e] = first
            h[out + 512 + e] = second
        for j in range(pairs):
            v: i64 = low + j * lanes * 2
            t: i64 = top + j * lanes * 2
            y: i64 = q + j * 64
            for r in range(i64(32)):
                a: i32 = (i32(hu[y + r * 2]) ^ 128) - 128
                b: i32 = (i32(hu[y + r * 2 + 1]) ^ 128) - 128
                c: i32 = (i32(hu[y + 512 + r * 2]) ^ 128) - 128
                d: i32 = (i32(hu[y + 512 + r * 2 + 1]) ^ 128) - 128
                low0: i32 = i32(hu[v + r * 2]) * a + i32(hu[v + r * 2 + 1]) * b
                top0: i32 = i32(hu[t + r * 2]) * c + i32(hu[t + r * 2 + 1]) * d
                low1: i32 = i32(hu[v + 64 + r * 2]) * a + i32(hu[v + 64 + r * 2 + 1]) * b
                top1: i32 = i32(hu[t + 64 + r * 2]) * c + i32(hu[t + 64 + r * 2 + 1]) * d
                low2: i32 = i32(hu[v + 128 + r * 2]) * a + i32(hu[v + 128 + r * 2 + 1]) * b
                top2: i32 = i32(hu[t + 128 + r * 2]) * c + i32(hu[t + 128 + r * 2 + 1]) * d
                low3: i32 = i32(hu[v + 192 + r * 2]) * a + i32(hu[v + 192 + r * 2 + 1]) * b
                top3: i32 = i32(hu[t + 192 + r * 2]) * c + i32(hu[t + 192 + r * 2 + 1]) * d
                h[out + r] = wrapped(i32(h[out + r]) + i32(limited(low0)))
                h[out + 512 + r] = wrapped(i32(h[out + 512 + r]) + i32(limited(top0)))
                h[out + 32 + r] = wrapped(i32(h[out + 32 + r]) + i32(limited(low1)))
                h[out + 544 + r] = wrapped(i32(h[out + 544 + r]) + i32(limited(top1)))
                h[out + 64 + r] = wrapped(i32(h[out + 64 + r]) + i32(limited(low2)))
                h[out + 576 + r] = wrapped(i32(h[out + 576 + r]) + i32(limited(top2)))
                h[out + 96 + r] = wrapped(i32(h[out + 96 + r]) + i32(limited(low3)))
                h[out + 608 + r] = wrapped(i32(h[out + 608 + r]) + i32(limited(top3)))
        low += pairs * lanes * 2
        top += pairs * lanes * 2
        q += pairs * 64
        out += 128


def dot_four(
    h: vec[i16], hu: vec[u8], planes: i64, lanes: i64, pairs: i64, activations: i64, m0: i16, m1: i16, m2: i16,
    m3: i16, out: i64
) -> None:  # fmt: skip
    """h[out + 128 t + e] = a sum over `pairs` pairs that begins at m0 .. m3, for four tokens t at once.

    The activations of each are spread from h[activations + 512 t] on. Every weight is read once for four products:
    with one token the reading is what takes the time.
    """
    for e in range(i64(128)):
        h[out + e] = m0
        h[out + 128 + e] = m1
        h[out + 256 + e] = m2
        h[out + 384 + e] = m3
    for j in range(pairs):
        v: i64 = (planes + j * lanes) * 2
        y: i64 = (activations + j * 32) * 2
        for r in range(i64(32)):
            w0: i32 = i32(hu[v + r * 2])
            v0: i32 = i32(hu[v + r * 2 + 1])
            w1: i32 = i32(hu[v + 64 + r * 2])
            v1: i32 = i32(hu[v + 64 + r * 2 + 1])
            w2: i32 = i32(hu[v + 128 + r * 2])
            v2: i32 = i32(hu[v + 128 + r * 2 + 1])
            w3: i32 = i32(hu[v + 192 + r * 2])
            v3: i32 = i32(hu[v + 192 + r * 2 + 1])
            a0: i32 = (i32(hu[y + r * 2]) ^ 128) - 128
            b0: i32 = (i32(hu[y + r * 2 + 1]) ^ 128) - 128
            a1: i32 = (i32(hu[y + 1024 + r * 2]) ^ 128) - 128
            b1: i32 = (i32(hu[y + 1024 + r * 2 + 1]) ^ 128) - 128
            a2: i32 = (i32(hu[y + 2048 + r * 2]) ^ 128) - 128
            b2: i32 = (i32(hu[y + 2048 + r * 2 + 1]) ^ 128) - 128
            a3: i32 = (i32(hu[y + 3072 + r * 2]) ^ 128) - 128
            b3: i32 = (i32(hu[y + 3072 + r * 2 + 1]) ^ 128) - 128
            h[out + r] = wrapped(i32(h[out + r]) + i32(limited(w0 * a0 + v0 * b0)))
            h[out + 32 + r] = wrapped(i32(h[out + 32 + r]) + i32(limited(w1 * a0 + v1 * b0)))
            h[out + 64 + r] = wrapped(i32(h[out + 64 + r]) + i32(limited(w2 * a0 + v2 * b0)))
            h[out + 96 + r] = wrapped(i32(h[out + 96 + r]) + i32(limited(w3 * a0 + v3 * b0)))
            h[out + 128 + r] = wrapped(i32(h[out + 128 + r]) + i32(limited(w0 * a1 + v0 * b1)))
            h[out + 160 + r] = wrapped(i32(h[out + 160 + r]) + i32(limited(w1 * a1 + v1 * b1)))
            h[out + 192 + r] = wrapped(i32(h[out + 192 + r]) + i32(limited(w2 * a1 + v2 * b1)))
            h[out + 224 + r] = wrapped(i32(h[out + 224 + r]) + i32(limited(w3 * a1 + v3 * b1)))
            h[out + 256 + r] = wrapped(i32(h[out + 256 + r]) + i32(limited(w0 * a2 + v0 * b2)))
            h[out + 288 + r] = wrapped(i32(h[out + 288 + r]) + i32(limited(w1 * a2 + v1 * b2)))
            h[out + 320 + r] = wrapped(i32(h[out + 320 + r]) + i32(limited(w2 * a2 + v2 * b2)))
            h[out + 352 + r] = wrapped(i32(h[out + 352 + r]) + i32(limited(w3 * a2 + v3 * b2)))
            h[out + 384 + r] = wrapped(i32(h[out + 384 + r]) + i32(limited(w0 * a3 + v0 * b3)))
            h[out + 416 + r] = wrapped(i32(h[out + 416 + r]) + i32(limited(w1 * a3 + v1 * b3)))
            h[out + 448 + r] = wrapped(i32(h[out + 448 + r]) + i32(limited(w2 * a3 + v2 * b3)))
            h[out + 480 + r] = wrapped(i32(h[out + 480 + r]) + i32(limited(w3 * a3 + v3 * b3)))


def spread_nibbles(h: vec[i16], x: i64, out: i64, scratch: i64) -> None:
    """spread() of the low nibbles of the activations, and 512 entries later of what is left of them, divided by 16.

    x = low + 16 * top with 0 <= low < 16 and -8 <= top < 8. h[scratch : scratch + 32] is scratch.
    """
    for j in range(i64(16)):
        low: i16 = h[x + j] & 3855
        h[scratch + j] = low
        first: i32 = ((i32(h[x + j]) & 255) ^ 128) - 128
        h[scratch + 16 + j] = i16(((i32(h[x + j]) >> 12) << 8) | ((first >> 4) & 255))
    spread(h, scratch, out)
    spread(h, scratch + 16, out + 512)


def dot_bytes(w: vec[u8], p: i64, lanes: i64, hu: vec[u8], q: i64, h: vec[i16], out: i64) -> None:
    """A piece: the sums of 8 positions from byte p on times the low nibbles of the activations spread at byte q, from
    h[out] on, and 512 entries later times the rest.
    """
    for e in range(i64(128)):
        h[out + e] = 0
        h[out + 512 + e] = 0
    for j in range(i64(4)):
        v: i64 = p + j * lanes * 2
        y: i64 = q + j * 64
        for r in range(i64(32)):
            a: i32 = (i32(hu[y + r * 2]) ^ 128) - 128
            b: i32 = (i32(hu[y + r * 2 + 1]) ^ 128) - 128
            c: i32 = (i32(hu[y + 1024 + r * 2]) ^ 128) - 128
            d: i32 = (i32(hu[y + 1024 + r * 2 + 1]) ^ 128) - 128
            w0: i32 = i32(w[v + r * 2])
            v0: i32 = i32(w[v + r * 2 + 1])
            w1: i32 = i32(w[v + 64 + r * 2])
            v1: i32 = i32(w[v + 64 + r * 2 + 1])
            w2: i32 = i32(w[v + 128 + r * 2])
            v2: i32 = i32(w[v + 128 + r * 2 + 1])
            w3: i32 = i32(w[v + 192 + r * 2])
            v3: i32 = i32(w[v + 192 + r * 2 + 1])
            h[out + r] += limited(w0 * a + v0 * b)
            h[out + 512 + r] += limited(w0 * c + v0 * d)
            h[out + 32 + r] += limited(w1 * a + v1 * b)
            h[out + 544 + r] += limited(w1 * c + v1 * d)
            h[out + 64 + r] += limited(w2 * a + v2 * b)
            h[out + 576 + r] += limited(w2 * c + v2 * d)
            h[out + 96 + r] += limited(w3 * a + v3 * b)
            h[out + 608 + r] += limited(w3 * c + v3 * d)
