"""Rows of quantised weights times one token of int8 activations, eight rows at a time.

A format says what its blocks' integer sums and factors are (`sums_*`, row after row); the floating sums of the eight
rows are then formed side by side, one row in each lane of a vector: what an output costs is the integers.

Scratch of eight rows: k[ks + 8 b + r] sum of block b of row r, f[fs + 8 + 8 b + r] its factor d; for types with a
minimum f[fs + 8 + 8 (blocks + b) + r] the factor m, and for K types k[ks + 8 (blocks + b) + r] the sum that it
multiplies. f[fs + r] totals, f[fs + 8 + 16 blocks + b] the offsets of put_offsets. Lanes of rows that are not there
hold anything and are not stored.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.k_rows import has_minimum, sums_k
from rml.kernels.norms import add, move
from rml.kernels.q4 import sums_q4_0, sums_q4_1
from rml.kernels.q5 import sums_q5_0, sums_q5_1
from rml.kernels.q8 import sums_q8_0


def totals(
    k: vec[i32], x: i64, blocks: i64, f: vec[float], offsets: i64, d: i64, scale: i64, out: i64
) -> None:  # fmt: skip
    """f[out + r] = sum over blocks of (sum - f[offsets + b]) * d * scale, in this order."""
    t0: float = 0.0
    t1: float = 0.0
    t2: float = 0.0
    t3: float = 0.0
    t4: float = 0.0
    t5: float = 0.0
    t6: float = 0.0
    t7: float = 0.0
    for b in range(blocks):
        s: float = f[scale + b]
        o: float = f[offsets + b]
        t0 += (float(k[x + b * 8]) - o) * f[d + b * 8] * s
        t1 += (float(k[x + b * 8 + 1]) - o) * f[d + b * 8 + 1] * s
        t2 += (float(k[x + b * 8 + 2]) - o) * f[d + b * 8 + 2] * s
        t3 += (float(k[x + b * 8 + 3]) - o) * f[d + b * 8 + 3] * s
        t4 += (float(k[x + b * 8 + 4]) - o) * f[d + b * 8 + 4] * s
        t5 += (float(k[x + b * 8 + 5]) - o) * f[d + b * 8 + 5] * s
        t6 += (float(k[x + b * 8 + 6]) - o) * f[d + b * 8 + 6] * s
        t7 += (float(k[x + b * 8 + 7]) - o) * f[d + b * 8 + 7] * s
    f[out + 0] = t0
    f[out + 1] = t1
    f[out + 2] = t2
    f[out + 3] = t3
    f[out + 4] = t4
    f[out + 5] = t5
    f[out + 6] = t6
    f[out + 7] = t7


def totals_minimum(
    k: vec[i32], x: i64, blocks: i64, f: vec[float], offsets: i64, d: i64, m: i64, scale: i64, out: i64
) -> None:  # fmt: skip
    """f[out + r] = sum over blocks of (sum * d + f[offsets + b] * m) * scale, in this order."""
    t0: float = 0.0
    t1: float = 0.0
    t2: float = 0.0
    t3: float = 0.0
    t4: float = 0.0
    t5: float = 0.0
    t6: float = 0.0
    t7: float = 0.0
    for b in range(blocks):
        s: float = f[scale + b]
        o: float = f[offsets + b]
        t0 += (float(k[x + b * 8]) * f[d + b * 8] + o * f[m + b * 8]) * s
        t1 += (float(k[x + b * 8 + 1]) * f[d + b * 8 + 1] + o * f[m + b * 8 + 1]) * s
        t2 += (float(k[x + b * 8 + 2]) * f[d + b * 8 + 2] + o * f[m + b * 8 + 2]) * s
        t3 += (float(k[x + b * 8 + 3]) * f[d + b * 8 + 3] + o * f[m + b * 8 + 3]) * s
        t4 += (float(k[x + b * 8 + 4]) * f[d + b * 8 + 4] + o * f[m + b * 8 + 4]) * s
        t5 += (float(k[x + b * 8 + 5]) * f[d + b * 8 + 5] + o * f[m + b * 8 + 5]) * s
        t6 += (float(k[x + b * 8 + 6]) * f[d + b * 8 + 6] + o * f[m + b * 8 + 6]) * s
        t7 += (float(k[x + b * 8 + 7]) * f[d + b * 8 + 7] + o * f[m + b * 8 + 7]) * s
    f[out + 0] = t0
    f[out + 1] = t1
    f[out + 2] = t2
    f[out + 3] = t3
    f[out + 4] = t4
    f[out + 5] = t5
    f[out + 6] = t6
    f[out + 7] = t7


def totals_minima(
    k: vec[i32], x: i64, low: i64, blocks: i64, f: vec[float], d: i64, m: i64, scale: i64, out: i64
) -> None:  # fmt: skip
    """f[out + r] = sum over blocks of (sum * d + the minima's sum k[low + 8 b + r] * m) * scale, in this order."""
    t0: float = 0.0
    t1: float = 0.0
    t2: float = 0.0
    t3: float = 0.0
    t4: float = 0.0
    t5: float = 0.0
    t6: float = 0.0
    t7: float = 0.0
    for b in range(blocks):
        s: float = f[scale + b]
        t0 += (float(k[x + b * 8]) * f[d + b * 8] + float(k[low + b * 8]) * f[m + b * 8]) * s
        t1 += (float(k[x + b * 8 + 1]) * f[d + b * 8 + 1] + float(k[low + b * 8 + 1]) * f[m + b * 8 + 1]) * s
        t2 += (float(k[x + b * 8 + 2]) * f[d + b * 8 + 2] + float(k[low + b * 8 + 2]) * f[m + b * 8 + 2]) * s
        t3 += (float(k[x + b * 8 + 3]) * f[d + b * 8 + 3] + float(k[low + b * 8 + 3]) * f[m + b * 8 + 3]) * s
        t4 += (float(k[x + b * 8 + 4]) * f[d + b * 8 + 4] + float(k[low + b * 8 + 4]) * f[m + b * 8 + 4]) * s
        t5 += (float(k[x + b * 8 + 5]) * f[d + b * 8 + 5] + float(k[low + b * 8 + 5]) * f[m + b * 8 + 5]) * s
        t6 += (float(k[x + b * 8 + 6]) * f[d + b * 8 + 6] + float(k[low + b * 8 + 6]) * f[m + b * 8 + 6]) * s
        t7 += (float(k[x + b * 8 + 7]) * f[d + b * 8 + 7] + float(k[low + b * 8 + 7]) * f[m + b * 8 + 7]) * s
    f[out + 0] = t0
    f[out + 1] = t1
    f[out + 2] = t2
    f[out + 3] = t3
    f[out + 4] = t4
    f[out + 5] = t5
    f[out + 6] = t6
    f[out + 7] = t7


def sums_of_rows(
    kind: i64, w: vec[u8], wb: bytes, p: i64, rows: i64, blocks: i64, h: vec[i16], hx: i64, x: vec[u8], at: i64,
    k: vec[i32], sums: i64, out: i64, fi: vec[i64], d: i64, hs: i64, parts: i64
) -> None:  # fmt: skip
    """Integer sums and factors of the rows from byte p. Scratch: k[parts : parts + 16 * blocks], h[hs : hs + cols]."""
    m: i64 = d + blocks * 8
    if kind == 8:
        sums_q8_0(w, wb, p, rows, blocks, x, at, k, out, fi, d)
    elif kind == 2:
        sums_q4_0(w, wb, p, rows, blocks, x, at, k, out, fi, d)
    elif kind == 3:
        sums_q4_1(w, wb, p, rows, blocks, x, at, k, out, fi, d, m)
    elif kind == 6:
        sums_q5_0(w, wb, p, rows, blocks, h, hx, k, out, fi, d)
    elif kind == 7:
        sums_q5_1(w, wb, p, rows, blocks, h, hx, k, out, fi, d, m)
    else:
        sums_k(
            kind, w, wb, p, rows, blocks, h, hx, x, at, k, sums, out, out + blocks * 8, parts, fi, d, m, hs
        )  # fmt: skip


def offset_of(kind: i64) -> float:
    """What an activation adds to a block beside its product: the amount by which the integers of a format's sums are
    larger than the weights' integers; of types with a minimum, 1 of the minimum.
    """
    if kind == 8:
        return 128.0
    if kind == 6:
        return 16.0
    if kind == 2:
        return 8.0
    if kind == 3 or kind == 7:
        return 1.0
    return 0.0


def put_offsets(k: vec[i32], sums: i64, blocks: i64, offset: float, f: vec[float], out: i64) -> None:
    """f[out + b] = offset * the sum of block b's activations, exactly: the same for all rows."""
    for b in range(blocks):
        f[out + b] = offset * float(k[sums + b])


def totals_of_rows(
    kind: i64, k: vec[i32], x: i64, blocks: i64, f: vec[float], offsets: i64, d: i64, scale: i64, out: i64
) -> None:
    """f[out + r] of eight rows from their sums and factors."""
    m: i64 = d + blocks * 8
    if kind == 3 or kind == 7:
        totals_minimum(k, x, blocks, f, offsets, d, m, scale, out)
    elif has_minimum(kind) != 0:
        totals_minima(k, x, x + blocks * 8, blocks, f, d, m, scale, out)
    else:
        totals(k, x, blocks, f, offsets, d, scale, out)


def matvec_int8(
    kind: i64, w: vec[u8], wb: bytes, start: i64, size: i64, first: i64, last: i64, cols: i64, blocks: i64,
    h: vec[i16], hx: i64, x: vec[u8], k: vec[i32], sums: i64, f: vec[float], fi: vec[i64], scale: i64, y: i64,
    accumulate: i64, hs: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times one token, rows first..last-1 of `size` bytes; layouts in matmul.matvec."""
    offsets: i64 = fs + 8 + blocks * 16
    put_offsets(k, sums, blocks, offset_of(kind), f, offsets)
    r: i64 = first
    while r < last:
        rows: i64 = last - r
        if rows > 8:
            rows = 8
        sums_of_rows(
            kind, w, wb, start + r * size, rows, blocks, h, hx, x, (hx + cols) * 2, k, sums, ks,
            fi, fs + 8, hs, ks + blocks * 16,
        )  # fmt: skip
        totals_of_rows(kind, k, ks, blocks, f, offsets, fs + 8, scale, fs)
        if accumulate != 0:
            add(f, y + r, fs, rows)
        else:
            move(f, fs, y + r, rows)
        r += 8
