"""One part of a panel, 32 positions of 128 rows, times the int8 activations of a token or of four: integers, exact.

Two neighbouring positions of a row meet the same two of the activations, which `spread` has repeated for 32 rows: an
instruction (vpmaddubsw) multiplies 64 bytes, unsigned by signed, and adds them in pairs into 32 lanes of 16 bits, one
row each. A sum over positions is formed there, of (q - middle) x, and begins at -middle times the sum of the x: that it
is formed modulo 2^16 is enough, since it fits.

    middle = 2^(width - 1):  |sum| <= 16 x 16 x 127 = 32,512 for 5 bits and 16 positions, 4 bits and 32 positions

Wider integers are low nibbles and what is left of them, q = low + 16 * top, with a sum for each: of Q8_0's q + 128 with
middle 8 over 32 positions, of 6 bits without one over 16.

Four tokens meet planes (panel_blocks.py), a weight read once for four products. For one token the bytes of two
positions of all rows are unpacked and multiplied at once, in registers. In the source they go through t[ts :], and
`apart` tells the compiler that nothing else is there: it need not write them down, but for the last of each place. What
one step unpacks has a place of its own: the compiler would do it later otherwise, where it costs the vpmaddubsw.
In these functions

    w[p :]        are the part's units (layout: pack.py), behind its scales
    hu[y + 64 j]  the activations of positions 2 j and 2 j + 1, repeated
    h[out :]      the sums, PANEL of all positions or of the first 16; 512 entries later those of the last 16, and PANEL
                  after the sums of low nibbles those of what is left
    w[asked :]    is asked for on the way: half as many bytes as the part has, of width 8 as many

and a caller stands in another module: it passes one memory as t and hu, which the compiler is not to know. A panel with
fewer rows is multiplied as if it had all of them: its last sums mean nothing.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.apart import apart, apart_i16
from rml.kernels.prefetch import prefetch_item


def middle_of(width: i64) -> i64:
    """What is taken off q for the sums: half of its range, up to 5 bits; of width 8, off its nibbles; 0 of width 6."""
    if width == 6:
        return i64(0)
    if width == 8:
        return i64(8)
    return 1 << (width - 1)


def start_of(middle: i32, k: vec[i32], sums: i64, both: i32) -> i16:
    """What a sum of (q - middle) x begins at; the sum of the x is k[sums], both = 1: + k[sums + 1]."""
    return i16(-middle * (k[sums] + both * k[sums + 1]))


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


def begin(h: vec[i16], out: i64, start: i16) -> None:
    """PANEL sums begin at `start`."""
    for e in range(i64(128)):
        h[out + e] = start


def promise(w: vec[u8], t: vec[u8], hu: vec[u8], h: vec[i16]) -> None:
    """What the functions below promise the compiler: see above."""
    apart(t, w)
    apart(t, hu)
    apart_i16(h, w)


def request(w: vec[u8], p: i64) -> None:
    """Asks for two lines from byte p on, which will be read later: few at a time do not wait for one another."""
    prefetch_item(w, p)
    prefetch_item(w, p + 64)


def take(w: vec[u8], p: i64, shift: u8, mask: u8, t: vec[u8], ts: i64) -> None:
    """t[ts + e] = some bits of the bytes from w[p] on."""
    for e in range(i64(256)):
        t[ts + e] = (w[p + e] >> shift) & mask


def take_joined(
    w: vec[u8], p: i64, shift: u8, mask: u8, single: i64, at: u8, place: u8, t: vec[u8], ts: i64
) -> None:  # fmt: skip
    """The same, and bit `at` of the bytes from w[single] on becomes bit `place`."""
    for e in range(i64(256)):
        t[ts + e] = ((w[p + e] >> shift) & mask) | (((w[single + e] >> at) & 1) << place)


def meet(t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64) -> None:
    """h[out + e] += the two bytes of row e, t[ts + 2 e :], times the two activations repeated from hu[y] on."""
    for r in range(i64(32)):
        a: i32 = (i32(hu[y + r * 2]) ^ 128) - 128
        b: i32 = (i32(hu[y + r * 2 + 1]) ^ 128) - 128
        first: i32 = i32(t[ts + r * 2]) * a + i32(t[ts + r * 2 + 1]) * b
        second: i32 = i32(t[ts + 64 + r * 2]) * a + i32(t[ts + 64 + r * 2 + 1]) * b
        third: i32 = i32(t[ts + 128 + r * 2]) * a + i32(t[ts + 128 + r * 2 + 1]) * b
        fourth: i32 = i32(t[ts + 192 + r * 2]) * a + i32(t[ts + 192 + r * 2 + 1]) * b
        h[out + r] = wrapped(i32(h[out + r]) + i32(limited(first)))
        h[out + 32 + r] = wrapped(i32(h[out + 32 + r]) + i32(limited(second)))
        h[out + 64 + r] = wrapped(i32(h[out + 64 + r]) + i32(limited(third)))
        h[out + 96 + r] = wrapped(i32(h[out + 96 + r]) + i32(limited(fourth)))


def dot_nibbles(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    start: i16, asked: i64
) -> None:  # fmt: skip
    """Width 4: one sum over all positions."""
    promise(w, t, hu, h)
    begin(h, out, start)
    for j in range(i64(8)):
        a: i64 = p + j * lanes * 2
        request(w, asked + j * 128)
        take(w, a, 0, 15, t, ts + 256)
        meet(t, ts + 256, hu, y + j * 64, h, out)
        take(w, a, 4, 15, t, ts)
        meet(t, ts, hu, y + 512 + j * 64, h, out)


def dot_bytes(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    start: i16, asked: i64
) -> None:  # fmt: skip
    """Width 8: a sum of low nibbles over all positions, and one of high nibbles."""
    promise(w, t, hu, h)
    begin(h, out, start)
    begin(h, out + 128, start)
    for j in range(i64(16)):
        a: i64 = p + j * lanes * 2
        request(w, asked + j * 256)
        request(w, asked + j * 256 + 128)
        take(w, a, 0, 15, t, ts + 256)
        meet(t, ts + 256, hu, y + j * 64, h, out)
        take(w, a, 4, 15, t, ts)
        meet(t, ts, hu, y + j * 64, h, out + 128)


def dot_twos(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    first: i16, second: i16, asked: i64
) -> None:  # fmt: skip
    """Width 2: a sum over each half of the positions."""
    promise(w, t, hu, h)
    begin(h, out, first)
    begin(h, out + 512, second)
    for j in range(i64(4)):
        a: i64 = p + j * lanes * 2
        request(w, asked + j * 128)
        take(w, a, 0, 3, t, ts + 256)
        meet(t, ts + 256, hu, y + j * 64, h, out)
        take(w, a, 2, 3, t, ts)
        meet(t, ts, hu, y + 256 + j * 64, h, out)
        take(w, a, 4, 3, t, ts)
        meet(t, ts, hu, y + 512 + j * 64, h, out + 512)
        take(w, a, 6, 3, t, ts)
        meet(t, ts, hu, y + 768 + j * 64, h, out + 512)


def dot_threes(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    first: i16, second: i16, asked: i64
) -> None:  # fmt: skip
    """Width 3: a sum over each half."""
    promise(w, t, hu, h)
    begin(h, out, first)
    begin(h, out + 512, second)
    for j in range(i64(2)):
        s: i64 = p + j * lanes * 6
        a: i64 = s + lanes * 2
        b: i64 = s + lanes * 4
        request(w, asked + j * 384)
        take_joined(w, a, 0, 3, s, 0, 2, t, ts)
        meet(t, ts, hu, y + j * 64, h, out)
        request(w, asked + j * 384 + 128)
        take_joined(w, b, 0, 3, s, 1, 2, t, ts)
        meet(t, ts, hu, y + 128 + j * 64, h, out)
        request(w, asked + j * 384 + 256)
        take_joined(w, a, 2, 3, s, 2, 2, t, ts)
        meet(t, ts, hu, y + 256 + j * 64, h, out)
        take_joined(w, b, 2, 3, s, 3, 2, t, ts)
        meet(t, ts, hu, y + 384 + j * 64, h, out)
        take_joined(w, a, 4, 3, s, 4, 2, t, ts)
        meet(t, ts, hu, y + 512 + j * 64, h, out + 512)
        take_joined(w, b, 4, 3, s, 5, 2, t, ts)
        meet(t, ts, hu, y + 640 + j * 64, h, out + 512)
        take_joined(w, a, 6, 3, s, 6, 2, t, ts)
        meet(t, ts, hu, y + 768 + j * 64, h, out + 512)
        take_joined(w, b, 6, 3, s, 7, 2, t, ts)
        meet(t, ts, hu, y + 896 + j * 64, h, out + 512)


def dot_fives(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    first: i16, second: i16, asked: i64
) -> None:  # fmt: skip
    """Width 5: a sum over each half."""
    promise(w, t, hu, h)
    begin(h, out, first)
    begin(h, out + 512, second)
    for j in range(i64(2)):
        s: i64 = p + j * lanes * 10
        a: i64 = s + lanes * 2
        b: i64 = s + lanes * 4
        c: i64 = s + lanes * 6
        d: i64 = s + lanes * 8
        request(w, asked + j * 640)
        take_joined(w, a, 0, 15, s, 0, 4, t, ts)
        meet(t, ts, hu, y + j * 64, h, out)
        request(w, asked + j * 640 + 128)
        take_joined(w, b, 0, 15, s, 1, 4, t, ts)
        meet(t, ts, hu, y + 128 + j * 64, h, out)
        request(w, asked + j * 640 + 256)
        take_joined(w, c, 0, 15, s, 2, 4, t, ts)
        meet(t, ts, hu, y + 256 + j * 64, h, out)
        request(w, asked + j * 640 + 384)
        take_joined(w, d, 0, 15, s, 3, 4, t, ts)
        meet(t, ts, hu, y + 384 + j * 64, h, out)
        request(w, asked + j * 640 + 512)
        take_joined(w, a, 4, 15, s, 4, 4, t, ts)
        meet(t, ts, hu, y + 512 + j * 64, h, out + 512)
        take_joined(w, b, 4, 15, s, 5, 4, t, ts)
        meet(t, ts, hu, y + 640 + j * 64, h, out + 512)
        take_joined(w, c, 4, 15, s, 6, 4, t, ts)
        meet(t, ts, hu, y + 768 + j * 64, h, out + 512)
        take_joined(w, d, 4, 15, s, 7, 4, t, ts)
        meet(t, ts, hu, y + 896 + j * 64, h, out + 512)


def dot_sixes(
    w: vec[u8], p: i64, lanes: i64, t: vec[u8], ts: i64, hu: vec[u8], y: i64, h: vec[i16], out: i64,
    start: i16, asked: i64
) -> None:  # fmt: skip
    """Width 6: over each half, a sum of low nibbles and one of what is left."""
    promise(w, t, hu, h)
    begin(h, out, start)
    begin(h, out + 128, start)
    begin(h, out + 512, start)
    begin(h, out + 640, start)
    for j in range(i64(4)):
        s: i64 = p + j * lanes * 6
        a: i64 = s + lanes * 2
        b: i64 = s + lanes * 4
        request(w, asked + j * 384)
        take(w, a, 0, 15, t, ts + 256)
        meet(t, ts + 256, hu, y + j * 64, h, out)
        request(w, asked + j * 384 + 128)
        take(w, s, 0, 3, t, ts + 512)
        meet(t, ts + 512, hu, y + j * 64, h, out + 128)
        request(w, asked + j * 384 + 256)
        take(w, b, 0, 15, t, ts + 768)
        meet(t, ts + 768, hu, y + 256 + j * 64, h, out)
        take(w, s, 2, 3, t, ts)
        meet(t, ts, hu, y + 256 + j * 64, h, out + 128)
        take(w, a, 4, 15, t, ts + 1024)
        meet(t, ts + 1024, hu, y + 512 + j * 64, h, out + 512)
        take(w, s, 4, 3, t, ts)
        meet(t, ts, hu, y + 512 + j * 64, h, out + 640)
        take(w, b, 4, 15, t, ts + 1280)
        meet(t, ts + 1280, hu, y + 768 + j * 64, h, out + 512)
        take(w, s, 6, 3, t, ts)
        meet(t, ts, hu, y + 768 + j * 64, h, out + 640)
