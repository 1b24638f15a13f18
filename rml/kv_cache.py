"""The paged KV cache: every earlier token's keys and values, in one arena that is reserved at once.

A row holds one position's keys (or values) of one layer, all kv heads. A page holds `PAGE_SIZE` positions of every
layer, and a page table maps positions to pages; rows lie in the order page, layer, key/value, slot:

    row = ((page * num_layers + layer) * 2 + which) * PAGE_SIZE + position % PAGE_SIZE

so that one layer's keys of a page are PAGE_SIZE contiguous rows. Pages that no token has reached are never resident:
large zeroed allocations come from the operating system untouched.

An int8 row is its scales, one f32 per group of channels, then its values round(x / scale), padded to a multiple of 4;
scale = max|x| / 127. A group is the largest power of two that divides head_dim, at most 32: it never straddles heads.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.errors import CacheFull, InvalidArgument, RmlError
from rml.native import buffer

CacheType = Literal["f64", "f32", "f16", "int8"]
DTYPES: Final[tuple[CacheType, ...]] = get_args(CacheType)  # the place is the number that kernels know (cache_rows.py)
PAGE_SIZE: Final = 16
LARGEST: Final = {"f64": 1.797e308, "f32": 3.403e38, "f16": 65504.0, "int8": 4.321e40}  # of stored magnitudes


class CacheOverflow(RmlError, OverflowError):
    """A key or value is not finite, or too large for the cache's type. The tokens of the call are not in the cache."""


def int8_group(head_dim: int) -> int:
    """Channels that share one int8 scale."""
    return min(head_dim & -head_dim, 32)


def row_bytes(num_kv_heads: int, head_dim: int, dtype: CacheType) -> int:
    """Bytes of one position's keys (or values) in one layer."""
    size = num_kv_heads * head_dim
    if dtype == "int8":
        return size // int8_group(head_dim) * 4 + -(-size // 4) * 4
    return size * {"f64": 8, "f32": 4, "f16": 2}[dtype]


def bytes_per_token(config: ModelConfig, dtype: CacheType) -> int:
    """Bytes that one more token takes, in all layers."""
    return config.num_layers * 2 * row_bytes(config.num_kv_heads, config.head_dim, dtype)


class KvCache:
    """Keys and values of the tokens at positions 0 .. size - 1 of one sequence.

    A position's rows are written by the forward pass that `extend`ed the cache over it. `capacity` tokens fit; their
    memory is reserved here but becomes resident only as tokens arrive.
    """

    def __init__(self, config: ModelConfig, capacity: int, dtype: CacheType = "f32") -> None:
        """Raises InvalidArgument for a capacity below 1 or an unknown dtype, MemoryError when there is no room."""
        if dtype not in DTYPES:
            raise InvalidArgument(f"cache dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
        if capacity < 1:
            raise InvalidArgument(f"cache capacity {capacity}: expected at least 1 token")
        self.config = config
        self.capacity = capacity
        self.dtype: CacheType = dtype
        self.size = 0
        self.row_bytes = row_bytes(config.num_kv_heads, config.head_dim, dtype)
        self.bytes_per_token = bytes_per_token(config, dtype)
        pages = -(-capacity // PAGE_SIZE)
        self.table: npt.NDArray[np.int64] = np.arange(pages, dtype=np.int64)
        self.arena: npt.NDArray[np.uint8] = buffer(pages * PAGE_SIZE * self.bytes_per_token, np.uint8)

    @property
    def type_id(self) -> int:
        """The dtype as kernels know it."""
        return DTYPES.index(self.dtype)

    @property
    def views(self) -> tuple[npt.NDArray[Any], ...]:
        """The arena as kernels take it: float64, i32, i16, u8, and u8 again for the bytes parameter. No copies."""
        a = self.arena
        return a.view(np.float64), a.view(np.int32), a.view(np.int16), a, a

    def extend(self, count: int) -> int:
        """Makes room for `count` more tokens and returns the first one's position.

        Raises CacheFull, before anything has changed, when they do not fit, InvalidArgument when count is negative.
        """
        if count < 0:
            raise InvalidArgument(f"cannot extend a cache by {count} tokens; use truncate(position)")
        if self.size + count > self.capacity:
            raise CacheFull(
                f"the cache holds {self.size} of {self.capacity} tokens, {count} more do not fit: "
                "truncate it or make a larger one with new_cache(capacity)"
            )
        start = self.size
        self.size += count
        return start

    def truncate(self, position: int) -> None:
        """Forgets the tokens at `position` and beyond. Raises InvalidArgument outside [0, size]."""
        if not 0 <= position <= self.size:
            raise InvalidArgument(f"cannot truncate to {position}: the cache holds {self.size} tokens")
        self.size = position

    def reset(self) -> None:
        """Forgets every token; the memory stays for the next sequence."""
        self.size = 0

    def row(self, position: int, layer: int, which: int) -> int:
        """The index of a row in the arena; which = 0 for keys, 1 for values."""
        page, slot = int(self.table[position // PAGE_SIZE]), position % PAGE_SIZE
        return ((page * self.config.num_layers + layer) * 2 + which) * PAGE_SIZE + slot

    def read(self, layer: int, which: int) -> npt.NDArray[np.float64]:
        """(size, num_kv_heads, head_dim) what is stored: the keys (which = 0) or values (1) of a layer, as float64."""
        rows = [self.row(position, layer, which) for position in range(self.size)]
        raw = self.arena.reshape(-1, self.row_bytes)[rows]
        kv_heads, dim = self.config.num_kv_heads, self.config.head_dim
        if self.dtype != "int8":
            values = raw.view({"f64": np.float64, "f32": np.float32, "f16": np.float16}[self.dtype])
            return values.astype(np.float64).reshape(self.size, kv_heads, dim)
        group = int8_group(dim)
        scales = raw[:, : kv_heads * dim // group * 4].copy().view(np.float32).astype(np.float64)
        values = raw[:, scales.shape[1] * 4 :][:, : kv_heads * dim].view(np.int8).astype(np.float64)
        return (values.reshape(self.size, -1, group) * scales[:, :, None]).reshape(self.size, kv_heads, dim)

    def overflow(self, code: int, layer: int) -> CacheOverflow:
        """The exception for a code that cache_rows.store returned: position * 2 + (0 for a key, 1 for a value)."""
        what = "value" if code % 2 else "key"
        return CacheOverflow(
            f"layer {layer}, position {code // 2}: a {what} is not finite or beyond {LARGEST[self.dtype]:g}, the most "
            f"that an {self.dtype} cache holds; use new_cache(..., dtype={'f64' if self.dtype == 'f32' else 'f32'!r})"
        )
