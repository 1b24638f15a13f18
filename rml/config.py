"""The model config: one recipe for eight families, which differ only in the switches they flip.

The recipe: pre-norm RMSNorm, RoPE, grouped-query attention and a gated FFN. `config_hf` and `config_gguf` read the
switches from config.json and from GGUF metadata; nothing after them asks for a family's name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite, prod
from typing import Final, Literal

from rml.errors import ConfigError

Activation = Literal["silu", "gelu_tanh"]
QkNorm = Literal["none", "head", "row"]
RopeType = Literal["default", "linear", "llama3", "yarn"]

MAX_LAYERS: Final = 65536  # one flag per layer is kept, so a lie about their number must not cost memory


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary frequencies: inv_freq[i] = theta^(-2i / head_dim), then changed by `type`.

    The formulas are those of transformers' modeling_rope_utils. attention_factor multiplies cos and sin; None = the
    factor that the type's formula gives (1, but for yarn). Fields that the type does not use keep their defaults.
    """

    theta: float
    type: RopeType = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and switches of one model. Built by `config_hf.from_hf` or `config_gguf.from_gguf`, which validate it."""

    model_type: str
    # Sizes.
    vocab_size: int
    hidden_size: int
    intermediate_size: int  # width of the dense FFN; of the experts too unless expert_size says otherwise
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    # Switches.
    activation: Activation = "silu"
    attention_bias: bool = False  # on q, k and v
    output_bias: bool = False  # on the attention's output projection
    qk_norm: QkNorm = "none"  # before RoPE: per head with one weight [head_dim], or over the whole row
    sliding_window: int = 0  # keys a sliding layer sees, itself included; 0 = none
    sliding_layers: tuple[bool, ...] = ()  # one flag per layer
    sandwich_norms: bool = False  # also norm what attention and FFN give, before it is added
    embedding_scale: float = 1.0
    attention_scale: float = 0.0
    tied_head: bool = False  # the head is the embedding
    final_logit_softcapping: float = 0.0  # c: logits = c * tanh(logits / c); 0 = off
    # Positions.
    rope: RopeConfig
    rope_local_theta: float | None = None  # base of the sliding layers' own, never scaled RoPE; None = they use `rope`
    rope_interleaved: bool = False  # pairs are (2i, 2i + 1) in the file's rows, else (i, i + head_dim / 2)
    has_rope_freqs: bool = False  # rope_freqs.weight [head_dim / 2] divides inv_freq, before `rope.type` applies
    # Experts.
    num_experts: int = 0  # 0 = dense FFN
    experts_per_token: int = 0
    expert_size: int = 0
    normalize_expert_weights: bool = False
    # Tokens.
    bos_ids: frozenset[int] = frozenset()
    eos_ids: frozenset[int] = frozenset()
    norm_offset: float = 0.0  # added to the file's norm weights: a Hugging Face Gemma stores w and scales by 1 + w
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # field -> where it came from

    @property
    def q_size(self) -> int:
        """Width of all query heads; it need not be the hidden size."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads (and of all value heads)."""
        return self.num_kv_heads * self.head_dim

    def tensor_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor that the recipe needs: GGUF name and shape, (rows, cols), (length,) or (experts, rows, cols)."""
        yield "token_embd.weight", (self.vocab_size, self.hidden_size)
        for layer in range(self.num_layers):
            for name, shape in self._layer_shapes():
                yield f"blk.{layer}.{name}", shape
        yield "output_norm.weight", (self.hidden_size,)
        if not self.tied_head:
            yield "output.weight", (self.vocab_size, self.hidden_size)
        if self.has_rope_freqs:
            yield "rope_freqs.weight", (self.head_dim // 2,)

    def _layer_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, q, kv = self.hidden_size, self.q_size, self.kv_size
        yield "attn_norm.weight", (hidden,)
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            yield f"{name}.weight", (rows, hidden)
            if self.attention_bias:
                yield f"{name}.bias", (rows,)
        if self.qk_norm != "none":
            yield "attn_q_norm.weight", (self.head_dim if self.qk_norm == "head" else q,)
            yield "attn_k_norm.weight", (self.head_dim if self.qk_norm == "head" else kv,)
        yield "attn_output.weight", (hidden, q)
        if self.output_bias:
            yield "attn_output.bias", (hidden,)
        yield "ffn_norm.weight", (hidden,)
        yield from self._ffn_shapes()
        if self.sandwich_norms:
            yield "post_attention_norm.weight", (hidden,)
            yield "post_ffw_norm.weight", (hidden,)

    def _ffn_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, experts = self.hidden_size, self.num_experts
        if not experts:
            yield "ffn_gate.weight", (self.intermediate_size, hidden)
            yield "ffn_up.weight", (self.intermediate_size, hidden)
            yield "ffn_down.weight", (hidden, self.intermediate_size)
            return
        yield "ffn_gate_inp.weight", (experts, hidden)
        yield "ffn_gate_exps.weight", (experts, self.expert_size, hidden)
        yield "ffn_up_exps.weight", (experts, self.expert_size, hidden)
        yield "ffn_down_exps.weight", (experts, hidden, self.expert_size)

    @property
    def parameter_count(self) -> int:
        """Number of weights the model learned: every tensor of the recipe but the computed rope_freqs."""
        return sum(prod(shape) for name, shape in self.tensor_shapes() if name != "rope_freqs.weight")


def fill_sources(sources: dict[str, str], default: str) -> None:
    """Give every field that no key was read for the source `default`."""
    for each in fields(ModelConfig):
        if each.name != "sources":
            sources.setdefault(each.name, f"default: {default}")


_SIZES: Final = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "embedding_scale",
    "attention_scale",
)


def validate(config: ModelConfig, where: str) -> None:
    """ConfigError, naming the file `where`, if a size or switch is impossible or two contradict each other."""

    def demand(good: bool, what: str) -> None:
        if not good:
            raise ConfigError(f"{where}: {what}")

    for name in _SIZES:
        value = getattr(config, name)
        demand(0 < value < 2**31 and isfinite(value), f"{name} is {value}, expected a positive number")
    heads, kv_heads = config.num_heads, config.num_kv_heads
    demand(heads % kv_heads == 0, f"num_heads is {heads}, expected a multiple of num_kv_heads, which is {kv_heads}")
    demand(config.head_dim % 2 == 0, f"head_dim is {config.head_dim}, expected an even number: RoPE rotates pairs")
    layers, flags = config.num_layers, config.sliding_layers
    demand(len(flags) == layers, f"sliding_layers has {len(flags)} flags, expected one for each of {layers} layers")
    window = config.sliding_window
    demand(any(flags) == (window > 0), f"sliding_window is {window}, but {sum(flags)} layers slide")
    softcap = config.final_logit_softcapping
    demand(softcap >= 0, f"final_logit_softcapping is {softcap}, expected a positive number, or 0 for none")
    local = config.rope_local_theta
    demand(local is None or local > 0, f"rope_local_theta is {local}, expected a positive number")
    _validate_rope(config.rope, demand)
    experts, used, width = config.num_experts, config.experts_per_token, config.expert_size
    if experts:
        demand(1 <= used <= experts, f"experts_per_token is {used}, expected 1 to {experts}, the number of experts")
        demand(width > 0, f"expert_size is {width}, expected a positive number")


def _validate_rope(rope: RopeConfig, demand: Callable[[bool, str], None]) -> None:
    demand(rope.theta > 0, f"rope theta is {rope.theta}, expected a positive number")
    demand(rope.factor > 0, f"rope factor is {rope.factor}, expected a positive number")
    magnitude = rope.attention_factor
    demand(magnitude is None or magnitude > 0, f"rope attention_factor is {magnitude}, expected a positive number")
    if rope.type in ("llama3", "yarn"):
        original = rope.original_max_position
        demand(original > 0, f"rope original_max_position is {original}, expected a positive number")
    if rope.type == "llama3":
        low, high = rope.low_freq_factor, rope.high_freq_factor
        demand(0 < low < high, f"rope low_freq_factor is {low}, expected between 0 and high_freq_factor, {high}")
    if rope.type == "yarn":
        demand(rope.theta > 1, f"rope theta is {rope.theta}, expected more than 1 for yarn, which divides by its log")
        slow, fast = rope.beta_slow, rope.beta_fast
        demand(0 < slow <= fast, f"rope beta_slow is {slow}, expected between 0 and beta_fast, {fast}")
