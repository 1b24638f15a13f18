"""Products of many tokens with F32, F16 and BF16 matrices by numpy's BLAS, in float64: faster than plain loops there.

The sums run in BLAS's own order, so they agree with the kernels to about 1e-12, not in every bit: a model loaded with
`deterministic=True` never comes here. Each of our threads takes blocks of rows, and BLAS itself is held at one thread.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rml.arenas import Floats
from rml.weight_source import Matrix

BLOCK_WEIGHTS = 1 << 18  # weights widened at once: 2 MB of float64, which the second-level cache nearly holds


def widen(matrix: Matrix, first: int, last: int) -> Floats:
    """(last - first, cols) rows of a float matrix as float64, exactly."""
    row = matrix.format.row_bytes(matrix.cols)
    raw = matrix.data[first * row : last * row]
    if matrix.format.name == "BF16":
        values = (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = raw.view({"F32": np.float32, "F16": np.float16}[matrix.format.name])
    return values.astype(np.float64).reshape(last - first, matrix.cols)


class BlasProducts:
    """Multiplies with `ranks` threads; starts them, and looks for the BLAS, when it is first used."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.pool: ThreadPoolExecutor | None = None
        self.process = os.getpid()

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
            product = x @ widen(matrix, first, last).T
            if accumulate:
                y[:, first:last] += product
            else:
                y[:, first:last] = product

        with self.controller.limit(limits=1, user_api="blas"):
            for _ in self.pool.map(block, range(0, matrix.rows, rows)):
                pass
