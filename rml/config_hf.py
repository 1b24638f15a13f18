"""The model config from a Hugging Face directory: config.json, and the token ids of generation_config.json.

Defaults for missing keys are those of transformers 5.24's config classes, with one exception: a missing number of key
heads means as many as query heads everywhere (transformers has 8, 32 and 4 for some families, which no file means).
"""

import warnings
from dataclasses import dataclass
from math import pow, sqrt
from pathlib import Path
from typing import Final, Literal

from rml.config import MAX_LAYERS, Activation, ModelConfig, QkNorm, fill_sources, validate
from rml.config_keys import Keys
from rml.errors import ConfigError, LoadWarning, Unsupported
from rml.hf_keys import IGNORED, REFUSED
from rml.json_file import member, read_json
from rml.rope_config import rope_from_hf


@dataclass(frozen=True, slots=True)
class _Experts:
    """Defaults of a mixture of experts."""

    count: int
    per_token: int
    width_key: str
    width: int | None  # None: the key is required
    normalize: bool | None  # None: norm_topk_prob says it, and false if it is missing


@dataclass(frozen=True, slots=True)
class _Family:
    """What a model_type decides where its config.json has no key, or a key that transformers ignores."""

    bias: Literal["key", "always", "never"] = "key"  # on q, k, v; `key` puts it on the output projection too
    qk_norm: QkNorm = "none"
    window: Literal["none", "all", "flag", "flag_all", "gemma"] = "none"  # which layers sliding_window is for
    window_size: int | None = 4096
    eps: float = 1e-6
    theta: float = 1e4
    head_dim: int | None = None  # None: hidden / heads
    experts: _Experts | None = None
    bos: int | None = None
    eos: int | None = None
    gemma: bool = False  # GELU, sandwich norms, 1 + w, sqrt(hidden) embeddings, tied head, local RoPE


_FAMILIES: Final = {
    "llama": _Family(bos=1, eos=2),
    "mistral": _Family("never", window="all", bos=1, eos=2),
    "mixtral": _Family(
        "never",
        window="all",
        window_size=None,
        eps=1e-5,
        theta=1e6,
        experts=_Experts(8, 2, "intermediate_size", None, True),
        bos=1,
        eos=2,
    ),
    "qwen2": _Family("always", window="flag"),
    "qwen3": _Family(qk_norm="head", window="flag", head_dim=128),
    "qwen3_moe": _Family(
        qk_norm="head", window="flag_all", experts=_Experts(128, 8, "moe_intermediate_size", 768, None)
    ),
    "gemma3_text": _Family(qk_norm="head", window="gemma", theta=1e6, head_dim=256, bos=2, eos=1, gemma=True),
    "olmoe": _Family(qk_norm="row", eps=1e-5, experts=_Experts(64, 8, "intermediate_size", None, None), eos=50279),
}
_LOCAL_THETA: Final = 1e4  # of Gemma's sliding layers
_ACTIVATIONS: Final[dict[str, Activation]] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def from_hf(directory: Path) -> ModelConfig:
    """Read and validate the config of a model directory.

    InvalidArgument without config.json, ConfigError for a missing, mistyped or impossible value, Unsupported for what
    the recipe cannot express; unknown keys are warned about once.
    """
    path = member(directory, "config.json")
    keys = Keys(str(path), "config.json", read_json(path), {})
    model_type = keys.string("model_type", "model_type")
    if model_type is None:
        keys.fail("model_type", f"one of {', '.join(_FAMILIES)}")
    if model_type not in _FAMILIES:
        hint = "; it holds a text_config: save the text model by itself" if "text_config" in keys.values else ""
        raise Unsupported(f"{path}: model_type {model_type!r} is not supported ({', '.join(_FAMILIES)} are){hint}")
    generation = member(directory, "generation_config.json")
    beside = Keys(str(generation), generation.name, read_json(generation) if generation.exists() else {}, keys.sources)
    config = _read(keys, beside, model_type, _FAMILIES[model_type])
    _check_rest(keys)
    fill_sources(keys.sources, f"family {model_type}")
    validate(config, str(path))
    return config


