"""Configs of one or two attention layers, for the tests of the cache and of attention."""

from __future__ import annotations

from rml.config import ModelConfig, RopeConfig


def shape(heads: int = 4, kv_heads: int = 2, dim: int = 16, layers: int = 2) -> ModelConfig:
    """A model of which only the attention's sizes matter."""
    return ModelConfig(
        model_type="llama", vocab_size=64, hidden_size=heads * dim, intermediate_size=64, num_layers=layers,
        num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, rms_norm_eps=1e-6, max_position_embeddings=4096,
        rope=RopeConfig(10000.0),
    )  # fmt: skip


LLAMA_8B = shape(heads=32, kv_heads=8, dim=128, layers=32)
