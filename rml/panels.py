"""Quantised matrices, rewritten as panels of 128 rows while a model is loaded (layout: kernels/pack.py).

In the file a row's weights stand side by side; in a panel the same weights of 128 rows do, which gives vectors that
need no sum over their lanes, and memory that is read from one end to the other. Panels take about as much memory as the
file's rows, which are not kept: each piece of the file is given back as soon as it has been rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rml import native
from rml.build_info import BUILD
from rml.kernels.pack import PACK_SCRATCH, PANEL
from rml.layers import Weights
from rml.mapped_file import MappedFile
from rml.slow_types import without_slow_types
from rml.threads import sum_of_all
from rml.weight_source import Experts, Matrix

PIECE_BYTES = 1 << 22  # of a matrix that are rewritten, and given back, at once


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a matrix, whole panels or its last ones, and the byte where their panels begin."""

    matrix: Matrix
    first: int
    rows: int
    offset: int


def for_products(weights: Weights, threads: int, exact: bool) -> Weights:
    """The same weights as kernels multiply them: of types that have kernels, in panels unless products are exact."""
    known = without_slow_types(weights)
    return known if exact else in_panels(known, threads)


def in_panels(weights: Weights, threads: int) -> Weights:
    """The same weights, quantised matrices in panels; an embedding that is not the head as well stays in its file."""
    matrices = [matrix for matrix in weights.products() if is_packed(matrix)]
    if not matrices:
        return weights
    units = native.buffer(sum(map(panel_bytes, matrices)) // 2 + PANEL, np.int16)  # kernels read on beyond the last
    file = MappedFile(weights.embedding.file.path, units.view(np.uint8))
    packed: dict[tuple[int, int], Matrix] = {}
    pieces: list[Piece] = []
    offset = 0
    for matrix in matrices:
        size = panel_bytes(matrix)
        packed[id(matrix.file), matrix.offset] = replace(matrix, file=file, offset=offset, nbytes=size, in_panels=True)
        pieces += _pieces(matrix, offset)
        offset += size

    def matrix_of(matrix: Matrix) -> Matrix:
        return packed.get((id(matrix.file), matrix.offset), matrix)

    def experts_of(experts: Experts) -> Experts:
        each = [matrix_of(matrix) for matrix in experts]
        files, offsets = tuple(m.file for m in each), tuple(m.offset for m in each)
        return replace(experts, files=files, offsets=offsets, nbytes=each[0].nbytes)

    threads = threads if BUILD.mode == "release" else 1
    wide = sum_of_all(lambda piece: _rewrite(piece, units, wide=False), pieces, threads) > 0
    if wide:
        sum_of_all(lambda piece: _rewrite(piece, units, wide=True), pieces, threads)
    for file in weights.files():
        file.give_back(0, file.size)  # its header too, and what the system has read beyond
    products = weights.map_products(matrix_of, experts_of)
    return replace(products, embedding=matrix_of(weights.embedding), wide_factors=wide)


def is_packed(matrix: Matrix) -> bool:
    """Whether int8 products want this matrix in panels."""
    return matrix.format.activation_group > 0


def panel_bytes(matrix: Matrix) -> int:
    """Bytes of a matrix in panels: the last one is filled up with rows of zeros."""
    blocks = matrix.cols // matrix.format.block_weights
    return 2 * int(native.kernel("pack.entries_of")(matrix.format.id, matrix.rows, blocks))


def _pieces(matrix: Matrix, offset: int) -> Iterator[Piece]:
    """The pieces of a matrix whose panels begin at byte `offset`."""
    at_once = max(1, PIECE_BYTES * matrix.rows // matrix.nbytes // PANEL) * PANEL
    for first in range(0, matrix.rows, at_once):
        yield Piece(matrix, first, min(at_once, matrix.rows - first), offset)
        offset += panel_bytes(replace(matrix, rows=at_once))


def _rewrite(piece: Piece, units: native.Array, wide: bool) -> int:
    """Writes the panels of a piece; returns how many of its factors would need wide=True."""
    matrix = piece.matrix
    size = matrix.nbytes // matrix.rows
    start, nbytes = piece.first * size, piece.rows * size
    source, _ = native.join([matrix.data[start : start + nbytes]])
    scratch = native.buffer(PACK_SCRATCH, np.int16)
    missing = native.kernel("pack.pack_rows")(
        matrix.format.id, wide, source, 0, piece.rows, matrix.cols // matrix.format.block_weights, scratch, 0,
        units, piece.offset // 2,
    )  # fmt: skip
    matrix.file.give_back(matrix.offset + start, nbytes)
    return int(missing)
