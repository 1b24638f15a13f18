"""The model config from GGUF metadata and, for the switches that have no key, from the tensor table.

Keys and defaults are those that llama.cpp reads (src/llama-model.cpp, per architecture). Beyond it, keys that llama.cpp
writes or defines but does not read for these architectures are followed where they are present, so that a file can say
what its Hugging Face original said: `rope.scaling.yarn_*`, `expert_weights_norm`, `attention.scale` of gemma3 and
`attention.sliding_window` of llama (Mistral 7B v0.1).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pow, sqrt
from typing import Final

from rml.config import MAX_LAYERS, ModelConfig, QkNorm, RopeConfig, fill_sources, validate
from rml.config_keys import Keys, describe
from rml.errors import BadFile, ConfigError, LoadWarning, Unsupported

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Architecture:
    """What llama.cpp decides by general.architecture and not by a key."""

    model_type: str
    qk_norm: QkNorm = "none"
    interleaved: bool = False  # the converter permutes q and k rows so that RoPE's pairs are neighbours
    gemma: bool = False  # GELU, sandwich norms, sqrt(hidden) embeddings, local layers with their own RoPE base
    normalize_experts: bool = True


_ARCHITECTURES: Final = {
    "llama": _Architecture("llama", interleaved=True),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3", "head"),
    "qwen3moe": _Architecture("qwen3_moe", "head"),
    "gemma3": _Architecture("gemma3_text", "head", gemma=True),
    "olmoe": _Architecture("olmoe", "row", normalize_experts=False),
}

# Keys that change the maths in a way that the recipe does not have, and the values with which they change nothing.
_REFUSED: Final[dict[str, tuple[object, ...]]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": (1.0,),
    "attention.scale": (),
    "attention.temperature_length": (0,),
    "attention.temperature_scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (1.0,),
    "expert_gating_func": (0, 1),  # 1 = softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_shared_feed_forward_length": (0,),
    "expert_weights_scale": (0.0, 1.0),
    "final_logit_softcapping": (0.0,),
    "interleave_moe_layer_step": (0, 1),
    "leading_dense_block_count": (0,),
    "logit_scale": (0.0, 1.0),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    "residual_scale": (1.0,),
    "rope.dimension_sections": (),
    "rope.freq_base_swa": (),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "use_parallel_residual": (False,),
}
_IGNORED: Final = {"rope.scaling.finetuned", "tensor_data_layout"}


class _ArchKeys(Keys):
    """Keys of one architecture, read without their prefix; an array of equal values counts as that value."""

    def __init__(self, where: str, metadata: Mapping[str, object], architecture: str) -> None:
        super().__init__(where, "metadata", metadata, {})
        self.prefix = f"{architecture}."

    def size(self, key: str, field: str, *, minimum: int = 1, scalar: bool = False) -> int | None:
        """A size, or one per layer, all equal. Unsupported if they differ."""
        key = self.prefix + key
        value = self.value(key)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return self.integer(key, field, minimum=minimum)
        values = [] if scalar else list(value)
        if not values or not all(type(each) is int for each in values):
            self.fail(key, "an integer" if scalar else "an integer or an array of integers")
        if len(set(values)) > 1:
            self.refuse(key, f"layers of different sizes ({describe(values)}) are not supported")
        self.note(field, key)
        if not minimum <= values[0] < 2**31:
            self.fail(key, f"integers from {minimum}")
        return int(values[0])

    def need_size(self, key: str, field: str, *, scalar: bool = False) -> int:
        value = self.size(key, field, scalar=scalar)
        return self.fail(self.prefix + key, "an integer") if value is None else value

    def float_or(self, key: str, field: str, default: float, why: str, *, positive: bool = True) -> float:
        value = self.number(self.prefix + key, field, positive=positive)
        return self.default(field, default, why) if value is None else value


def from_gguf(path: str, metadata: Mapping[str, object], shapes: Shapes) -> ModelConfig:
    """Read and validate the config of a GGUF file.

    path: for messages. metadata: key -> int, float, bool, str or a sequence of them. shapes: the tensor table,
    row-major. ConfigError for a missing, mistyped or impossible value, Unsupported for what the recipe cannot express.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ConfigError(f"{path}: key 'general.architecture' should be a string, found {describe(architecture)}")
    if metadata.get("general.type", "model") != "model":
        raise Unsupported(f"{path}: key 'general.type' is {describe(metadata['general.type'])}, not a model")
    if architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise Unsupported(f"{path}: architecture {architecture!r} is not supported (supported: {known})")
    keys = _ArchKeys(path, metadata, architecture)
    config = _read(keys, _ARCHITECTURES[architecture], shapes)
    _check_rest(keys)
    fill_sources(keys.sources, f"architecture {architecture}")
    validate(config, path)
    return config


