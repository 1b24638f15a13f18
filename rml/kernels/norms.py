"""The token-wise steps between matrix products: RMSNorm, residual adds, routing of tokens to experts."""

from __future__ import annotations

import math

from librt.vecs import vec
from mypy_extensions import i32, i64

from rml.kernels.exp import exp_into


def sum_squares(f: vec[float], x: i64, count: i64, lane: i64) -> float:
    """Returns the sum of x[j]^2: 32 partial sums at f[lane:], added up in order, then the tail."""
    for t in range(i64(32)):
        f[lane + t] = 0.0
    blocks: i64 = count >> 5
    for b in range(blocks):
        p: i64 = x + b * 32
        for t in range(i64(32)):
            f[lane + t] += f[p + t] * f[p + t]
    total: float = 0.0
    for t in range(i64(32)):
        total += f[lane + t]
    for j in range(blocks * 32, count):
        total += f[x + j] * f[x + j]
    return total


def scale_by(f: vec[float], x: i64, weight: i64, factor: float, out: i64, count: i64) -> None:
    """out[j] = x[j] * factor * weight[j]."""
    for j in range(count):
        f[out + j] = f[x + j] * factor * f[weight + j]


def rms_norm(f: vec[float], x: i64, weight: i64, out: i64, count: i64, eps: float, lane: i64) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight over a row of `count` values (Zhang and Sennrich 2019). out may be x."""
    mean: float = sum_squares(f, x, count, lane) / float(i32(count))
    scale_by(f, x, weight, 1.0 / math.sqrt(mean + eps), out, count)


def add(f: vec[float], x: i64, y: i64, count: i64) -> None:
    """x += y."""
    for j in range(count):
        f[x + j] += f[y + j]


def fill(f: vec[float], x: i64, count: i64, value: float) -> None:
    """x[j] = value."""
    for j in range(count):
        f[x + j] = value


def move(f: vec[float], source: i64, target: i64, count: i64) -> None:
    """target = source; the two do not overlap."""
    for j in range(count):
        f[target + j] = f[source + j]


def scale(f: vec[float], x: i64, count: i64, factor: float) -> None:
    """x *= factor."""
    for j in range(count):
        f[x + j] *= factor


def softmax_in_place(f: vec[float], fb: bytes, fi: vec[i64], x: i64, count: i64, scratch: i64) -> None:
    """x = exp(x - max x) / sum, summed in order."""
    highest: float = f[x]
    for j in range(1, count):
        if f[x + j] > highest:
            highest = f[x + j]
    for j in range(count):
        f[x + j] -= highest
    exp_into(f, fb, fi, x, x, count, scratch)
    total: float = 0.0
    for j in range(count):
        total += f[x + j]
    scale(f, x, count, 1.0 / total)


def choose_experts(
    f: vec[float], probs: i64, experts: i64, ids: vec[i64], chosen: i64, k: i64, weights: i64, renormalise: i64
) -> None:
    """ids[chosen:] = the k most probable experts, ties to the lower id, in rising order of id; f[weights:] their
    weights.

    Repeated selection: a taken expert's probability is set to -1, then restored from the weight. A weight is p, or
    p over the sum of the chosen ones (summed in order of selection) when `renormalise` is 1.
    """
    total: float = 0.0
    for slot in range(k):
        best: i64 = -1
        high: float = -1.0
        for e in range(experts):
            if f[probs + e] > high:
                high = f[probs + e]
                best = e
        if best < 0:  # only NaN left: any distinct id keeps the memory safe, the logits say NaN
            best = slot
        total += high
        f[probs + best] = -1.0
        place: i64 = slot
        while place > 0 and ids[chosen + place - 1] > best:
            ids[chosen + place] = ids[chosen + place - 1]
            f[weights + place] = f[weights + place - 1]
            place -= 1
        ids[chosen + place] = best
        f[weights + place] = high
    for slot in range(k):
        f[probs + ids[chosen + slot]] = f[weights + slot]
        if renormalise == 1:
            f[weights + slot] = f[weights + slot] / total