def _read(keys: Keys, generation: Keys, model_type: str, family: _Family) -> ModelConfig:
    layers = keys.need_integer("num_hidden_layers", "num_layers")
    if layers > MAX_LAYERS:
        keys.fail("num_hidden_layers", f"at most {MAX_LAYERS}")
    hidden = keys.need_integer("hidden_size", "hidden_size")
    heads = keys.need_integer("num_attention_heads", "num_heads")
    vocab = keys.need_integer("vocab_size", "vocab_size")
    context = keys.need_integer("max_position_embeddings", "max_position_embeddings")
    kv_heads = keys.integer("num_key_value_heads", "num_kv_heads")
    if kv_heads is None:
        kv_heads = keys.default("num_kv_heads", heads, "as many as query heads")
    head_dim = _head_dim(keys, family, hidden, heads)
    eps = keys.number("rms_norm_eps", "rms_norm_eps")
    bias = family.bias == "always" or (family.bias == "key" and bool(keys.boolean("attention_bias", "attention_bias")))
    if family.bias == "key" and bias:
        keys.note("output_bias", "attention_bias")
    window, sliding = _sliding(keys, family, layers)
    _check_layer_types(keys, sliding)
    experts, used, expert_size, width = _experts(keys, family)
    rope, local_theta = rope_from_hf(keys, family.theta, context, _LOCAL_THETA if family.gemma else None)
    tied = keys.boolean("tie_word_embeddings", "tied_head")
    return ModelConfig(
        model_type=model_type,
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=family.eps if eps is None else eps,
        max_position_embeddings=context,
        activation=_activation(keys, family),
        attention_bias=bias,
        output_bias=bias and family.bias == "key",
        qk_norm=family.qk_norm,
        sliding_window=window,
        sliding_layers=sliding,
        sandwich_norms=family.gemma,
        embedding_scale=sqrt(hidden) if family.gemma else 1.0,
        attention_scale=_attention_scale(keys, family, head_dim),
        tied_head=family.gemma if tied is None else tied,
        final_logit_softcapping=_softcapping(keys) if family.gemma else 0.0,
        rope=rope,
        rope_local_theta=local_theta if any(sliding) else None,
        num_experts=experts,
        experts_per_token=used,
        expert_size=expert_size,
        normalize_expert_weights=_normalize(keys, family),
        bos_ids=_token_ids(keys, generation, "bos", family.bos, vocab),
        eos_ids=_token_ids(keys, generation, "eos", family.eos, vocab),
        norm_offset=1.0 if family.gemma else 0.0,
        sources=keys.sources,
    )


