"""Products of many tokens with F32, F16 and BF16 matrices by numpy's BLAS, in float64: faster than plain loops there.

The sums run in BLAS's own order, so they agree with the kernels to about 1e-12, not in every bit: a model loaded with
`deterministic=True` never comes here. Each of our threads takes blocks of rows, and BLAS itself is held at one thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from rml.arenas import Floats
from rml.weight_source import Matrix

BLOCK_WEIGHTS = 1 << 20  # weights widened at once, at most: 8 MB of float64; BLAS is at its best with many rows
PIECE_WEIGHTS = 1 << 16  # bf16 weights shifted at once: 256 KB, which stay near until they are widened
ROW_MULTIPLE = 8  # a block's rows are a multiple of what BLAS multiplies side by side


class LongProduct(NamedTuple):
    """y (n, rows) = x (n, cols) times the matrix transposed, or y += with `accumulate`."""

    matrix: Matrix
    x: Floats
    y: Floats
    accumulate: bool


class Block(NamedTuple):
    """Rows first..last-1 of a product."""

    product: LongProduct
    first: int
    last: int


def block_rows(matrix: Matrix, ranks: int) -> int:
    """Rows of a block: all nearly equal, and a multiple of `ranks` of them where there are rows enough."""
    count = ranks * -(-matrix.rows * matrix.cols // (ranks * BLOCK_WEIGHTS))
    return -(-matrix.rows // (count * ROW_MULTIPLE)) * ROW_MULTIPLE


def cut(product: LongProduct, ranks: int) -> Iterator[Block]:
    """The blocks of a product."""
    rows = block_rows(product.matrix, ranks)
    for first in range(0, product.matrix.rows, rows):
        yield Block(product, first, min(first + rows, product.matrix.rows))


def room(matrices: Iterable[Matrix], ranks: int, tokens: int) -> int:
    """Bytes that the threads' workspaces may grow to: the largest block of weights and the largest of products."""
    blocks = [(block_rows(matrix, ranks), matrix.cols) for matrix in matrices]
    weights = max(rows * cols for rows, cols in blocks)
    products = tokens * max(rows for rows, _ in blocks)
    return ranks * (8 * weights + 8 * products + 4 * PIECE_WEIGHTS)


class Workspace(threading.local):
    """One thread's arrays for a block: fresh ones of this size would cost a page fault for every 512 numbers."""

    def __init__(self) -> None:
        self.words = np.empty(PIECE_WEIGHTS, np.uint32)
        self.wide, self.product = np.empty(0), np.empty(0)

    def weights(self, count: int) -> Floats:
        """(count,) for the weights of a block."""
        if self.wide.size < count:
            self.wide = np.empty(count)
        return self.wide[:count]

    def products(self, tokens: int, rows: int) -> Floats:
        """(tokens, rows) for products that are added to others."""
        if self.product.size < tokens * rows:
            self.product = np.empty(tokens * rows)
        return self.product[: tokens * rows].reshape(tokens, rows)


def widen(matrix: Matrix, first: int, last: int, space: Workspace) -> Floats:
    """(last - first, cols) rows of a float matrix as float64, exactly; in `space`, until the next call."""
    row = matrix.format.row_bytes(matrix.cols)
    raw = matrix.data[first * row : last * row]
    count = (last - first) * matrix.cols
    wide = space.weights(count)
    if matrix.format.name == "BF16":
        for at in range(0, count, PIECE_WEIGHTS):
            upper = raw.view(np.uint16)[at : at + PIECE_WEIGHTS]
            words = space.words[: upper.size]
            np.left_shift(upper, np.uint32(16), out=words, dtype=np.uint32)
            np.copyto(wide[at : at + upper.size], words.view(np.float32))
    else:
        np.copyto(wide, raw.view({"F32": np.float32, "F16": np.float16}[matrix.format.name]))
    return wide.reshape(last - first, matrix.cols)


class BlasProducts:
    """Multiplies with `ranks` threads, the caller's among them; the others start when it is first used."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.pool: ThreadPoolExecutor | None = None
        self.process = os.getpid()
        self.space = Workspace()

    def multiply(self, products: Sequence[LongProduct]) -> None:
        """Computes products that do not need one another's results."""
        if self.pool is None or self.process != os.getpid():  # a fork copies no threads
            from threadpoolctl import ThreadpoolController  # here: most models never need it

            self.pool = ThreadPoolExecutor(max(1, self.ranks - 1), thread_name_prefix="rml-blas")
            self.controller = ThreadpoolController()
            self.process = os.getpid()
        blocks = deque(block for product in products for block in cut(product, self.ranks))
        with self.controller.limit(limits=1, user_api="blas"):
            others = [self.pool.submit(self._work, blocks) for _ in range(self.ranks - 1)]
            try:
                self._work(blocks)
            finally:  # whatever happened: nobody writes to y any more when this returns
                blocks.clear()
                for other in others:
                    other.result()

    def _work(self, blocks: deque[Block]) -> None:
        """Takes blocks until there are none left."""
        while True:
            try:
                (matrix, x, y, accumulate), first, last = blocks.popleft()
            except IndexError:  # another thread took the last one
                return
            wide = widen(matrix, first, last, self.space)
            if accumulate:
                y[:, first:last] += np.matmul(x, wide.T, out=self.space.products(len(x), last - first))
            else:
                np.matmul(x, wide.T, out=y[:, first:last])