def _read(keys: _ArchKeys, arch: _Architecture, shapes: Shapes) -> ModelConfig:
    sources = keys.sources
    layers = keys.need_size("block_count", "num_layers", scalar=True)
    if layers > MAX_LAYERS:
        keys.fail(f"{keys.prefix}block_count", f"at most {MAX_LAYERS}")
    hidden = keys.need_size("embedding_length", "hidden_size", scalar=True)
    heads = keys.need_size("attention.head_count", "num_heads")
    kv_heads = keys.size("attention.head_count_kv", "num_kv_heads")
    if kv_heads is None:
        kv_heads = keys.default("num_kv_heads", heads, "as many as query heads")
    head_dim = _head_dim(keys, hidden, heads)
    context = keys.need_size("context_length", "max_position_embeddings", scalar=True)
    eps = keys.number(f"{keys.prefix}attention.layer_norm_rms_epsilon", "rms_norm_eps")
    if eps is None:
        keys.fail(f"{keys.prefix}attention.layer_norm_rms_epsilon", "a positive number")
    experts, used, expert_size, width = _experts(keys, arch)
    window, sliding = _sliding(keys, arch, layers)
    for field, name in (("attention_bias", "attn_q.bias"), ("output_bias", "attn_output.bias")):
        sources[field] = f"tensor table: {'has' if _has(shapes, name) else 'no'} blk.0.{name}"
    tied = "output.weight" not in shapes
    sources["tied_head"] = f"tensor table: {'no' if tied else 'has'} output.weight"
    rope_freqs = arch.model_type == "llama" and "rope_freqs.weight" in shapes  # elsewhere nobody will ask for it
    sources["has_rope_freqs"] = f"tensor table: {'has' if rope_freqs else 'no'} rope_freqs.weight"
    return ModelConfig(
        model_type="mixtral" if arch.model_type == "llama" and experts else arch.model_type,
        vocab_size=_vocab_size(keys, shapes),
        hidden_size=hidden,
        intermediate_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=eps,
        max_position_embeddings=context,
        activation="gelu_tanh" if arch.gemma else "silu",
        attention_bias=_has(shapes, "attn_q.bias"),
        output_bias=_has(shapes, "attn_output.bias"),
        qk_norm=_qk_norm(keys, arch, shapes, head_dim),
        sliding_window=window,
        sliding_layers=sliding,
        sandwich_norms=arch.gemma,
        embedding_scale=sqrt(hidden) if arch.gemma else 1.0,
        attention_scale=_attention_scale(keys, arch, layers, hidden // heads, head_dim),
        tied_head=tied,
        final_logit_softcapping=_softcapping(keys, arch),
        rope=_rope(keys, context, local=arch.gemma),
        rope_local_theta=_local_theta(keys, arch, any(sliding)),
        rope_interleaved=arch.interleaved,
        has_rope_freqs=rope_freqs,
        num_experts=experts,
        experts_per_token=used,
        expert_size=expert_size,
        normalize_expert_weights=bool(experts) and _normalize(keys, arch),
        bos_ids=_token_ids(keys, "bos_ids", "bos"),
        eos_ids=_token_ids(keys, "eos_ids", "eos", "eot", "eom"),
        sources=sources,
    )


def _has(shapes: Shapes, name: str) -> bool:
    """Whether the first layer has this tensor, by itself or in a fused attn_qkv (the converter's --fuse-qkv)."""
    fused = name.replace("attn_q.", "attn_qkv.")
    return f"blk.0.{name}" in shapes or f"blk.0.{fused}" in shapes


def _head_dim(keys: _ArchKeys, hidden: int, heads: int) -> int:
    head_dim = keys.size("attention.key_length", "head_dim")
    if head_dim is None:
        if hidden % heads:
            keys.fail(f"{keys.prefix}attention.key_length", f"a head size: {hidden} / {heads} heads is not whole")
        head_dim = keys.default("head_dim", hidden // heads, "embedding_length / head_count")
    for key in ("attention.value_length", "attention.key_length_swa", "attention.value_length_swa"):
        if keys.size(key, "") not in (None, head_dim):
            keys.refuse(keys.prefix + key, f"it differs from the key length {head_dim}")
    for key in ("rope.dimension_count", "rope.dimension_count_swa"):
        if keys.size(key, "") not in (None, head_dim):
            keys.refuse(keys.prefix + key, f"partial rotary embeddings are not supported, the head size is {head_dim}")
    return head_dim


def _vocab_size(keys: _ArchKeys, shapes: Shapes) -> int:
    """The key, else the embedding's rows; the tokenizer must not have tokens that the embedding lacks."""
    size = keys.integer(f"{keys.prefix}vocab_size", "vocab_size")
    tokens = keys.value("tokenizer.ggml.tokens")
    embedding = shapes.get("token_embd.weight")
    if size is None and embedding is not None:
        keys.sources["vocab_size"] = "tensor table: rows of token_embd.weight"
        size = embedding[0]
    if size is None:
        raise BadFile(f"{keys.where}: has neither a key '{keys.prefix}vocab_size' nor a tensor 'token_embd.weight'")
    if isinstance(tokens, Sequence) and len(tokens) > size:
        raise ConfigError(
            f"{keys.where}: key 'tokenizer.ggml.tokens' has {len(tokens)} tokens, more than the vocabulary's {size}"
        )
    return size


def _experts(keys: _ArchKeys, arch: _Architecture) -> tuple[int, int, int, int]:
    """Expert count, experts per token, expert width, dense width; the first three are 0 in a dense model."""
    experts = keys.size("expert_count", "num_experts", minimum=0) or 0
    used = keys.size("expert_used_count", "experts_per_token", minimum=0) or 0
    expert_size = keys.size("expert_feed_forward_length", "expert_size", minimum=0) or 0
    width = keys.size("feed_forward_length", "intermediate_size", minimum=1 if not expert_size else 0)
    if width is None and not expert_size:
        keys.fail(f"{keys.prefix}feed_forward_length", "an integer")
    if not experts:
        return 0, 0, 0, width or 0
    if not used:
        keys.fail(f"{keys.prefix}expert_used_count", f"an integer from 1 to {experts}")
    if not expert_size:
        per_expert = arch.model_type == "qwen3_moe"  # there feed_forward_length is the width of a dense layer
        why = "feed_forward_length / expert_used_count" if per_expert else "feed_forward_length"
        expert_size = keys.default("expert_size", (width or 0) // (used if per_expert else 1), why)
    return experts, used, expert_size, width or expert_size


def _normalize(keys: _ArchKeys, arch: _Architecture) -> bool:
    value = keys.boolean(f"{keys.prefix}expert_weights_norm", "normalize_expert_weights")
    if value is not None:
        return value
    return keys.default("normalize_expert_weights", arch.normalize_experts, f"architecture {keys.prefix[:-1]}")


def _sliding(keys: _ArchKeys, arch: _Architecture, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The window and which layers have it; no window: no layer slides, and all use the global RoPE."""
    window = keys.size("attention.sliding_window", "sliding_window", minimum=0) or 0
    key = f"{keys.prefix}attention.sliding_window_pattern"
    pattern = keys.value(key)
    if not window:
        return 0, (False,) * layers
    if pattern is None:
        pattern = keys.default("sliding_layers", 6 if arch.gemma else 0, f"architecture {keys.prefix[:-1]}")
    else:
        keys.note("sliding_layers", key)
    if type(pattern) is int and 0 <= pattern < 2**31:  # every pattern-th layer is global; 0: none is
        flags = tuple(pattern == 0 or layer % pattern < pattern - 1 for layer in range(layers))
    elif isinstance(pattern, Sequence) and len(pattern) == layers and all(type(flag) is bool for flag in pattern):
        flags = tuple(pattern)
    else:
        keys.fail(key, f"a period or {layers} booleans")
    return (window if any(flags) else 0), flags


def _qk_norm(keys: _ArchKeys, arch: _Architecture, shapes: Shapes, head_dim: int) -> QkNorm:
    """By the tensor: one weight for all heads, or one for the whole row. By the architecture if they are the same."""
    shape = shapes.get("blk.0.attn_q_norm.weight")
    if shape is None or (arch.qk_norm != "none" and shape == (head_dim,)):
        return keys.default("qk_norm", arch.qk_norm, f"architecture {keys.prefix[:-1]}")
    keys.sources["qk_norm"] = f"tensor table: blk.0.attn_q_norm.weight is {list(shape)}"
    return "head" if shape == (head_dim,) else "row"


def _attention_scale(keys: _ArchKeys, arch: _Architecture, layers: int, hidden_per_head: int, head_dim: int) -> float:
    """1 / sqrt(head_dim), but Gemma 3 27B, known by its 62 layers, scales by hidden / heads."""
    if not arch.gemma:
        return keys.default("attention_scale", pow(head_dim, -0.5), "1 / sqrt(head_dim)")
    explicit = keys.number(f"{keys.prefix}attention.scale", "attention_scale")
    if explicit is not None:
        return explicit
    if layers == 62:
        return keys.default("attention_scale", pow(hidden_per_head, -0.5), "1 / sqrt(hidden / heads), for 62 layers")
    return keys.default("attention_scale", pow(head_dim, -0.5), "1 / sqrt(head_dim)")


def _softcapping(keys: _ArchKeys, arch: _Architecture) -> float:
    if not arch.gemma:
        return 0.0
    return keys.float_or("final_logit_softcapping", "final_logit_softcapping", 0.0, "off", positive=False)


def _local_theta(keys: _ArchKeys, arch: _Architecture, any_sliding: bool) -> float | None:
    if not arch.gemma:
        return None
    theta = keys.float_or("rope.freq_base_swa", "rope_local_theta", 10000.0, "architecture gemma3")
    return theta if any_sliding else None


def _rope(keys: _ArchKeys, context: int, *, local: bool) -> RopeConfig:
    """RoPE as llama.cpp reads it: a factor without a type is linear scaling; a factor of 0 is none."""
    theta = keys.float_or("rope.freq_base", "rope.theta", 10000.0, "every architecture")
    kind = keys.string(f"{keys.prefix}rope.scaling.type", "rope.type")
    factor = keys.number(f"{keys.prefix}rope.scaling.factor", "rope.factor", positive=False)
    if factor is None:
        factor = keys.float_or("rope.scale_linear", "rope.factor", 1.0, "no scaling", positive=False)
    original = keys.size("rope.scaling.original_context_length", "rope.original_max_position", scalar=True)
    magnitude = keys.float_or("rope.scaling.attn_factor", "rope.attention_factor", 1.0, "by the type's formula")
    if kind not in (None, "none", "linear", "yarn"):
        keys.refuse(f"{keys.prefix}rope.scaling.type", "supported are none, linear and yarn")
    if magnitude != 1.0 and local:
        keys.refuse(f"{keys.prefix}rope.scaling.attn_factor", "local layers would need it too")
    factor = factor or 1.0
    attention_factor = magnitude if magnitude != 1.0 else None
    if kind == "yarn":
        return _yarn(keys, theta, factor, original or context, magnitude)
    if kind == "none" or factor == 1.0:
        return RopeConfig(theta, attention_factor=attention_factor)
    if kind is None:
        keys.default("rope.type", "linear", "a factor without a type")
    return RopeConfig(theta, "linear", factor, attention_factor=attention_factor)


def _yarn(keys: _ArchKeys, theta: float, factor: float, original: int, magnitude: float) -> RopeConfig:
    """YaRN. The converter stores transformers' attention_factor, which replaces the formula's, as yarn_attn_factor."""
    explicit = keys.number(f"{keys.prefix}rope.scaling.yarn_attn_factor", "rope.attention_factor")
    if magnitude != 1.0:
        formula = 1.0 + 0.1 * log(factor) if factor > 1.0 else 1.0
        explicit = (explicit or formula) * magnitude
    return RopeConfig(
        theta,
        "yarn",
        factor,
        original_max_position=original,
        attention_factor=explicit,
        beta_fast=keys.float_or("rope.scaling.yarn_beta_fast", "rope.beta_fast", 32.0, "yarn"),
        beta_slow=keys.float_or("rope.scaling.yarn_beta_slow", "rope.beta_slow", 1.0, "yarn"),
    )


def _token_ids(keys: _ArchKeys, field: str, *roles: str) -> frozenset[int]:
    found = {}
    for role in roles:
        key = f"tokenizer.ggml.{role}_token_id"
        value = keys.integer(key, minimum=0)
        if value is not None:
            found[key] = value
    keys.sources[field] = f"metadata: {', '.join(found)}" if found else "default: none"
    return frozenset(found.values())


def _check_rest(keys: _ArchKeys) -> None:
    """Keys of the architecture that nobody has read: refused if they change the maths, else warned about once."""
    unknown = []
    for key, value in keys.values.items():
        suffix = key.removeprefix(keys.prefix)
        if suffix == key or key in keys.used or suffix in _IGNORED:
            continue
        if suffix not in _REFUSED:
            unknown.append(key)
        elif value not in _REFUSED[suffix]:
            keys.refuse(key, "the recipe of this engine has no such switch")
    if unknown:
        warnings.warn(f"{keys.where}: unknown keys are ignored: {', '.join(unknown)}", LoadWarning, stacklevel=4)
