"""Products of many tokens with F32, F16 and BF16 matrices by numpy's BLAS, in float64: faster than plain loops there.

The sums run in BLAS's own order, so they agree with the kernels to about 1e-12, not in every bit: a model loaded with
`deterministic=True` never comes here. Each of our threads takes blocks of rows, and BLAS itself is held at one thread.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rml.arenas import Floats
from rml.weight_source import Matrix

BLOCK_WEIGHTS = 1 << 18  # weights widened at once: 2 MB of float64, which the second-level cache nearly holds


class Workspace(threading.local):
    """One thread's arrays for a block: fresh ones of this size would cost a page fault for every 512 numbers."""

    def __init__(self) -> None:
        self.words = np.empty(0, np.uint32)
        self.wide, self.product = np.empty(0), np.empty(0)

    def take(self, weights: int, outputs: int) -> None:
        """Makes room for a block of `weights` weights and its `outputs` products."""
        if self.wide.size < weights:
            self.words, self.wide = np.empty(weights, np.uint32), np.empty(weights)
        if self.product.size < outputs:
            self.product = np.empty(outputs)


def widen(matrix: Matrix, first: int, last: int, space: Workspace) -> Floats:
    """(last - first, cols) rows of a float matrix as float64, exactly; in `space`, until the next call."""
    row = matrix.format.row_bytes(matrix.cols)
    raw = matrix.data[first * row : last * row]
    count = (last - first) * matrix.cols
    wide = space.wide[:count]
    if matrix.format.name == "BF16":
        words = space.words[:count]
        np.left_shift(raw.view(np.uint16), np.uint32(16), out=words, dtype=np.uint32)
        np.copyto(wide, words.view(np.float32))
    else:
        np.copyto(wide, raw.view({"F32": np.float32, "F16": np.float16}[matrix.format.name]))
    return wide.reshape(last - first, matrix.cols)


class BlasProducts:
    """Multiplies with `ranks` threads; starts them, and looks for the BLAS, when it is first used."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.pool: ThreadPoolExecutor | None = None
        self.process = os.getpid()
        self.space = Workspace()

    def multiply(self, matrix: Matrix, x: Floats, y: Floats, accumulate: bool) -> None:
        """y (n, rows) = x (n, cols) times the matrix transposed, or y += with `accumulate`."""
        if self.pool is None or self.process != os.getpid():  # a fork copies no threads
            from threadpoolctl import ThreadpoolController  # here: most models never need it

            self.pool = ThreadPoolExecutor(self.ranks, thread_name_prefix="rml-blas")
            self.controller = ThreadpoolController()
            self.process = os.getpid()
        rows = max(1, BLOCK_WEIGHTS // matrix.cols)

        def block(first: int) -> None:
            last = min(first + rows, matrix.rows)
            shape = len(x), last - first
            self.space.take(rows * matrix.cols, len(x) * rows)
            product = self.space.product[: shape[0] * shape[1]].reshape(shape)
            np.matmul(x, widen(matrix, first, last, self.space).T, out=product)
            if accumulate:
                y[:, first:last] += product
            else:
                y[:, first:last] = product

        with self.controller.limit(limits=1, user_api="blas"):
            for _ in self.pool.map(block, range(0, matrix.rows, rows)):
                pass
