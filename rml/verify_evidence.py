"""What two model files say about a step at which their runs part: the config values and tensors that go into it.

Tensors are compared as the engine uses them: rows of q and k in Hugging Face's order, norms with their 1 added,
whatever the files.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from rml.config import ModelConfig
from rml.decoder import DecoderLM
from rml.verify_taps import Floats, deinterleave
from rml.weight_source import Matrix

ROWS: Final = 4096  # of a matrix that are compared
SAME: Final = 1e-9  # relative difference of what is equal but for the last digits
FORMAT: Final = ("sources", "model_type", "rope_interleaved", "norm_offset", "bos_ids", "eos_ids", "has_rope_freqs")
"""Fields of the config that describe the file and not the model."""

TENSORS: Final[dict[str, tuple[str, ...]]] = {
    "embed": ("token_embd.weight",),
    "attn_norm": ("attn_norm.weight",),
    "q": ("attn_q.weight", "attn_q.bias"),
    "k": ("attn_k.weight", "attn_k.bias"),
    "v": ("attn_v.weight", "attn_v.bias"),
    "q_rope": ("attn_q_norm.weight",),
    "k_rope": ("attn_k_norm.weight",),
    "o_proj": ("attn_output.weight", "attn_output.bias"),
    "residual": ("post_attention_norm.weight",),
    "ffn_norm": ("ffn_norm.weight",),
    "router_probs": ("ffn_gate_inp.weight",),
    "ffn_out": (
        *("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
        *("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"),
    ),
    "output": ("post_ffw_norm.weight",),
    "final_norm": ("output_norm.weight",),
    "logits": ("output.weight",),
}


def widen(matrix: Matrix, rows: int = ROWS) -> Floats:
    """The first rows of a matrix as float64."""
    rows = min(rows, matrix.rows)
    data = matrix.data.reshape(matrix.rows, -1)[:rows]
    if matrix.format.name == "F32":
        return np.ascontiguousarray(data).view("<f4").astype(np.float64)
    if matrix.format.name == "F16":
        return np.ascontiguousarray(data).view("<f2").astype(np.float64)
    if matrix.format.name == "BF16":
        return (np.ascontiguousarray(data).view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return np.asarray(dequantize(data, GGMLQuantizationType(matrix.format.id)), np.float64)


def tensors_of(model: DecoderLM, name: str) -> dict[str, Floats]:
    """The tensors that go into activation `name`, by what they are called in sentences; experts one by one."""
    prefix, _, kind = name.rpartition(".")
    config, found = model.config, dict[str, Floats]()
    shapes = dict(config.tensor_shapes()) | {"output.weight": (config.vocab_size, config.hidden_size)}
    for part in TENSORS.get(kind, ()):
        full = f"{prefix}.{part}" if prefix else part
        shape = shapes.get(full)
        if shape is None:
            continue
        if len(shape) == 3:
            experts = model.weights.experts(full, *shape)
            found |= {f"{full}[{e}]": widen(experts[e]) for e in range(len(experts))}
        elif len(shape) == 2:
            found[full] = widen(model.weights.matrix(full, *shape))
        else:
            found[full] = model.weights.vector(full, *shape)
        if kind in ("q", "k") and config.rope_interleaved:
            rows = found[full] if found[full].ndim == 2 else found[full][:, None]
            found[full] = deinterleave(np.ascontiguousarray(rows.T), config.head_dim).T.reshape(found[full].shape)
    return found


def norm_weight(model: DecoderLM, name: str) -> Floats | None:
    """The weight of the norm whose output activation `name` is; None for other activations."""
    if name.rpartition(".")[2] not in ("attn_norm", "ffn_norm", "final_norm"):
        return None
    return next(iter(tensors_of(model, name).values()))


def config_differences(a: ModelConfig, b: ModelConfig) -> list[str]:
    """Values that differ, with where they came from."""
    lines = []
    for name, left, right in _fields(a, b):
        if left != right and not _close(left, right):
            origins = [c.sources.get(name) or c.sources.get(name.partition(".")[0], "") for c in (a, b)]
            lines.append(f"{name} is {_value(left)} in A ({origins[0]}) and {_value(right)} in B ({origins[1]})")
    return lines


def _fields(a: ModelConfig, b: ModelConfig) -> list[tuple[str, Any, Any]]:
    out = []
    for field in dataclasses.fields(a):
        if field.name in FORMAT:
            continue
        left, right = getattr(a, field.name), getattr(b, field.name)
        if dataclasses.is_dataclass(left):
            out += [
                (f"{field.name}.{f.name}", getattr(left, f.name), getattr(right, f.name))
                for f in dataclasses.fields(left)
            ]
        else:
            out.append((field.name, left, right))
    return out


def _close(a: Any, b: Any) -> bool:
    """Whether two numbers are the same but for a float32 in one of the files."""
    return isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(i) for i, flag in enumerate(value) if flag) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def tensor_differences(a: dict[str, Floats], b: dict[str, Floats]) -> list[str]:
    """How the step's tensors differ: exchanged, a factor, an offset, or by how much."""
    lines = []
    for name in a:
        if name not in b:
            lines.append(f"{name} is only in A")
        elif a[name].shape != b[name].shape:
            lines.append(f"{name} is {a[name].shape} in A and {b[name].shape} in B")
        elif not (np.isfinite(a[name]).all() and np.isfinite(b[name]).all()):
            lines += [_not_finite(name, side, values[name]) for side, values in (("A", a), ("B", b))]
        elif _relative(a[name], b[name]) > SAME:
            lines.append(_difference(name, a, b))
    return [line for line in lines if line] + [f"{name} is only in B" for name in b if name not in a]


