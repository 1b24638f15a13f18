"""The order in which every dot product of float64 activations adds.

First 16 partial sums, the lanes: lane[t] += w[16b + t] * x[16b + t] for b upwards. Then the lanes in halves: 0..7 and
8..15, of those eight sums 0..3 and 4..7, and so on. All paths (one token, many tokens, widened rows of quantised
formats) add like this, so they give the same bits.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


def sum_lanes(f: vec[float], p: i64) -> float:
    """f[p] to f[p + 15] in the module's order; they are overwritten."""
    for t in range(i64(8)):
        f[p + t] += f[p + 8 + t]
    for t in range(i64(4)):
        f[p + t] += f[p + 4 + t]
    return (f[p] + f[p + 2]) + (f[p + 1] + f[p + 3])


def add_up(f: vec[float], lanes: i64, step: i64, y: i64, count: i64, accumulate: i64) -> None:
    """f[y + r] = the sum of the lanes at f[lanes + r * step], or f[y + r] += it, for r < count. The lanes are lost."""
    if accumulate != 0:
        for r in range(count):
            f[y + r] += sum_lanes(f, lanes + r * step)
    else:
        for r in range(count):
            f[y + r] = sum_lanes(f, lanes + r * step)
