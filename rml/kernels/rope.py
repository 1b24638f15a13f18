"""Rotary embeddings: every pair of a head's dimensions is turned by its angle (Su et al. 2021), in place."""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64


def rotate_halves(f: vec[float], x: i64, half: i64, cosine: i64, sine: i64) -> None:
    """One head whose pairs are (i, i + half): Hugging Face's rotate_half."""
    for i in range(half):
        a: float = f[x + i]
        b: float = f[x + half + i]
        f[x + i] = a * f[cosine + i] - b * f[sine + i]
        f[x + half + i] = b * f[cosine + i] + a * f[sine + i]


def rotate_pairs(f: vec[float], x: i64, half: i64, cosine: i64, sine: i64) -> None:
    """One head whose pairs are (2i, 2i + 1): the order of rows in Llama-family GGUF files."""
    for i in range(half):
        a: float = f[x + i * 2]
        b: float = f[x + i * 2 + 1]
        f[x + i * 2] = a * f[cosine + i] - b * f[sine + i]
        f[x + i * 2 + 1] = b * f[cosine + i] + a * f[sine + i]


def rotate(f: vec[float], x: i64, heads: i64, head_dim: i64, table: i64, interleaved: i64) -> None:
    """Rotates one token's heads, f[x : x + heads * head_dim], by its row of the table.

    table: offset of the row (head_dim,): the cosines of the head_dim / 2 pairs, then their sines. head_dim is even.
    """
    half: i64 = head_dim >> 1
    for h in range(heads):
        if interleaved == 1:
            rotate_pairs(f, x + h * head_dim, half, table, table + half)
        else:
            rotate_halves(f, x + h * head_dim, half, table, table + half)
