"""Long float products: cut into blocks, shared among threads, put together again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tolerances import BLAS_BLOCKS

import rml
from rml.arenas import Floats
from rml.blas import BlasProducts, LongProduct, cut
from rml.layers import DenseFfn
from rml.weight_source import Matrix

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
TOKENS = 40


def products(accumulate: bool) -> list[LongProduct]:
    """Two matrices of a toy times one input; the results lie in wider rows and hold numbers before."""
    ffn = rml.load(FIXTURES / "llama/model.gguf").layers.layers[1].ffn
    assert isinstance(ffn, DenseFfn)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((TOKENS, ffn.gate.cols))
    room = rng.standard_normal((2, TOKENS, ffn.gate.rows + 5))
    return [
        LongProduct(matrix, x, y[:, : matrix.rows], accumulate)
        for matrix, y in zip((ffn.gate, ffn.up), room, strict=True)
    ]


def weights(matrix: Matrix) -> Floats:
    """(rows, cols)"""
    assert matrix.format.name == "F16"
    return matrix.data.view(np.float16).astype(np.float64).reshape(matrix.rows, matrix.cols)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [False, True])
def test_blocks_make_whole_products(ranks: int, accumulate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rml.blas.BLOCK_WEIGHTS", 700)  # several blocks, the last one smaller
    todo = products(accumulate)
    expected = [p.x @ weights(p.matrix).T + (p.y if accumulate else 0.0) for p in todo]
    BlasProducts(ranks).multiply(todo)
    for product, want in zip(todo, expected, strict=True):
        assert np.abs(product.y - want).max() < BLAS_BLOCKS


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("most", [500, 3000, 1 << 20])
def test_blocks_are_alike_and_cover_every_row_once(ranks: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rml.blas.BLOCK_WEIGHTS", most)
    (product, _) = products(False)
    blocks = list(cut(product, ranks))
    assert [block.first for block in blocks] == [0, *(block.last for block in blocks[:-1])]
    assert blocks[-1].last == product.matrix.rows
    sizes = [block.last - block.first for block in blocks]
    assert set(sizes[:-1]) <= {max(sizes)}
    assert max(sizes) % 8 == 0
    if product.matrix.rows % (8 * ranks) == 0:
        assert len(blocks) >= ranks, "a thread would have nothing to do"
