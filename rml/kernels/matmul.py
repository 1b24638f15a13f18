"""Matrix times vector and matrix times tokens for every stored type: the one place that looks at a format's number.

A matrix is `rows` rows of `cols` weights, row after row, from byte `start` of the mapped file. `kind` is the ggml type
id. Arenas and their elements:

    w, wb   the mapped weights as vec[u8] and as bytes, the same memory
    h, hu   i16 and u8, one memory: int8 activations, of one token or of tiles of 32 tokens, and scratch
    k, kb   i32: sums of int8 activations, and scratch; kb is the same memory as k
    f, fi   float64 and their bits as i64, one memory: everything else; f[bits] is the value of every f16, 65536 of them
    hs, ks, fs   where this rank's scratch starts in h, k and f; sizes: scratch_h, scratch_k, scratch_f

Every call computes rows first..last-1. accumulate = 0 writes y = product, 1 adds it: y = y + product.
The bits of a product do not depend on the path: one token or many, any row range, any build.

A new quantised format needs four functions: the integer sums and factors of its rows times one token (rows.py), a row
unpacked into integers and factors for the tiles, a row widened to float64, and its block in tests/plain_quants.py,
written from the definition; then a line in each choice below and in rows.py, in rml/formats.py and in the list of
setup.py. Integers are summed up per block, exactly; a block adds float(sum) * d * scale to the row's total, in that
order, in every path. Run tests/test_kernels_quants.py, then `nox -s bench -- kernels`, and look at the machine code
where it is slow: one hot loop a function, and no calls in it.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.dense import dot, matvec_float, put, widen_float
from rml.kernels.k_rows import has_minimum, unpack_k, widen_k
from rml.kernels.k_tile import eight_rows_k
from rml.kernels.q4 import unpack_q4_0, unpack_q4_1, widen_q4_0, widen_q4_1
from rml.kernels.q5 import unpack_q5_0, unpack_q5_1, widen_q5
from rml.kernels.q8 import unpack_q8_0, widen_q8_0
from rml.kernels.rows import matvec_int8
from rml.kernels.tile import FACTORS, SPREAD, TILES, eight_rows, store_rows


def group_of(kind: i64) -> i64:
    """Positions that share one activation scale: 32, 256 for the K types, 0 for unquantised types."""
    if kind == 0 or kind == 1 or kind == 30:
        return i64(0)
    if kind >= 10:
        return i64(256)
    return i64(32)


def row_bytes(kind: i64, cols: i64) -> i64:
    """Bytes of one row of `cols` weights; 0 for a type without kernels."""
    if kind == 0:
        return cols * 4
    if kind == 1 or kind == 30:
        return cols * 2
    if kind == 2:
        return (cols >> 5) * 18
    if kind == 3:
        return (cols >> 5) * 20
    if kind == 6:
        return (cols >> 5) * 22
    if kind == 7:
        return (cols >> 5) * 24
    if kind == 8:
        return (cols >> 5) * 34
    if kind == 10:
        return (cols >> 8) * 84
    if kind == 11:
        return (cols >> 8) * 110
    if kind == 12:
        return (cols >> 8) * 144
    if kind == 13:
        return (cols >> 8) * 176
    if kind == 14:
        return (cols >> 8) * 210
    return i64(0)


def scratch_h(cols: i64) -> i64:
    """i16 scratch of one rank, for the widest matrix: eight unpacked rows, their minima, and 32 positions spread."""
    return 9 * cols + SPREAD


def scratch_k(cols: i64) -> i64:
    """i32 scratch of one rank: sums of eight rows and all tiles, or the bits of four widened rows."""
    return TILES * 1280 + 32 + 4 * cols


def scratch_f(cols: i64) -> i64:
    """float64 scratch of one rank: lanes and a widened row, or totals and factors of eight rows."""
    return FACTORS + 256 + cols


def matvec(
    kind: i64, w: vec[u8], wb: bytes, start: i64, first: i64, last: i64, cols: i64, h: vec[i16], hu: vec[u8], hx: i64,
    k: vec[i32], kb: bytes, sums: i64, f: vec[float], fi: vec[i64], x: i64, scale: i64, y: i64, accumulate: i64,
    hs: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + r] (+)= row r times one token.

    Unquantised types multiply f[x : x + cols]; quantised ones the int8 activations that quantize.quantize_row wrote
    with group = group_of(kind): h[hx + position] and the bytes behind them, f[scale + g],
    k[sums + position / 32] (/ 16 for the K types).
    """
    if group_of(kind) == 0:
        matvec_float(kind, wb, start, first, last, cols, k, kb, f, x, y, accumulate, ks, fs)
    else:
        group: i64 = group_of(kind)
        matvec_int8(
            kind, w, wb, start, row_bytes(kind, cols), first, last, cols, cols // group, h, hx, hu, k, sums,
            f, fi, scale, y, accumulate, hs, ks, fs,
        )  # fmt: skip


