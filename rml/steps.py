"""Writes the program of a forward pass: one record per step, run natively by every rank (rml/kernels/program.py).

The writer knows arenas, records and barriers, so that the decoder can read like the specification. n and the position
are not in the program: the same one serves a prefill and a decode step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rml.arenas import Constants, Floats, Ints, Plan, Region, f16_table
from rml.formats import StoredType
from rml.kernels import opcodes as op
from rml.kernels.pack import PANEL
from rml.weight_source import Experts, MappedFile, Matrix

Address = Callable[[MappedFile, int], int]  # a file's byte offset -> the offset in the kernels' weight memory


@dataclass(frozen=True, slots=True)
class Input:
    """Where a region's values lie rounded to int8: offsets in h, f and k."""

    h: int
    scales: int
    sums: int


@dataclass(frozen=True, slots=True)
class Tap:
    """A named activation: `region` holds it when step `step` is about to run; of ids where `in_ids`."""

    step: int
    name: str
    region: Region
    in_ids: bool = False


class Steps:
    """The program under construction, for calls of up to `tokens` tokens.

    address: where a file's bytes lie in the kernels' weight memory. exact: stored weights times float64 activations for
    every type; otherwise quantised weights, in panels, meet int8 activations. widest: the most values of one token that
    one product's input can have. wide: Weights.wide_factors.
    widens: whether blocks are widened to float64 as they lie in the file.
    """

    def __init__(self, address: Address, tokens: int, exact: bool, widest: int, wide: bool, widens: bool) -> None:
        self.address, self.tokens, self.exact = address, tokens, exact
        self.widest, self.wide = widest, wide
        self.f, self.h, self.k, self.ids = Plan(), Plan(), Plan(), Plan()
        self.floats, self.integers = Constants(self.f), Constants(self.ids)
        if widens:
            self.floats.vector(f16_table())  # at 0, where the kernels look the factors of blocks up
        self.records: list[list[int]] = []
        self.taps: list[Tap] = []
        self.inputs: dict[int, Input] = {}  # by activation group

    # ------------------------------------------------------------------------------------------------ memory

    def region(self, width: int, tokens: int | None = None) -> Region:
        """A float64 buffer of `width` entries per token."""
        return Region(self.f.take(width * (tokens or self.tokens)), width)

    def either(self, *alternatives: list[int]) -> list[list[Region]]:
        """A region for each width of each list; the lists share memory, for no two of them are in use at once."""
        offsets = self.f.take_either(*([width * self.tokens for width in widths] for widths in alternatives))
        return [list(map(Region, starts, widths)) for starts, widths in zip(offsets, alternatives, strict=True)]

    def _input(self, group: int) -> Input:
        """The int8 input area of an activation group; every region is rounded into the same area, one after another."""
        if group not in self.inputs:
            values = self.widest * self.tokens
            h, scales, sums = self.h.take(values // 2), self.f.take(values // group), self.k.take(values // 16)
            self.inputs[group] = Input(h, scales, sums)
        return self.inputs[group]

    def _emit(self, opcode: int, *operands: int | bool) -> None:
        self.records.append([opcode, *map(int, operands), *([0] * (op.WIDTH - 1 - len(operands)))])

    def int8(self, stored: StoredType) -> int:
        """0: products with this type take float64 activations; 1: int8 ones; 2: the same, factors in f16 (pack.py)."""
        if self.exact or not stored.activation_group:
            return 0
        return 2 if self.wide else 1

    @property
    def share(self) -> int:
        """Rows that are not divided among ranks: a cache line of outputs, or a panel if a product takes any."""
        return PANEL if self.inputs else 8

    # --------------------------------------------------------------------------------------------- structure

    def barrier(self) -> None:
        """All ranks have done the steps before when any goes on."""
        self._emit(op.BARRIER)

    def tap(self, name: str, region: Region, in_ids: bool = False) -> None:
        """Names the values that `region` holds now."""
        self.taps.append(Tap(len(self.records), name, region, in_ids))

    def position(self) -> int:
        """The number of steps so far: a place where a run may begin or end."""
        return len(self.records)

    # ------------------------------------------------------------------------------------------- token-wise

    def embed(self, matrix: Matrix, scale: float, x: Region) -> None:
        """x[t] = row of the token's id * scale."""
        start, row = self.address(matrix.file, matrix.offset), matrix.format.row_bytes(matrix.cols)
        panels = self.int8(matrix.format) if matrix.in_panels else 0
        self._emit(
            op.EMBED, matrix.format.id, start, matrix.cols, row, self.floats.number(scale), x.offset,
            panels, matrix.rows,
        )  # fmt: skip

    def norm(self, x: Region, weight: Floats, out: Region, eps: float, items: int = 1) -> None:
        """out = RMSNorm(x) * weight, each of `items` equal pieces of a token's row on its own."""
        self._emit(
            op.NORM, x.offset, self.floats.vector(weight), out.offset, x.width // items, self.floats.number(eps), items
        )

    def prepare(self, x: Region, matrices: Iterable[Matrix | Experts], items: int = 1) -> None:
        """Rounds x to int8 in every way in which these matrices want it, then a barrier: x is ready for products.

        items: rows per token (chosen experts).
        """
        groups = {m.format.activation_group for m in matrices if self.int8(m.format)}
        for group in sorted(groups):
            a, cols = self._input(group), x.width // items
            self._emit(op.QUANTIZE, x.offset, cols, group, a.h, a.scales, a.sums, items)
        self.barrier()

    def rope(self, x: Region, head_dim: int, table: Region, interleaved: bool) -> None:
        """Rotates every head of x by the angles of its token's position."""
        self._emit(op.ROPE, x.offset, x.width // head_dim, head_dim, table.offset, interleaved)

    def add(self, x: Region, y: Region) -> None:
        """x += y."""
        self._emit(op.ADD, x.offset, y.offset, x.width)

    def last_rows(self, *copies: tuple[Region, Region]) -> None:
        """Copies the last token's row of one region to another, for each pair; then the steps see that token alone."""
        for i, (x, target) in enumerate(copies, 1):
            self._emit(op.LAST_ROW, x.offset, x.width, target.offset, i == len(copies))

    # ---------------------------------------------------------------------------------------------- row-wise

    def matmul(
        self, matrix: Matrix, x: Region, y: Region, bias: Floats | None = None, accumulate: bool = False
    ) -> None:
        """y = matrix x (+ bias), or y += with `accumulate`; x has been prepared. No barrier: rows are shared alike."""
        a = self._operands(matrix.format)
        start = self.address(matrix.file, matrix.offset)
        self._emit(
            op.MATMUL, matrix.format.id, start, matrix.rows, matrix.cols, self.int8(matrix.format),
            x.offset, a.h, a.scales, a.sums, y.offset, y.width, accumulate,
        )  # fmt: skip
        if bias is not None:
            self._emit(op.BIAS, y.offset, self.floats.vector(bias), matrix.rows, y.width)

    def _operands(self, stored: StoredType) -> Input:
        return self._input(stored.activation_group) if self.int8(stored) else Input(0, 0, 0)

    def glu(self, gate: Region, up: Region, activation: int, items: int = 1) -> None:
        """gate = act(gate) * up, on the rows this rank has just computed: no barrier before it."""
        self._emit(op.GLU, gate.offset, up.offset, gate.width // items, activation, items)

    def softcap(self, y: Region, cap: float) -> None:
        """y = cap * tanh(y / cap)."""
        self._emit(op.SOFTCAP, y.offset, y.width, self.floats.number(cap))

    def fill(self, y: Region) -> None:
        """y = 0."""
        self._emit(op.FILL, y.offset, y.width, y.width)

    # --------------------------------------------------------------------------------------------- attention

    def store(self, k: Region, v: Region, layer: int) -> None:
        """Writes keys and values of the call's tokens into the cache."""
        self._emit(op.STORE, k.offset, v.offset, layer)

    def attend(self, q: Region, out: Region, layer: int, window: int, scale: float, shared: Region) -> None:
        """out = softmax(scale q k) v over the cache, causal, within `window` keys (0: all); ends past a barrier.

        shared: scratch of all ranks for the parts of a lone token's context.
        """
        self._emit(op.ATTEND, q.offset, out.offset, layer, window, self.floats.number(scale), shared.offset)
        self.barrier()
        self._emit(op.FINISH, out.offset, shared.offset, window)

    # ----------------------------------------------------------------------------------------------- experts

    def route(self, scores: Region, chosen: int, weights: Region, renormalise: bool) -> None:
        """ids[chosen + t * k:] = the k best experts of each token, f[weights]: theirs; scores become probabilities."""
        self._emit(op.ROUTE, scores.offset, scores.width, chosen, weights.width, weights.offset, renormalise)

    def experts_up(self, experts: Experts, x: Region, y: Region, k: int, chosen: int) -> None:
        """y[t][slot] = expert chosen[t][slot] times x[t]; y holds k rows of expert size per token."""
        a = self._operands(experts.format)
        self._emit(
            op.EXPERTS_UP, experts.format.id, self._table(experts), experts.rows, experts.cols,
            self.int8(experts.format), x.offset, a.h, a.scales, a.sums, y.offset, k, chosen, len(experts),
        )  # fmt: skip

    def experts_down(self, experts: Experts, x: Region, y: Region, k: int, chosen: int, weights: Region) -> None:
        """y[t] += sum over slots, in rising order of expert, of weights[t][slot] * (expert times x[t][slot])."""
        a = self._operands(experts.format)
        self._emit(
            op.EXPERTS_DOWN, experts.format.id, self._table(experts), experts.rows, experts.cols,
            self.int8(experts.format), x.offset, a.h, a.scales, a.sums, y.offset, k, chosen, len(experts),
            weights.offset,
        )  # fmt: skip

    def _table(self, experts: Experts) -> int:
        """ids: where each expert's bytes begin."""
        starts = [self.address(f, o) for f, o in zip(experts.files, experts.offsets, strict=True)]
        return self.integers.vector(np.array(starts, np.int64))

    def program(self) -> Ints:
        """i64 (steps, WIDTH), when all steps have been written; their records are let go."""
        program = np.array(self.records, np.int64)
        self.records.clear()
        return program
