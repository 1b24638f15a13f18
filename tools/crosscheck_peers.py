"""The two other implementations: transformers, made to compute in float64, and llama.cpp.

Their packages are heavy and live in the crosscheck session only; nothing else imports this file.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: it must not look for a hub

import gguf
import llama_cpp
import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors.torch import load_file

Array = npt.NDArray[np.float64]


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Makes `torch.float32` and `Tensor.float` mean float64.

    transformers computes norms, rotary tables, softmax and router in float32 whatever the model's dtype (3e-8 on
    toys). It looks both names up when it is called, so swapping them for the duration, the building of the model
    included, leaves no float32 anywhere.
    """
    single, alias, method, default = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = single, alias, method
        torch.set_default_dtype(default)


def state(directory: Path) -> dict[str, Any]:
    """All tensors in float64. They are read outside the swap, in which a float32 tensor would be read as float64."""
    out: dict[str, Any] = {}
    for file in sorted(directory.glob("*.safetensors")):
        out.update({name: tensor.double() for name, tensor in load_file(file).items()})
    return out


def transformers_logits(directory: Path, tokens: list[int]) -> Array:
    """Logits of every position from transformers, float64 throughout: (n, V)."""
    tensors = state(directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    name = json.loads((directory / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    with doubled(), torch.no_grad():
        model = getattr(transformers, name).from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
        )
        logits = model.eval()(torch.tensor([tokens]), use_cache=False).logits[0]
    if logits.dtype != torch.float64:
        raise TypeError(f"transformers computed in {logits.dtype}")
    return np.asarray(logits.numpy())


def float32_copy(model: Path, out: Path) -> Path:
    """The same GGUF model with every tensor in float32.

    llama.cpp multiplies F16 weights by activations rounded to float16, and quantised ones by activations rounded to
    int8; only float32 weights are multiplied by what was computed. Metadata is copied as it stands.
    """
    stem, _, parts = model.name.removesuffix(".gguf").partition("-00001-of-")
    files = [model.with_name(f"{stem}-{i + 1:05d}-of-{parts}.gguf") for i in range(int(parts or 0))] or [model]
    readers = [gguf.GGUFReader(file) for file in files]
    arch = readers[0].fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, arch)
    for name, field in readers[0].fields.items():
        if not name.startswith(("GGUF.", "split.")) and name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in (tensor for reader in readers for tensor in reader.tensors):
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def llama_cpp_logits(model: Path, tokens: list[int]) -> Array:
    """Logits of every position from llama.cpp, float32 cache, one thread: (n, V). Raises ValueError if it refuses."""
    peer = llama_cpp.Llama(
        str(model),
        n_ctx=64,
        n_batch=64,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        flash_attn=False,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        verbose=False,
    )
    try:
        peer.eval(tokens)
        return np.array(peer.scores[: len(tokens)], dtype=np.float64)
    finally:
        peer.close()


def versions() -> str:
    return (
        f"transformers {transformers.__version__}, torch {torch.__version__}, llama-cpp-python {llama_cpp.__version__}"
    )