def widen(
    kind: i64, w: vec[u8], wb: bytes, start: i64, count: i64, h: vec[i16], hs: i64, k: vec[i32], kb: bytes, ks: i64,
    f: vec[float], out: i64
) -> None:  # fmt: skip
    """f[out + j] = weight j of `count` weights (whole blocks) from byte `start`, in float64: an embedding row, say.

    Scratch: k[ks : ks + count] for f16 and bf16, h[hs : hs + 272].
    """
    if group_of(kind) == 0:
        widen_float(kind, wb, start, count, k, kb, ks, f, out)
    elif kind == 8:
        widen_q8_0(w, start, count >> 5, f, out)
    elif kind == 2:
        widen_q4_0(w, start, count >> 5, f, out)
    elif kind == 3:
        widen_q4_1(w, start, count >> 5, f, out)
    elif kind == 6 or kind == 7:
        widen_q5(w, start, count >> 5, kind - 6, h, hs, f, out)
    else:
        widen_k(kind, w, wb, start, count >> 8, h, hs, f, out)


def exact_rows(
    kind: i64, w: vec[u8], wb: bytes, start: i64, first: i64, last: i64, cols: i64, n: i64, h: vec[i16], k: vec[i32],
    kb: bytes, f: vec[float], x: i64, xstride: i64, y: i64, ystride: i64, accumulate: i64,
    hs: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r times f[x + t * xstride :][:cols], for n tokens t, all in float64.

    A row is widened once into this rank's scratch and used for all tokens.
    """
    size: i64 = row_bytes(kind, cols)
    for r in range(first, last):
        widen(kind, w, wb, start + r * size, cols, h, hs, k, kb, ks, f, fs + 32)
        for t in range(n):
            put(f, y + t * ystride + r, dot(f, fs + 32, x + t * xstride, cols, fs), accumulate)


def unpack_row(
    kind: i64, w: vec[u8], wb: bytes, p: i64, cols: i64, r: i64, h: vec[i16], hs: i64,
    f: vec[float], fs: i64
) -> None:  # fmt: skip
    """The row at byte p as row r of eight, into the scratch that tile.py (K types: k_tile.py) describes."""
    out: i64 = hs + r * 32
    d: i64 = fs + FACTORS + r
    m: i64 = d + (cols >> 5) * 8
    if kind == 8:
        unpack_q8_0(w, wb, p, cols >> 5, h, out, f, d)
    elif kind == 2:
        unpack_q4_0(w, wb, p, cols >> 5, h, out, f, d)
    elif kind == 3:
        unpack_q4_1(w, wb, p, cols >> 5, h, out, f, d, m)
    elif kind == 6:
        unpack_q5_0(w, wb, p, cols >> 5, h, out, f, d)
    elif kind == 7:
        unpack_q5_1(w, wb, p, cols >> 5, h, out, f, d, m)
    else:
        blocks: i64 = cols >> 8
        mins: i64 = hs + blocks * 2048 + r * 16
        unpack_k(kind, w, wb, p, blocks, h, hs + r * 256, mins, f, d, d + blocks * 8)


def tile(
    kind: i64, w: vec[u8], wb: bytes, start: i64, first: i64, last: i64, cols: i64, n: i64, h: vec[i16], hx: i64,
    k: vec[i32], sums: i64, f: vec[float], scale: i64, y: i64, ystride: i64, accumulate: i64,
    hs: i64, ks: i64, fs: i64
) -> None:  # fmt: skip
    """f[y + t * ystride + r] (+)= row r times token t, n tokens of int8 activations that quantize.quantize_tile wrote.

    Token t is lane t % 32 of tile t // 32, layout in quantize.quantize_tile; tile T begins at
    h[hx + T * quantize.tile_size(cols)], f[scale + T * (cols / group) * 32], k[sums + T * parts * 32], parts
    being cols / 32 (cols / 16 for the K types). Quantised types only (the others: exact_rows). n >= 1, any size: rows
    are unpacked once, eight at a time, and used for all tiles. Fastest when last - first is a multiple of 8.
    """
    size: i64 = row_bytes(kind, cols)
    group: i64 = group_of(kind)
    groups: i64 = cols // group
    minimum: i64 = has_minimum(kind)
    r: i64 = first
    while r < last:
        rows: i64 = last - r
        if rows > 8:
            rows = 8
        for i in range(rows):
            unpack_row(kind, w, wb, start + (r + i) * size, cols, i, h, hs, f, fs)
        t: i64 = 0
        while t < n:  # tiles lie one after another, and so do tokens: tile T begins at T * 32 of what one token takes
            tokens: i64 = n - t
            if tokens > TILES * 32:
                tokens = TILES * 32
            if group == 32:
                eight_rows(
                    h, hs, groups, minimum, hx + t * cols, tokens, k, sums + t * groups, ks, f, scale + t * groups, fs
                )
            else:
                eight_rows_k(
                    h, hs, groups, rows, minimum, hx + t * cols, tokens, k, sums + t * groups * 16, ks,
                    f, scale + t * groups, fs
                )  # fmt: skip
            for i in range((tokens + 31) >> 5):
                left: i64 = tokens - i * 32
                if left > 32:
                    left = 32
                store_rows(f, fs + i * 256, rows, left, y + (t + i * 32) * ystride + r, ystride, accumulate)
            t += TILES * 32
        r += 8
