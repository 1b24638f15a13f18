"""Stored types without kernels (IQ*, TQ*, MXFP4 ...): widened to F32 at load, some rows at a time, by the gguf package.

They cost four bytes a weight and the time to widen them once; a warning says so. Everything after this sees F32.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from rml.errors import LoadWarning
from rml.formats import F32
from rml.layers import Weights
from rml.mapped_file import MappedFile
from rml.weight_source import Experts, Matrix

ROWS_AT_ONCE = 256


def without_slow_types(weights: Weights) -> Weights:
    """The same weights, every matrix of a type that kernels can multiply."""
    embedding = _matrix(weights.embedding)
    head = embedding if weights.head is weights.embedding else weights.head
    return replace(weights, embedding=embedding, head=head).map_products(_matrix, _experts)


def _matrix(matrix: Matrix) -> Matrix:
    return _widen([matrix])[0] if matrix.format.slow else matrix


def _experts(experts: Experts) -> Experts:
    if not experts.format.slow:
        return experts
    wide = _widen(list(experts))
    files, offsets = tuple(m.file for m in wide), tuple(m.offset for m in wide)
    return Experts(experts.name, F32, experts.rows, experts.cols, files, offsets, wide[0].nbytes)


def _widen(matrices: list[Matrix]) -> list[Matrix]:
    from gguf import GGMLQuantizationType  # here: the package is slow to import, and most models never need it
    from gguf.quants import dequantize

    first = matrices[0]
    warnings.warn(
        f"{first.file.path}: {first.name} is stored as {first.format}, which has no kernel: widened to F32 in "
        f"{len(matrices) * first.rows * first.cols * 4 / 1e6:.0f} MB of memory. Slow: requantise it",
        LoadWarning,
        stacklevel=2,
    )
    kind = GGMLQuantizationType(first.format.id)
    result = []
    for matrix in matrices:
        values = np.empty((matrix.rows, matrix.cols), np.float32)
        blocks = matrix.data.reshape(matrix.rows, -1)
        for row in range(0, matrix.rows, ROWS_AT_ONCE):
            values[row : row + ROWS_AT_ONCE] = dequantize(blocks[row : row + ROWS_AT_ONCE], kind)
        file = MappedFile(matrix.file.path, values.reshape(-1).view(np.uint8))
        result.append(Matrix(matrix.name, F32, matrix.rows, matrix.cols, file, 0, values.nbytes))
    return result