def _not_finite(name: str, side: str, values: Floats) -> str:
    bad = int(np.count_nonzero(~np.isfinite(values)))
    many = f"{bad} values of {side} are" if bad > 1 else f"1 value of {side} is"
    return f"{name}: {many} not finite" if bad else ""


def _difference(name: str, a: dict[str, Floats], b: dict[str, Floats]) -> str:
    left, right = a[name], b[name]
    before = _relative(left, right)
    for other, values in a.items():
        if other != name and values.shape == right.shape and _relative(values, right) < min(SAME, before):
            return f"{name} of B is {other} of A"
    if not np.any(right):
        return f"{name} is all 0 in B"
    size = float((left**2).sum())
    factor = float((left * right).sum()) / size if size else 0.0
    if _relative(factor * left, right) < 1e-3 * before:
        return f"{name} of B is {factor:.6g} times A's"
    offset = float((right - left).mean())
    if _relative(left + offset, right) < 1e-3 * before:
        return f"{name} of B is A's {'+' if offset > 0 else '-'} {abs(offset):.6g}"
    rows = np.flatnonzero((left != right).any(axis=-1)) if left.ndim == 2 else np.flatnonzero(left != right)
    some = f", in {len(rows)} of {len(left)} rows" if len(rows) < len(left) else ""
    return f"{name} differs by {before:.2g} (relative{some})"


def _relative(a: Floats, b: Floats) -> float:
    size = float(np.linalg.norm(a))
    return float(np.linalg.norm(a - b)) / size if size else float(np.any(b))


def evidence(a: DecoderLM, b: DecoderLM, name: str) -> list[str]:
    """Sentences on the config and on the tensors of the step that gives activation `name`."""
    config = config_differences(a.config, b.config)
    tensors = tensor_differences(tensors_of(a, name), tensors_of(b, name))
    if not config and not tensors:
        return ["config and tensors of this step are the same in both files"]
    return config + tensors


def ffn_variant(model: DecoderLM, name: str, x: Floats, y: Floats, other: Floats) -> list[str]:
    """Which misreading of this model's dense FFN gives the `other` side's values, where there is no second file to ask.

    x (n, H): the FFN's input. y, other (n, H): what comes out here and there. Weights above 128 MB are not tried.
    """
    tensors = tensors_of(model, name) if model.config.intermediate_size * model.config.hidden_size <= 1 << 24 else {}
    parts = [value for key, value in tensors.items() if key.endswith(".weight")]
    if name.rpartition(".")[2] != "ffn_out" or len(parts) != 3 or model.config.intermediate_size > ROWS:
        return []
    gate, up, down = parts
    own, foreign = (silu, gelu) if model.config.activation == "silu" else (gelu, silu)
    g, u = x @ gate.T, x @ up.T
    variants = {
        "gate and up exchanged": own(u) * g,
        f"the activation {'GELU' if foreign is gelu else 'SiLU'}": foreign(g) * u,
        "no activation": g * u,
    }
    limit = 0.1 * float(np.linalg.norm(y - other))
    return [
        f"the other side's values are those of this model with {what}"
        for what, inner in variants.items()
        if float(np.linalg.norm(inner @ down.T - other)) <= limit
    ]


def silu(x: Floats) -> Floats:
    """x / (1 + exp(-x))."""
    return np.asarray(x / (1.0 + np.exp(-np.clip(x, -700, None))))


def gelu(x: Floats) -> Floats:
    """GELU in its tanh form."""
    return np.asarray(0.5 * x * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * (x + 0.044715 * x**3))))
