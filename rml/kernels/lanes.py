"""The order in which every dot product of float64 activations adds.

First 16 partial sums, the lanes: lane[t] = fma(w[16b + t], x[16b + t], lane[t]) for b upwards. Then the lanes in
halves: 0..7 and 8..15, of those eight sums 0..3 and 4..7, and so on. All paths (one token, many tokens, widened rows of
quantised formats) add like this, so they give the same bits.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


def halve(f: vec[float], lanes: i64, count: i64, step: i64) -> None:
    """f[lanes + r * step :][:8] = the lanes f[lanes + r * 16 :] of dot r of `count` in halves, added; step 8 or 16."""
    for r in range(count):
        p: i64 = lanes + r * 16
        for t in range(i64(8)):
            f[lanes + r * step + t] = f[p + t] + f[p + 8 + t]


def sum_eight(f: vec[float], p: i64) -> float:
    """f[p] to f[p + 7], the halves of the lanes added, in the module's order; the first four are overwritten."""
    for t in range(i64(4)):
        f[p + t] += f[p + 4 + t]
    return (f[p] + f[p + 2]) + (f[p + 1] + f[p + 3])


def add_up(f: vec[float], sums: i64, step: i64, y: i64, count: i64, accumulate: i64) -> None:
    """f[y + r] = the sum of the eight at f[sums + r * step], or f[y + r] += it, for r < count. The eight are lost."""
    if accumulate != 0:
        for r in range(count):
            f[y + r] += sum_eight(f, sums + r * step)
    else:
        for r in range(count):
            f[y + r] = sum_eight(f, sums + r * step)
