"""The inner loops of attention: reading cache rows as float64, scores, and weighted sums of value rows.

Eight consecutive rows of one kv head are widened into scratch and used by every query that shares the head. A score is
the sum of eight partial sums (dimension i belongs to sum i mod 8), so the compiler keeps them in one register; they
are stored to memory first because that is what makes it do so. Each order of addition is written here.
"""

from __future__ import annotations

from librt.strings import read_f32_le, read_f64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels.cache_rows import F16, F32, F64, int8_group, int8_row_bytes

# ---------------------------------------------------------------------------------------- cache rows to float64


def widen_f64(f: vec[float], cb: bytes, source: i64, out: i64, dim: i64) -> None:
    for d in range(dim):
        f[out + d] = read_f64_le(cb, source + d * 8)


def widen_f32(f: vec[float], cb: bytes, source: i64, out: i64, dim: i64) -> None:
    for d in range(dim):
        f[out + d] = read_f32_le(cb, source + d * 4)


def f16_to_word(fw: vec[i32], ch: vec[i16], source: i64, out: i64, dim: i64) -> None:
    """fw = f32 bits of the f16 value * 2^-112: exponent and mantissa moved as they are, which is right for subnormals too."""
    for d in range(dim):
        h: i32 = i32(ch[source + d])
        fw[out + d] = ((h & 32767) << 13) | ((h >> 15) & -2147483648)


def widen_word(f: vec[float], fb: bytes, source: i64, out: i64, dim: i64) -> None:
    """f = f32 at byte `source` * 2^112."""
    for d in range(dim):
        f[out + d] = read_f32_le(fb, source + d * 4) * 5.192296858534828e33


def widen_int8(f: vec[float], cu: vec[u8], source: i64, out: i64, count: i64, scale: float) -> None:
    for d in range(count):
        f[out + d] = float((i32(cu[source + d]) ^ 128) - 128) * scale


