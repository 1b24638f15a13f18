"""One model's recipe as the reference needs it, whichever file it came from.

Letters: H hidden, D head_dim, A heads, K key/value heads, I FFN width, E experts, M expert FFN width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "olmoe")


class NotExpressible(ValueError):
    """The file asks for something this decoder does not compute."""


@dataclass(frozen=True)
class Rope:
    """One rotary table: base, scaling and, from GGUF, the stored divisors of the frequencies."""

    theta: float
    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max: int = 0
    attention_factor: float | None = None  # yarn: replaces the formula
    attention_scale: float = 1.0  # GGUF's rope.scaling.attn_factor: multiplies cos and sin, on top of the formula
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True
    divisors: tuple[float, ...] = ()  # rope_freqs.weight


@dataclass(frozen=True)
class Config:
    """Sizes and switches. `sliding[i]`: layer i looks only at the last `window` positions, its own included."""

    family: str
    vocab: int
    hidden: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    max_positions: int
    rope: Rope
    local_rope: Rope | None = None
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "row"] = "none"
    window: int = 0
    sliding: tuple[bool, ...] = field(default=())
    sandwich_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float = 1.0
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    renormalise: bool = False
    logit_cap: float = 0.0

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise NotExpressible(f"{self.heads} heads over {self.kv_heads} of {self.head_dim}")
        if len(self.sliding) not in (0, self.layers):
            raise NotExpressible(f"{len(self.sliding)} layer types for {self.layers} layers")
        if any(self.sliding) and self.window < 1:
            raise NotExpressible("a sliding layer needs a window")

    def slides(self, layer: int) -> bool:
        return bool(self.sliding) and self.sliding[layer]