def _head_dim(keys: Keys, family: _Family, hidden: int, heads: int) -> int:
    head_dim = keys.integer("head_dim", "head_dim")
    if head_dim is not None:
        return head_dim
    if family.head_dim is not None:
        return keys.default("head_dim", family.head_dim, "family")
    if hidden % heads:
        keys.fail("head_dim", f"a head size: hidden_size {hidden} / {heads} heads is not whole")
    return keys.default("head_dim", hidden // heads, "hidden_size / num_attention_heads")


def _activation(keys: Keys, family: _Family) -> Activation:
    """Each family reads its own key, whatever the other one says."""
    key = "hidden_activation" if family.gemma else "hidden_act"
    name = keys.string(key, "activation")
    keys.used |= {"hidden_act", "hidden_activation"}
    if name is None:
        return "gelu_tanh" if family.gemma else "silu"
    if name not in _ACTIVATIONS:
        keys.refuse(key, f"supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _attention_scale(keys: Keys, family: _Family, head_dim: int) -> float:
    if not family.gemma:
        return keys.default("attention_scale", pow(head_dim, -0.5), "1 / sqrt(head_dim)")
    scalar = keys.number("query_pre_attn_scalar", "attention_scale")
    return pow(256 if scalar is None else scalar, -0.5)


def _softcapping(keys: Keys) -> float:
    return keys.number("final_logit_softcapping", "final_logit_softcapping") or 0.0


def _sliding(keys: Keys, family: _Family, layers: int) -> tuple[int, tuple[bool, ...]]:
    """The window and which layers have it; no window is 0, and then no layer slides."""
    none = (False,) * layers
    if family.window == "none":
        keys.used.add("sliding_window")
        return 0, none
    window = keys.integer("sliding_window", "sliding_window")
    if window is None and "sliding_window" not in keys.values:  # an explicit null means that there is none
        window = keys.default("sliding_window", family.window_size, "family")
    if family.window == "all":
        return (window, (True,) * layers) if window else (0, none)
    flags = _gemma_layers(keys, layers) if family.window == "gemma" else _qwen_layers(keys, family, window, layers)
    if not any(flags):
        return 0, none
    if window is None:
        keys.fail("sliding_window", f"a window: {sum(flags)} of {layers} layers slide")
    return window, flags


def _gemma_layers(keys: Keys, layers: int) -> tuple[bool, ...]:
    """layer_types, else every n-th layer is global; n is 6 unless a file says otherwise."""
    flags = _layer_types(keys, layers)
    pattern = keys.integer("sliding_window_pattern")
    saved = keys.integer("_sliding_window_pattern")  # what transformers 4.5x writes next to layer_types
    if flags is not None:
        return flags
    if pattern is not None:
        keys.note("sliding_layers", "sliding_window_pattern")
    elif saved is not None:
        keys.note("sliding_layers", "_sliding_window_pattern")
    period = pattern or saved or 6
    return tuple((layer + 1) % period != 0 for layer in range(layers))


def _qwen_layers(keys: Keys, family: _Family, window: int | None, layers: int) -> tuple[bool, ...]:
    """Off unless use_sliding_window; then layer_types, else all layers from max_window_layers on (Qwen3-MoE: all)."""
    use = keys.boolean("use_sliding_window") or False
    first = keys.integer("max_window_layers", minimum=0)
    flags = _layer_types(keys, layers) if family.window == "flag" else None
    if use and window is not None:
        keys.note("sliding_layers", "use_sliding_window")
        start = 0 if family.window == "flag_all" else 28 if first is None else first
        return flags or tuple(layer >= start for layer in range(layers))
    keys.note("sliding_window", "use_sliding_window")
    if flags is not None and any(flags):
        keys.fail("layer_types", "no sliding_attention, because use_sliding_window is off or the window null")
    return (False,) * layers


def _layer_types(keys: Keys, layers: int) -> tuple[bool, ...] | None:
    """One flag per layer: whether it slides."""
    types = keys.value("layer_types")
    if types is None:
        return None
    words = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != layers or not all(each in words for each in types):
        keys.fail("layer_types", f"{layers} of {' or '.join(words)}")
    keys.note("sliding_layers", "layer_types")
    return tuple(each == "sliding_attention" for each in types)


def _check_layer_types(keys: Keys, flags: tuple[bool, ...]) -> None:
    """Families that do not read layer_types must at least not be contradicted by it."""
    if "layer_types" in keys.used:
        return
    types = _layer_types(keys, len(flags))
    if types is not None and types != flags:
        keys.refuse("layer_types", f"this family's layers are {'all' if all(flags) else 'not'} sliding")


def _experts(keys: Keys, family: _Family) -> tuple[int, int, int, int]:
    """Expert count, experts per token, expert width, dense width; the first three are 0 in a dense model."""
    if family.experts is None:
        return 0, 0, 0, keys.need_integer("intermediate_size", "intermediate_size")
    defaults = family.experts
    local, count = keys.integer("num_local_experts", "num_experts"), keys.integer("num_experts", "num_experts")
    if local is not None and count is not None and local != count:
        raise ConfigError(f"{keys.where}: 'num_experts' is {count}, but 'num_local_experts' is {local}; remove one")
    used = keys.integer("num_experts_per_tok", "experts_per_token")
    width = keys.integer(defaults.width_key, "expert_size") or defaults.width
    if width is None:
        keys.fail(defaults.width_key, "an integer")
    dense = keys.integer("intermediate_size", "intermediate_size") or width
    if keys.integer("decoder_sparse_step", minimum=0) not in (None, 1):
        keys.refuse("decoder_sparse_step", "dense layers among MoE layers are not supported")
    if keys.value("mlp_only_layers"):
        keys.refuse("mlp_only_layers", "dense layers among MoE layers are not supported")
    return local or count or defaults.count, used or defaults.per_token, width, dense


def _normalize(keys: Keys, family: _Family) -> bool:
    if family.experts is None:
        return False
    value = keys.boolean("norm_topk_prob", "normalize_expert_weights")
    if family.experts.normalize is None:
        return value or False
    if value not in (None, family.experts.normalize):
        keys.refuse("norm_topk_prob", "this family always divides the chosen experts' weights by their sum")
    return family.experts.normalize


def _token_ids(keys: Keys, generation: Keys, role: str, default: int | None, vocab: int) -> frozenset[int]:
    """generation_config.json's ids win over config.json's; a family's default counts only inside the vocabulary."""
    key, field = f"{role}_token_id", f"{role}_ids"
    own = keys.ids(key, field)
    beside = generation.ids(key, field)
    if beside is not None:
        return beside
    if own is not None:
        return own
    missing = key not in keys.values and default is not None and default < vocab
    return frozenset({default}) if missing and default is not None else frozenset()


def _check_rest(keys: Keys) -> None:
    """Keys that nobody has read: refused if they change the maths, else warned about once."""
    unknown = []
    for key, value in keys.values.items():
        if value is None or key in keys.used or key in IGNORED:
            continue
        if key not in REFUSED:
            unknown.append(key)
        elif value not in REFUSED[key]:
            keys.refuse(key, "the recipe of this engine has no such switch")
    if unknown:
        warnings.warn(f"{keys.where}: unknown keys are ignored: {', '.join(unknown)}", LoadWarning, stacklevel=4)
