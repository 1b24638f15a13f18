"""The texts that `rml verify` prints. Every function returns a text; none prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rml.cli_tables import table_text
from rml.verify_determinism import CACHES, FEEDINGS, Matrix

SHOWN_DIGITS = 8  # of a hash


def determinism_text(report: Mapping[str, Any], found: Sequence[Matrix]) -> str:
    """One table of hashes per product: a line per number of threads, a column per way of feeding and kind of cache."""
    head = f"{report['model']}: {len(report['tokens'])} tokens ({report['source']}), cache {report['cache']}\n"
    return "\n".join([head + f"{report['kernels']}\n", *(matrix_table(matrix) for matrix in found)])


def matrix_table(matrix: Matrix) -> str:
    """One product's hashes, and what they say."""
    columns = [(feeding, cache) for feeding in FEEDINGS for cache in CACHES]
    cells = {(c.threads, c.feeding, c.cache): c.sha256[:SHOWN_DIGITS] for c in matrix.cells}
    threads = sorted({cell.threads for cell in matrix.cells})
    rows = [(count, *(cells[count, *column] for column in columns)) for count in threads]
    title = f"{matrix.dot}{', deterministic=True' if matrix.deterministic else ''}: SHA-256 of the logits"
    count = len(matrix.hashes)
    verdict = "the same bits in every run" if count == 1 else f"{count} DIFFERENT RESULTS"
    names = [f"{feeding}, {cache}" for feeding, cache in columns]
    return table_text(title, ["threads", *names], rows) + f"{len(matrix.cells)} runs: {verdict}\n"
