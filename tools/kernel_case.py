"""Arenas around one matrix and some activations, and a method for each way through rml/kernels/matmul.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rml import native
from rml.caches import bytes_ahead, nearest_cache
from rml.formats import BY_NAME
from rml.kernels.pack import PACK_SCRATCH, PANEL

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

HALF = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
AHEAD = bytes_ahead(nearest_cache())
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
SCALES_AT = {
    "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,), "Q4_1": (0, 2), "Q5_1": (0, 2),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def random_blocks(rng: np.random.Generator, name: str, count: int, halves: list[int] | None = None) -> Bytes:
    """(count, bytes) random blocks of a format. f16 scales: from `halves` (bit patterns), else as in real files.

    Real scales of a matrix lie within a factor of four or so: the kernels look their values up, and few stay cached.
    """
    stored = BY_NAME[name]
    raw = rng.integers(0, 256, (count, stored.block_bytes), dtype=np.uint8)
    for at in SCALES_AT[name]:
        if halves is None:
            size = 0.01 * (1.0 + np.abs(rng.standard_normal(count))) * rng.choice([-1.0, 1.0], count)
            bits = size.astype(np.float16).view(np.uint16)
        else:
            bits = rng.choice(np.array(halves, np.uint16), count)
        raw[:, at : at + 2] = bits.view(np.uint8).reshape(count, 2)
    return raw


class Case:
    """A matrix of `rows` x `cols` weights in the bytes `raw`, and activations x[token][cols].

    `ranks` threads may work on it at once, each with scratch of its own: `calls` gives their prepared calls.
    """

    def __init__(self, name: str, raw: Bytes, rows: int, cols: int, x: Floats, ranks: int = 1) -> None:
        self.kind, self.rows, self.cols, self.tokens = BY_NAME[name].id, rows, cols, len(x)
        self.group = BY_NAME[name].activation_group
        self.groups = cols // self.group if self.group else 0
        self.ystride = rows + 3
        self.w = native.copy(raw.ravel(), np.uint8)
        self.sizes = {"f": 0, "h": 0, "k": 0}
        self._lay_out(ranks)
        self.f = native.buffer(self.sizes["f"], np.float64)
        self.fi = self.f.view(np.int64)
        self.h, self.k = native.buffer(self.sizes["h"], np.int16), native.buffer(self.sizes["k"], np.int32)
        self.f[:65536] = HALF
        self.f[self.x : self.x + x.size] = x.ravel()
        if self.group:
            self._pack()

    def _pack(self) -> None:
        """The matrix in panels, for int8 products."""
        entries = int(native.kernel("pack.entries_of")(self.kind, self.rows, self.groups))
        panels = native.buffer(entries + PANEL, np.int16)  # kernels read on beyond the last
        scratch, pack = native.buffer(PACK_SCRATCH, np.int16), native.kernel("pack.pack_rows")
        operands = (self.w, 0, self.rows, self.groups, scratch, 0, panels, 0)
        self.int8_mode = 1
        if pack(self.kind, False, *operands):
            self.int8_mode = 2
            pack(self.kind, True, *operands)
        self.panels = native.copy(panels.view(np.uint8), np.uint8)

    def _lay_out(self, ranks: int) -> None:
        self._take("f", 65536)  # at 0, where the kernels look f16 factors up
        self.x = self._take("f", self.tokens * self.cols)
        self.scale = self._take("f", self.tokens * self.groups)
        self.y = self._take("f", self.tokens * self.ystride)
        self.hx = self._take("h", self.tokens * self.cols // 2)
        self.sums = self._take("k", self.tokens * self.cols // 16)
        sizes = {arena: int(native.kernel(f"matmul.scratch_{arena}")(self.cols)) for arena in "hk"}
        sizes["f"] = int(native.kernel("matmul.scratch_f")(self.cols, 0))
        self.scratch = [[self._take(arena, sizes[arena]) for arena in "hkf"] for _ in range(ranks)]
        self.hs, self.ks, self.fs = self.scratch[0]

    def _take(self, arena: str, count: int) -> int:
        offset = self.sizes[arena]
        self.sizes[arena] += -(-count // 64) * 64
        return offset

    def result(self, token: int = 0) -> Floats:
        """A copy of the token's row of products."""
        start = self.y + token * self.ystride
        return np.array(self.f[start : start + self.rows])

    def results(self) -> Floats:
        """(tokens, rows)"""
        return np.stack([self.result(t) for t in range(self.tokens)])

    def round_row(self, token: int) -> tuple[npt.NDArray[np.int8], Floats]:
        """Rounds one token to int8 and returns its integers and scales."""
        native.kernel("quantize.quantize_row")(
            self.f, self.f, self.fi, self.x + token * self.cols, self.cols, self.group, token, self.tokens,
            self.h.view(np.uint8), 2 * self.hx, self.k, self.sums, self.scale, self.fs,
        )  # fmt: skip
        q = self.h.view(np.int8)[2 * self.hx :][: self.tokens * self.cols].reshape(self.groups, self.tokens, self.group)
        scales = self.f[self.scale :][: self.tokens * self.groups].reshape(self.groups, self.tokens)
        return q[:, token].ravel(), np.array(scales[:, token])

    def round_rows(self) -> None:
        """Rounds all tokens to int8."""
        for token in range(self.tokens):
            self.round_row(token)

    def call(
        self, path: str, first: int, last: int, token: int = 0, accumulate: bool = False, rank: int = 0
    ) -> Callable[[], Any]:
        """A prepared call for rows first..last-1: "one" token, or all tokens with "int8" activations or "exact"."""
        hs, ks, fs = self.scratch[rank]
        n, int8 = 1 if path == "one" else self.tokens, path != "exact" and self.group > 0
        w = self.panels if int8 else self.w
        return native.kernel("matmul.product").prepare(
            self.kind, self.int8_mode if int8 else 0, w, w, 0, self.rows, first, last, self.cols, n,
            self.h, self.h.view(np.uint8), self.hx + token * self.group // 2, self.tokens, self.k, self.k,
            self.sums + token * self.group // 16, self.f, self.x + token * self.cols,
            self.scale + token, self.y + token * self.ystride, self.ystride, accumulate, hs, ks, fs, AHEAD,
        )  # fmt: skip

    def one(self, token: int = 0, first: int = 0, last: int | None = None, accumulate: bool = False) -> Floats:
        """Rows first..last-1 times one token, rounded here when the format wants it. (rows,)"""
        if self.group:
            self.round_row(token)
        self.call("one", first, self.rows if last is None else last, token, accumulate)()
        return self.result(token)

    def int8(self, first: int = 0, last: int | None = None, accumulate: bool = False) -> Floats:
        """Rows first..last-1 times all tokens, rounded here. (tokens, rows)"""
        self.round_rows()
        self.call("int8", first, self.rows if last is None else last, accumulate=accumulate)()
        return self.results()

    def exact(self, first: int = 0, last: int | None = None, accumulate: bool = False) -> Floats:
        """Rows first..last-1 times all tokens in float64. (tokens, rows)"""
        self.call("exact", first, self.rows if last is None else last, accumulate=accumulate)()
        return self.results()

    def widen_from_panel(self, row: int = 0) -> Floats:
        """One row in float64, out of the panels."""
        out = self.fs + 32
        native.kernel("panel_rows.widen_panel_row")(
            self.kind, self.int8_mode - 1, self.panels, 0, self.rows, row, self.groups, self.h, self.hs,
            self.k, self.k, self.ks, self.f, out,
        )  # fmt: skip
        return np.array(self.f[out : out + self.cols])

    def widen(self, row: int = 0) -> Floats:
        """One row in float64."""
        out = self.fs + 32
        start = row * int(native.kernel("kinds.row_bytes")(self.kind, self.cols))
        native.kernel("widen.widen")(
            self.kind, self.w, self.w, start, self.cols, self.h, self.hs, self.k, self.k, self.ks,
            self.f, out,
        )  # fmt: skip
        return np.array(self.f[out : out + self.cols])


def same_bits(a: Any, b: Any) -> bool:
    """Whether two float64 arrays hold the same bits, any NaN equal to any other."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(((a.view(np.int64) == b.view(np.int64)) | (np.isnan(a) & np.isnan(b))).all())
