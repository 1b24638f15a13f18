"""The texts that `rml verify` prints. Every function returns a text; none prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rml.cli_tables import table_text
from rml.tokenizer import Tokenizer
from rml.verify_determinism import CACHES, FEEDINGS, Matrix
from rml.verify_text import token_text

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
    title = f"{matrix.dot}: SHA-256 of the logits"
    count = len(matrix.hashes)
    verdict = "the same bits in every run" if count == 1 else f"{count} DIFFERENT RESULTS"
    names = [f"{feeding}, {cache}" for feeding, cache in columns]
    return table_text(title, ["threads", *names], rows) + f"{len(matrix.cells)} runs: {verdict}\n"


def kld_text(report: Mapping[str, Any], tokenizer: Tokenizer | None) -> str:
    """Protocol, figures, worst positions."""
    s = report["summary"]
    head = f"A: {report['a']}\nB: {report['b']}\n{report['protocol_text']}\n{report['kernels']}\n"
    percentiles = [(f"{p} %", f"{value:.6f}") for p, value in s["kl_percentiles"].items()]
    mean = f"{s['kl_mean']:.6f} ± {s['kl_standard_error']:.6f}"
    rows = [("mean", mean), *percentiles, ("largest", f"{s['kl_max']:.6f}")]
    parts = [head, table_text("", ["KL divergence of B from A", "nats"], rows).lstrip("\n")]
    parts.append(
        f"same likeliest token: {100 * s['same_top']:.2f} %\n"
        f"perplexity: A {s['perplexity_a']:.4f}, B {s['perplexity_b']:.4f}, "
        f"B / A {s['perplexity_b'] / s['perplexity_a']:.5f}\n"
    )
    if s["kl_bound_max"] > 0:
        parts.append(
            "a record keeps only the likeliest tokens of each position, so the divergences shown are lower bounds: the "
            f"mean is at most {s['kl_bound']:.2g} too low, that of one position {s['kl_bound_max']:.2g}\n"
        )
    return "\n".join([*parts, worst_table(report["worst"], tokenizer)])


def worst_table(worst: Sequence[Mapping[str, Any]], tokenizer: Tokenizer | None) -> str:
    """The positions with the largest divergences."""
    rows = [
        (
            row["window"],
            row["position"],
            f"{row['kl']:.4f}",
            row["context"],
            token_text(tokenizer, row["next"]),
            token_text(tokenizer, row["best_a"]),
            token_text(tokenizer, row["best_b"]),
            f"{row['loss_a']:.3f}",
            f"{row['loss_b']:.3f}",
        )
        for row in worst
    ]
    columns = ["window", "position", "KL", "text so far", "next", "A expects", "B expects", "A's loss", "B's loss"]
    return table_text("Worst positions", columns, rows, ["window", "position", "KL", "A's loss", "B's loss"])


def kv_text(report: Mapping[str, Any]) -> str:
    """A line per layer with every type's errors, a line per type with what they do together, advice."""
    types = [each for each in report["types"] if not each["problem"]]
    head = f"{report['model']} ({report['dot']} products): {len(report['tokens'])} tokens ({report['source']})\n"
    names = [f"{each['dtype']} {what}" for each in types for what in ("key", "value", "attention")]
    layers = len(types[0]["layers"]) if types else 0
    rows = [
        (layer, *(f"{each['layers'][layer][what]:.1e}" for each in types for what in ("key", "value", "attention")))
        for layer in range(layers)
    ]
    parts = [head + f"{report['kernels']}\n"]
    if rows:
        title = "Relative errors against an f64 cache, each layer on its own"
        parts.append(table_text(title, ["layer", *names], rows, ["layer", *names]))
        figures = [
            (each["dtype"], f"{each['kl_mean']:.2e}", f"{each['kl_max']:.2e}", f"{100 * each['same_top']:.2f} %")
            for each in types
        ]
        columns = ["cache", "mean KL", "largest KL", "same likeliest token"]
        parts.append(table_text("Logits, all layers together (nats)", columns, figures, columns[1:]))
    return "\n".join([*parts, "".join(f"{line}\n" for line in report["advice"])])
