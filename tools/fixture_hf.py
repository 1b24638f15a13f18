"""Writes a toy as a Hugging Face directory: config.json, generation_config.json and bfloat16 safetensors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import TensorSpec, serialize_file

from tools.fixture_toys import Toy
from tools.fixture_weights import Tensors


def bfloat16(value: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
    """The upper halves of the float32 bits; refuses a value that does not fit exactly."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
    upper = (bits >> 16).astype(np.uint16)
    if not np.array_equal((upper.astype(np.uint32) << 16).view(np.float32).astype(np.float64), value):
        raise ValueError("a weight is not exact in bfloat16")
    return upper


def save(path: Path, tensors: Tensors, mixed: bool = False) -> None:
    """One safetensors file, as transformers writes it. `mixed`: float16 matrices and float32 vectors."""
    stored: dict[str, npt.NDArray[Any]] = {}
    for name, value in tensors.items():
        stored[name] = value.astype(np.float16 if value.ndim > 1 else np.float32) if mixed else bfloat16(value)
        if mixed and not np.array_equal(stored[name], value):
            raise ValueError(f"{name} is not exact in float16")
    specs = {}
    for name, data in stored.items():
        dtype = data.dtype.name.replace("uint16", "bfloat16")
        specs[name] = TensorSpec(dtype=dtype, shape=data.shape, data_ptr=data.ctypes.data, data_len=data.nbytes)
    serialize_file(specs, path, metadata={"format": "pt"})
    path.chmod(0o644)  # the package makes files for the owner alone


def fuse_experts(tensors: Tensors) -> Tensors:
    """One [E, 2M, H] and one [E, H, M] tensor per layer: transformers 5 with save_original_format=False."""
    out: Tensors = {}
    groups: dict[tuple[str, str], list[npt.NDArray[np.float64]]] = {}
    for name, value in tensors.items():
        match = re.fullmatch(r"(.*\.)(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)\.weight", name)
        if match is None:
            out[name.replace("block_sparse_moe.gate", "mlp.gate")] = value
        else:
            groups.setdefault((match[1], match[2]), []).append(value)
    for (layer, part), parts in groups.items():
        if part in ("w2", "down_proj"):
            out[layer + "mlp.experts.down_proj"] = np.stack(parts)
        elif part in ("w1", "gate_proj"):
            up = groups[(layer, {"w1": "w3", "gate_proj": "up_proj"}[part])]
            out[layer + "mlp.experts.gate_up_proj"] = np.concatenate([np.stack(parts), np.stack(up)], axis=1)
    return out


def save_sharded(directory: Path, tensors: Tensors) -> None:
    """Two files and their index; the second begins in the middle of a layer."""
    names = list(tensors)
    cut = len(names) // 2
    shards = {"model-00001-of-00002.safetensors": names[:cut], "model-00002-of-00002.safetensors": names[cut:]}
    for file, members in shards.items():
        save(directory / file, {name: tensors[name] for name in members})
    sizes = {"total_parameters": sum(v.size for v in tensors.values())}
    sizes["total_size"] = 2 * sizes["total_parameters"]
    where = {name: file for file, members in shards.items() for name in members}
    write_json(directory / "model.safetensors.index.json", {"metadata": sizes, "weight_map": where})


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def write(directory: Path, toy: Toy, tensors: Tensors) -> None:
    """The whole directory, in the toy's style."""
    directory.mkdir(parents=True)
    config = toy.config()
    write_json(directory / "config.json", config)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
    write_json(directory / "generation_config.json", {"_from_model_config": True, **ids})
    if toy.hf_style == "fused":
        tensors = fuse_experts(tensors)
    elif toy.hf_style == "no_prefix":
        tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    if toy.hf_style == "sharded":
        save_sharded(directory, tensors)
    else:
        save(directory / "model.safetensors", tensors, mixed=toy.hf_style == "mixed")
