"""The one table of tensor names: what each GGUF name is called in a Hugging Face checkpoint, and what is refused.

Inside the engine every tensor has its GGUF name. Foreign names are those that transformers writes (5.24, and what it
renamed from); `model.` in front is optional, since a base model is saved without. `blk.3.X` is `model.layers.3.Y`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rml.config import ModelConfig
from rml.errors import Unsupported

_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

_LAYER: Final[dict[str, tuple[str, ...]]] = {
    "attn_norm.weight": ("input_layernorm.weight",),
    "attn_q.weight": ("self_attn.q_proj.weight",),
    "attn_k.weight": ("self_attn.k_proj.weight",),
    "attn_v.weight": ("self_attn.v_proj.weight",),
    "attn_output.weight": ("self_attn.o_proj.weight",),
    "attn_q.bias": ("self_attn.q_proj.bias",),
    "attn_k.bias": ("self_attn.k_proj.bias",),
    "attn_v.bias": ("self_attn.v_proj.bias",),
    "attn_output.bias": ("self_attn.o_proj.bias",),
    "attn_q_norm.weight": ("self_attn.q_norm.weight",),
    "attn_k_norm.weight": ("self_attn.k_norm.weight",),
    "ffn_norm.weight": ("post_attention_layernorm.weight",),
    "ffn_gate.weight": ("mlp.gate_proj.weight",),
    "ffn_up.weight": ("mlp.up_proj.weight",),
    "ffn_down.weight": ("mlp.down_proj.weight",),
    "ffn_gate_inp.weight": (
        "block_sparse_moe.gate.weight",
        "mlp.gate.weight",
    ),  # Mixtral; Qwen3-MoE, OLMoE, fused Mixtral
}

# Gemma gives the name post_attention_layernorm, elsewhere the norm before the FFN, to the norm after attention.
_SANDWICH: Final[dict[str, tuple[str, ...]]] = {
    "ffn_norm.weight": ("pre_feedforward_layernorm.weight",),
    "post_attention_norm.weight": ("post_attention_layernorm.weight",),
    "post_ffw_norm.weight": ("post_feedforward_layernorm.weight",),
}

# Experts one by one: Mixtral's names, then Qwen3-MoE's and OLMoE's; {} is the expert.
_EXPERT: Final[dict[str, tuple[str, ...]]] = {
    "ffn_gate_exps.weight": ("block_sparse_moe.experts.{}.w1.weight", "mlp.experts.{}.gate_proj.weight"),
    "ffn_up_exps.weight": ("block_sparse_moe.experts.{}.w3.weight", "mlp.experts.{}.up_proj.weight"),
    "ffn_down_exps.weight": ("block_sparse_moe.experts.{}.w2.weight", "mlp.experts.{}.down_proj.weight"),
}

# Experts fused by transformers 5 (save_original_format=False), gate rows before up rows: name, part, number of parts.
_FUSED_EXPERTS: Final = {
    "ffn_gate_exps.weight": ("mlp.experts.gate_up_proj", 0, 2),
    "ffn_up_exps.weight": ("mlp.experts.gate_up_proj", 1, 2),
    "ffn_down_exps.weight": ("mlp.experts.down_proj", 0, 1),
}

_QKV: Final = ("attn_q", "attn_k", "attn_v")  # the order of the rows in a GGUF's fused attn_qkv

# Tensors that are there by habit and change nothing: RoPE frequencies that every reader computes for itself.
_ALLOWED: Final = re.compile(r".*\.rotary_emb\.inv_freq|blk\.\d+\.attn_rot_embd(\.weight)?")

# Tensors of layouts that are known and not read, each with what to do about it.
_REFUSED: Final = (
    (r"blk\.\d+\.ffn_gate_up_exps\..*", "gate and up of the experts in one tensor; convert with separate tensors"),
    (r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.weight", "experts one by one, as in GGUF files of early 2024; convert again"),
    (r"rope_factors_(long|short)\.weight", "longrope is not supported"),
    (r".*\.(qweight|qzeros|weight_scale|weight_scale_inv|absmax)", "quantised in a way other than GGUF's"),
    (r".*\.lora_[AB]\..*", "a LoRA adapter; merge it into the model first"),
    (
        r"(model\.)?(language_model|vision_tower|multi_modal_projector)\..*",
        "a multimodal checkpoint; save its text model",
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor may lie: rows [first, first + its rows) of the `total` rows of the tensor called `name`."""

    name: str
    first: int
    total: int


def gguf_places(name: str, rows: int, config: ModelConfig) -> list[Place]:
    """Places of a tensor in a GGUF file, the likeliest first: its own, or in the converter's fused attn_qkv."""
    places = [Place(name, 0, rows)]
    head, _, suffix = name.rpartition(".")
    prefix, _, role = head.rpartition(".")
    if role in _QKV:
        first = (0, config.q_size, config.q_size + config.kv_size)[_QKV.index(role)]
        places.append(Place(f"{prefix}.attn_qkv.{suffix}", first, config.q_size + 2 * config.kv_size))
    return places


def hf_places(name: str, rows: int, config: ModelConfig) -> list[Place]:
    """Places of a tensor in a Hugging Face checkpoint, the likeliest first; of a fused one for stacked experts."""
    if name in _TOP:
        return [Place(each, 0, rows) for each in _spellings(_TOP[name])]
    _, layer, suffix = name.split(".", 2)
    if suffix in _FUSED_EXPERTS:
        fused, part, parts = _FUSED_EXPERTS[suffix]
        return [Place(each, part * rows, parts * rows) for each in _spellings(f"model.layers.{layer}.{fused}")]
    table = _SANDWICH if config.sandwich_norms and suffix in _SANDWICH else _LAYER
    names = [f"model.layers.{layer}.{each}" for each in table.get(suffix, ())]
    return [Place(spelling, 0, rows) for each in names for spelling in _spellings(each)]


def hf_expert_names(name: str, expert: int) -> list[str]:
    """Names of one expert's part of a stacked GGUF tensor, where the checkpoint has one tensor per expert."""
    _, layer, suffix = name.split(".", 2)
    names = [f"model.layers.{layer}.{each.format(expert)}" for each in _EXPERT[suffix]]
    return [spelling for each in names for spelling in _spellings(each)]


def _spellings(name: str) -> list[str]:
    """With and without the prefix `model.`, which a base model's checkpoint does not have."""
    bare = name.removeprefix("model.")
    return [name] if bare == name else [name, bare]


def is_allowed(name: str) -> bool:
    """Whether a tensor that nobody asks for may stay in the file."""
    return _ALLOWED.fullmatch(name) is not None


def is_norm(name: str) -> bool:
    """Whether this GGUF name is an RMSNorm's weight."""
    return name.endswith("norm.weight")


def refuse_known(path: str, names: Iterable[str]) -> None:
    """Unsupported if one of the names belongs to a layout that is known and not read."""
    for name in names:
        for pattern, why in _REFUSED:
            if re.fullmatch(pattern, name):
                raise Unsupported(f"{path}: tensor {name!r}: {why}")
