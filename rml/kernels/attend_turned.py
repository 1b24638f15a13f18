"""Scores of many queries and sixteen keys: a key in each lane, so that no lanes are added up. The same bits as others.

The ring's rows are turned once, [dim][16 keys]. With few queries that costs more than it saves: attend_scores.py.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.attend_values import add_products_4
from rml.kernels.norms import fill


def turn_rows(f: vec[float], ring: i64, stride: i64, dim: i64, out: i64) -> None:
    """f[out + d * 16 + j] = f[ring + j * stride + d]: 16 rows of `dim` values as columns."""
    for d in range(dim):
        r: i64 = ring + d
        o: i64 = out + d * 16
        f[o] = f[r]
        f[o + 1] = f[r + stride]
        f[o + 2] = f[r + 2 * stride]
        f[o + 3] = f[r + 3 * stride]
        f[o + 4] = f[r + 4 * stride]
        f[o + 5] = f[r + 5 * stride]
        f[o + 6] = f[r + 6 * stride]
        f[o + 7] = f[r + 7 * stride]
        f[o + 8] = f[r + 8 * stride]
        f[o + 9] = f[r + 9 * stride]
        f[o + 10] = f[r + 10 * stride]
        f[o + 11] = f[r + 11 * stride]
        f[o + 12] = f[r + 12 * stride]
        f[o + 13] = f[r + 13 * stride]
        f[o + 14] = f[r + 14 * stride]
        f[o + 15] = f[r + 15 * stride]


def turned_scores_4(f: vec[float], keys: i64, q: i64, dim: i64, partials: i64, out: i64, scale: float) -> None:
    """out [4][16] = scaled scores of four queries, `dim` apart, and the keys of the turned rows.

    partials: 512 entries, [8][4][16]; their order as in attend_scores.
    """
    fill(f, partials, 512, 0.0)
    add_products_4(f, keys, 128, dim >> 3, q, dim, 8, 1, 8, partials, 16, 64)
    for i in range(i64(64)):
        p: i64 = partials + i
        low: float = (f[p] + f[p + 256]) + (f[p + 128] + f[p + 384])
        f[out + i] = (low + ((f[p + 64] + f[p + 320]) + (f[p + 192] + f[p + 448]))) * scale
