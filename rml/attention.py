"""Attention over the KV cache: the plain definition, the limits of the kernels, and a caller for one layer alone.

The decoder runs the kernels as steps of its program; `LayerAttention` runs the same kernels on their own, for tests,
benchmarks and verification.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from rml.errors import InvalidArgument, Unsupported
from rml.kv_cache import PAGE_SIZE, KvCache
from rml.native import buffer, kernel

Floats = npt.NDArray[np.float64]

MAX_GROUP: Final = 16
MAX_HEAD_DIM: Final = 512


def check_limits(num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    """Raises Unsupported when the kernels cannot run these heads: more than 16 per kv head, or wider than 512."""
    if num_heads % num_kv_heads:
        raise Unsupported(f"{num_heads} query heads do not share {num_kv_heads} kv heads evenly")
    if num_heads // num_kv_heads > MAX_GROUP:
        raise Unsupported(
            f"{num_heads // num_kv_heads} query heads share each of {num_kv_heads} kv heads: at most {MAX_GROUP} are supported"
        )
    if head_dim > MAX_HEAD_DIM:
        raise Unsupported(f"head_dim {head_dim}: at most {MAX_HEAD_DIM} is supported")


def attend_ref(q: Floats, k: Floats, v: Floats, start: int, window: int = 0, scale: float | None = None) -> Floats:
    """The definition: every score, a softmax, a weighted sum, in float64.

    q: (n, heads, head_dim), the queries at positions start .. start + n - 1. k, v: (positions, kv_heads, head_dim).
    Query i sees the keys j with i - window < j <= i (window 0: all j <= i). scale: head_dim^-0.5 unless given.
    Returns (n, heads, head_dim).
    """
    n, heads, dim = q.shape
    kv_heads = k.shape[1]
    factor = 1.0 / math.sqrt(dim) if scale is None else scale
    out = np.empty_like(q)
    for i in range(n):
        first = max(0, start + i - window + 1) if window else 0
        seen = slice(first, start + i + 1)
        for h in range(heads):
            g = h // (heads // kv_heads)
            scores = k[seen, g] @ q[i, h] * factor
            weights = np.exp(scores - scores.max())
            out[i, h] = weights @ v[seen, g] / weights.sum()
    return out


class LayerAttention:
    """The attention of one layer over a cache: stores keys and values, attends. Owns its arenas, allocates nothing later.

    `ranks` shares the work as that many threads would, one after the other.
    """

    def __init__(self, cache: KvCache, num_heads: int, tokens: int = 1, ranks: int = 1) -> None:
        """Room for calls of up to `tokens` tokens."""
        config = cache.config
        check_limits(num_heads, config.num_kv_heads, config.head_dim)
        self.cache, self.tokens, self.ranks, self.num_heads = cache, tokens, ranks, num_heads
        dim, kv = config.head_dim, config.kv_size
        rank_scratch = max(kernel("attend.attend_scratch")(num_heads, dim), kv + 64)
        sizes = [tokens * num_heads * dim, tokens * num_heads * dim, tokens * kv, tokens * kv]
        self._q, self._out, self._k, self._v, self._shared = np.cumsum([0, *sizes]).tolist()
        self._scratch = self._shared + kernel("attend.attend_shared")(num_heads, dim)
        self.f: Floats = buffer(self._scratch + ranks * rank_scratch, np.float64)
        self._rank_scratch = rank_scratch
        self.ids = buffer(cache.table.size, np.int64)
        f, fb, fi, fw = self.f, self.f.view(np.uint8), self.f.view(np.int64), self.f.view(np.int32)
        cf, cw, ch, cu, cb = cache.views
        none = None
        self._store = kernel("cache_rows.store").with_scalars(
            *[none] * 4, f, fb, cf, cw, ch, cu, cb, self.ids, *[none] * 10
        )  # fmt: skip
        self._attend = kernel("attend.attend").with_scalars(*[none] * 4, f, fb, fi, fw, ch, cu, cb, self.ids, *[none] * 14)
        self._finish = kernel("attend.attend_finish").with_scalars(*[none] * 4, f, fb, fi, *[none] * 7)

    def _view(self, offset: int, n: int, width: int) -> Floats:
        return self.f[offset : offset + n * width]

    def _check(self, n: int, start: int) -> None:
        if not 1 <= n <= self.tokens or not 0 <= start <= self.cache.capacity - n:
            raise InvalidArgument(f"{n} tokens at position {start}: room for {self.tokens} in {self.cache.capacity}")
        self.ids[:] = self.cache.table

    def store(self, k: Floats, v: Floats, start: int, layer: int = 0) -> None:
        """Writes k, v (n, kv_heads, head_dim) at positions start on. Raises CacheOverflow when one does not fit."""
        n, config, cache = len(k), self.cache.config, self.cache
        self._check(n, start)
        self._view(self._k, n, config.kv_size)[:] = k.ravel()
        self._view(self._v, n, config.kv_size)[:] = v.ravel()
        sizes = (layer, config.num_layers, PAGE_SIZE, config.num_kv_heads, config.head_dim, cache.type_id)
        for rank in range(self.ranks):
            scratch = self._scratch + rank * self._rank_scratch
            code = self._store(rank, self.ranks, n, start, 0, self._k, self._v, scratch, *sizes)
            if code >= 0:
                raise cache.overflow(code, layer)

    def attend(self, q: Floats, start: int, layer: int = 0, window: int = 0, scale: float | None = None) -> Floats:
        """(n, heads, head_dim) of q (n, heads, head_dim) at positions start on; a view that the next call overwrites."""
        n, width = len(q), self.num_heads * self.cache.config.head_dim
        self._check(n, start)
        self._view(self._q, n, width)[:] = q.ravel()
        self.run(n, start, layer, window, scale)
        return self._view(self._out, n, width).reshape(q.shape)

    def run(self, n: int, start: int, layer: int = 0, window: int = 0, scale: float | None = None) -> None:
        """`attend` on the queries that are already in the arena: what a benchmark times."""
        config = self.cache.config
        dim, kv_heads = config.head_dim, config.num_kv_heads
        group = self.num_heads // kv_heads
        factor = 1.0 / math.sqrt(dim) if scale is None else scale
        sizes = (layer, config.num_layers, PAGE_SIZE, kv_heads, group, dim, window, factor, self.cache.type_id)
        for rank in range(self.ranks):
            scratch = self._scratch + rank * self._rank_scratch
            self._attend(rank, self.ranks, n, start, 0, self._q, self._out, scratch, self._shared, *sizes)
        for rank in range(self.ranks):
            scratch = self._scratch + rank * self._rank_scratch
            self._finish(rank, self.ranks, n, start, self._out, scratch, self._shared, kv_heads, group, dim, window)