def widen_rows(
    f: vec[float], fb: bytes, fw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes,
    row: i64, rows: i64, head: i64, kv_heads: i64, dim: i64, padded: i64, dtype: i64, out: i64, words: i64,
) -> None:  # fmt: skip
    """f[out + j * padded :] = head `head` of rows row .. row + rows - 1, zero from dim to padded. words: scratch, dim i32."""
    size: i64 = int8_group(dim)
    for j in range(rows):
        entry: i64 = ((row + j) * kv_heads + head) * dim
        target: i64 = out + j * padded
        if dtype == F32:
            widen_f32(f, cb, entry * 4, target, dim)
        elif dtype == F64:
            widen_f64(f, cb, entry * 8, target, dim)
        elif dtype == F16:
            f16_to_word(fw, ch, entry, words * 2, dim)
            widen_word(f, fb, words * 8, target, dim)
        else:
            base: i64 = (row + j) * int8_row_bytes(kv_heads, dim)
            values: i64 = base + kv_heads * dim // size * 4 + head * dim
            scales: i64 = base + head * dim // size * 4
            for g in range(dim // size):
                widen_int8(f, cu, values + g * size, target + g * size, size, read_f32_le(cb, scales + g * 4))
        for d in range(dim, padded):
            f[target + d] = 0.0


# ------------------------------------------------------------------------------------------------------- scores
# The arithmetic of the three is the same; four queries share each load of a key.


def partial_scores_1(f: vec[float], key: i64, q: i64, dim: i64, out: i64) -> None:
    """out[j * 8 + l] = sum over d = l mod 8 of key[j][d] * q[d], for 8 rows j, two at a time."""
    for j in range(i64(4)):
        k: i64 = key + j * 2 * dim
        w: i64 = out + j * 16
        a0: float = 0.0
        a1: float = 0.0
        a2: float = 0.0
        a3: float = 0.0
        a4: float = 0.0
        a5: float = 0.0
        a6: float = 0.0
        a7: float = 0.0
        b0: float = 0.0
        b1: float = 0.0
        b2: float = 0.0
        b3: float = 0.0
        b4: float = 0.0
        b5: float = 0.0
        b6: float = 0.0
        b7: float = 0.0
        for b in range(dim >> 3):
            p: i64 = k + b * 8
            r: i64 = p + dim
            s: i64 = q + b * 8
            a0 += f[p] * f[s]
            a1 += f[p + 1] * f[s + 1]
            a2 += f[p + 2] * f[s + 2]
            a3 += f[p + 3] * f[s + 3]
            a4 += f[p + 4] * f[s + 4]
            a5 += f[p + 5] * f[s + 5]
            a6 += f[p + 6] * f[s + 6]
            a7 += f[p + 7] * f[s + 7]
            b0 += f[r] * f[s]
            b1 += f[r + 1] * f[s + 1]
            b2 += f[r + 2] * f[s + 2]
            b3 += f[r + 3] * f[s + 3]
            b4 += f[r + 4] * f[s + 4]
            b5 += f[r + 5] * f[s + 5]
            b6 += f[r + 6] * f[s + 6]
            b7 += f[r + 7] * f[s + 7]
        f[w] = a0
        f[w + 1] = a1
        f[w + 2] = a2
        f[w + 3] = a3
        f[w + 4] = a4
        f[w + 5] = a5
        f[w + 6] = a6
        f[w + 7] = a7
        f[w + 8] = b0
        f[w + 9] = b1
        f[w + 10] = b2
        f[w + 11] = b3
        f[w + 12] = b4
        f[w + 13] = b5
        f[w + 14] = b6
        f[w + 15] = b7


def partial_scores_4(f: vec[float], key: i64, q: i64, dim: i64, out: i64, stride: i64) -> None:
    """The same for queries q, q + dim, q + 2 dim, q + 3 dim; query h goes to out + h * stride."""
    for j in range(i64(8)):
        k: i64 = key + j * dim
        w: i64 = out + j * 8
        a0: float = 0.0
        a1: float = 0.0
        a2: float = 0.0
        a3: float = 0.0
        a4: float = 0.0
        a5: float = 0.0
        a6: float = 0.0
        a7: float = 0.0
        b0: float = 0.0
        b1: float = 0.0
        b2: float = 0.0
        b3: float = 0.0
        b4: float = 0.0
        b5: float = 0.0
        b6: float = 0.0
        b7: float = 0.0
        c0: float = 0.0
        c1: float = 0.0
        c2: float = 0.0
        c3: float = 0.0
        c4: float = 0.0
        c5: float = 0.0
        c6: float = 0.0
        c7: float = 0.0
        d0: float = 0.0
        d1: float = 0.0
        d2: float = 0.0
        d3: float = 0.0
        d4: float = 0.0
        d5: float = 0.0
        d6: float = 0.0
        d7: float = 0.0
        for b in range(dim >> 3):
            p: i64 = k + b * 8
            s: i64 = q + b * 8
            t: i64 = s + dim
            u: i64 = t + dim
            v: i64 = u + dim
            a0 += f[p] * f[s]
            a1 += f[p + 1] * f[s + 1]
            a2 += f[p + 2] * f[s + 2]
            a3 += f[p + 3] * f[s + 3]
            a4 += f[p + 4] * f[s + 4]
            a5 += f[p + 5] * f[s + 5]
            a6 += f[p + 6] * f[s + 6]
            a7 += f[p + 7] * f[s + 7]
            b0 += f[p] * f[t]
            b1 += f[p + 1] * f[t + 1]
            b2 += f[p + 2] * f[t + 2]
            b3 += f[p + 3] * f[t + 3]
            b4 += f[p + 4] * f[t + 4]
            b5 += f[p + 5] * f[t + 5]
            b6 += f[p + 6] * f[t + 6]
            b7 += f[p + 7] * f[t + 7]
            c0 += f[p] * f[u]
            c1 += f[p + 1] * f[u + 1]
            c2 += f[p + 2] * f[u + 2]
            c3 += f[p + 3] * f[u + 3]
            c4 += f[p + 4] * f[u + 4]
            c5 += f[p + 5] * f[u + 5]
            c6 += f[p + 6] * f[u + 6]
            c7 += f[p + 7] * f[u + 7]
            d0 += f[p] * f[v]
            d1 += f[p + 1] * f[v + 1]
            d2 += f[p + 2] * f[v + 2]
            d3 += f[p + 3] * f[v + 3]
            d4 += f[p + 4] * f[v + 4]
            d5 += f[p + 5] * f[v + 5]
            d6 += f[p + 6] * f[v + 6]
            d7 += f[p + 7] * f[v + 7]
        f[w] = a0
        f[w + 1] = a1
        f[w + 2] = a2
        f[w + 3] = a3
        f[w + 4] = a4
        f[w + 5] = a5
        f[w + 6] = a6
        f[w + 7] = a7
        w += stride
        f[w] = b0
        f[w + 1] = b1
        f[w + 2] = b2
        f[w + 3] = b3
        f[w + 4] = b4
        f[w + 5] = b5
        f[w + 6] = b6
        f[w + 7] = b7
        w += stride
        f[w] = c0
        f[w + 1] = c1
        f[w + 2] = c2
        f[w + 3] = c3
        f[w + 4] = c4
        f[w + 5] = c5
        f[w + 6] = c6
        f[w + 7] = c7
        w += stride
        f[w] = d0
        f[w + 1] = d1
        f[w + 2] = d2
        f[w + 3] = d3
        f[w + 4] = d4
        f[w + 5] = d5
        f[w + 6] = d6
        f[w + 7] = d7


def sum_partials(f: vec[float], x: i64, out: i64, count: i64, scale: float) -> None:
    """out[i] = (the sum of the eight partial sums x[8i:]) * scale, in one written order."""
    for i in range(count):
        p: i64 = x + i * 8
        f[out + i] = (
            ((f[p] + f[p + 4]) + (f[p + 2] + f[p + 6])) + ((f[p + 1] + f[p + 5]) + (f[p + 3] + f[p + 7]))
        ) * scale


# ----------------------------------------------------------------------------------------- weighted value rows


def add_rows_8(f: vec[float], value: i64, p: i64, dim: i64, out: i64) -> None:
    """out[d] += p[j] * value[j][d], for eight rows j in order."""
    p0: float = f[p]
    p1: float = f[p + 1]
    p2: float = f[p + 2]
    p3: float = f[p + 3]
    p4: float = f[p + 4]
    p5: float = f[p + 5]
    p6: float = f[p + 6]
    p7: float = f[p + 7]
    for d in range(dim):
        v: i64 = value + d
        low: float = f[out + d] + p0 * f[v] + p1 * f[v + dim] + p2 * f[v + dim * 2] + p3 * f[v + dim * 3]
        f[out + d] = low + p4 * f[v + dim * 4] + p5 * f[v + dim * 5] + p6 * f[v + dim * 6] + p7 * f[v + dim * 7]


def add_row(f: vec[float], value: i64, p: float, dim: i64, out: i64) -> None:
    """out[d] += p * value[d]."""
    for d in range(dim):
        f[out + d] += p * f[value + d]
