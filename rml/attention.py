"""Attention over the KV cache: the plain definition, the limits of the kernels, and a caller for one layer alone.

The decoder runs the kernels as steps of its program; `LayerAttention` runs the same kernels on their own, for tests,
benchmarks and verification.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from rml.caches import nearest_cache
from rml.errors import InvalidArgument, Unsupported
from rml.kernels.cache_rows import STORE_SCRATCH
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
        raise Unsupported(f"{num_heads} query heads over {num_kv_heads} kv heads: at most {MAX_GROUP} can share one")
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
    """The attention of one layer over a cache: stores keys and values, attends. Owns its arenas.

    `ranks` shares the work as that many threads would, one after the other.
    """

    def __init__(self, cache: KvCache, tokens: int = 1, ranks: int = 1) -> None:
        """Room for calls of up to `tokens` tokens; the heads are those of the cache's config."""
        config = cache.config
        check_limits(config.num_heads, config.num_kv_heads, config.head_dim)
        self.cache, self.tokens, self.ranks = cache, tokens, ranks
        self._nearest = nearest_cache()
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        own = kernel("attend.attend_scratch")(kv_heads, heads // kv_heads, dim)
        self._rank_scratch = max(own, config.kv_size + STORE_SCRATCH)
        sizes = (
            [tokens * config.q_size] * 2 + [tokens * config.kv_size] * 2 + [kernel("attend.attend_shared")(heads, dim)]
        )
        self._q, self._out, self._k, self._v, self._shared, self._scratch = np.cumsum([0, *sizes]).tolist()
        self.f: Floats = buffer(self._scratch + ranks * self._rank_scratch, np.float64)
        self.ids = buffer(cache.table.size, np.int64)

    def _view(self, offset: int, n: int, width: int) -> Floats:
        return self.f[offset : offset + n * width]

    def _check(self, n: int, start: int) -> None:
        if not 1 <= n <= self.tokens or not 0 <= start <= self.cache.capacity - n:
            raise InvalidArgument(f"{n} tokens at position {start}: room for {self.tokens} in {self.cache.capacity}")

    def store(self, k: Floats, v: Floats, start: int, layer: int = 0) -> None:
        """Writes k, v (n, kv_heads, head_dim) at positions start on. Raises CacheOverflow when one does not fit."""
        n, config, cache = len(k), self.cache.config, self.cache
        self._check(n, start)
        self.ids[:] = cache.table
        self._view(self._k, n, config.kv_size)[:] = k.ravel()
        self._view(self._v, n, config.kv_size)[:] = v.ravel()
        sizes = (layer, config.num_layers, PAGE_SIZE, config.num_kv_heads, config.head_dim, cache.type_id)
        for rank in range(self.ranks):
            scratch = self._scratch + rank * self._rank_scratch
            code = kernel("cache_rows.store")(
                rank, self.ranks, n, start, self.f, self.f.view(np.uint8), *cache.views, self.ids, 0,
                self._k, self._v, scratch, *sizes,
            )  # fmt: skip
            if code >= 0:
                raise cache.overflow(code, layer)

    def attend(self, q: Floats, start: int, layer: int = 0, window: int = 0, scale: float | None = None) -> Floats:
        """(n, heads, head_dim) of queries q, of the same shape, at positions start on.

        A view that the next call overwrites.
        """
        n, width = len(q), self.cache.config.q_size
        self._view(self._q, n, width)[:] = q.ravel()
        for part in self.steps(n, start, layer, window, scale):
            part()
        return self._view(self._out, n, width).reshape(q.shape)

    def steps(
        self, n: int, start: int, layer: int = 0, window: int = 0, scale: float | None = None
    ) -> list[Callable[[], None]]:
        """The prepared kernel calls of `attend` on the queries already in place, to be run in this order."""
        self._check(n, start)
        self.ids[:] = self.cache.table
        config = self.cache.config
        dim, kv_heads, group = config.head_dim, config.num_kv_heads, config.num_heads // config.num_kv_heads
        factor = 1.0 / math.sqrt(dim) if scale is None else scale
        sizes = (layer, config.num_layers, PAGE_SIZE, kv_heads, group, dim, window, factor)
        f, fb, fi, fw = self.f, self.f.view(np.uint8), self.f.view(np.int64), self.f.view(np.int32)
        _, _, ch, cu, cb = self.cache.views
        scratch = [self._scratch + rank * self._rank_scratch for rank in range(self.ranks)]
        attend = [
            kernel("attend.attend").prepare(
                rank, self.ranks, n, start, f, fb, fi, fw, ch, cu, cb, self.ids, 0, self._q, self._out, at,
                self._shared, *sizes, self.cache.type_id, self._nearest,
            )
            for rank, at in enumerate(scratch)
        ]  # fmt: skip
        finish = [
            kernel("attend.attend_finish").prepare(
                rank, self.ranks, n, start, f, fb, fi, self._out, at, self._shared, kv_heads, group, dim, window,
                self.cache.type_id,
            )
            for rank, at in enumerate(scratch)
        ]  # fmt: skip
        return attend + finish
