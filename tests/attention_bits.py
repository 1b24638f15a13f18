"""Digests of what the exp, rotary, cache and attention kernels compute on a few seeded inputs, printed one a line."""

from __future__ import annotations

import hashlib

import numpy as np
from cache_shapes import shape

from rml.attention import LayerAttention
from rml.kernels.exp import EXP_SCRATCH
from rml.kv_cache import DTYPES, KvCache
from rml.native import buffer, kernel


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def digests() -> list[str]:
    """exp and its relatives; rotations; then stored bytes and attention, per cache type and shape."""
    rng = np.random.default_rng(11)
    out = []
    for name in ("exp_into", "sigmoid_into", "tanh_into"):
        f = buffer(600 + EXP_SCRATCH, np.float64)
        f[:600] = np.concatenate([rng.uniform(-720, 700, 300), rng.normal(0, 2, 300)])
        kernel(f"exp.{name}")(f, f.view(np.uint8), f.view(np.int64), 0, 0, 600, 600)
        out.append(digest(f[:600].tobytes()))
    for interleaved in (0, 1):
        f = buffer(100, np.float64)
        f[:] = rng.standard_normal(100)
        kernel("rope.rotate")(f, 0, 4, 20, 80, interleaved)
        out.append(digest(f.tobytes()))
    for heads, kv_heads, dim in ((4, 2, 16), (5, 1, 10), (2, 1, 32), (8, 1, 16)):
        for dtype in DTYPES:
            n = 45
            q = rng.standard_normal((n, heads, dim)) * 3
            k, v = rng.standard_normal((2, n, kv_heads, dim)) * 10.0 ** rng.integers(-6, 2, (2, n, 1, 1))
            cache = KvCache(shape(heads, kv_heads, dim), n, dtype)
            layer = LayerAttention(cache, n)
            layer.store(k, v, 0)
            results = [layer.attend(q, 0, window=window).tobytes() for window in (0, 20)]
            results.append(LayerAttention(cache, 1, 2).attend(q[-1:], n - 1).tobytes())
            out.append(digest(cache.arena.tobytes(), *results))
    return out


if __name__ == "__main__":
    print("\n".join(digests()))
