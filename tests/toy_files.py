"""Toy model files written by hand, byte for byte: GGUF, safetensors, config.json.

The toy: llama, one layer, hidden 32, 4 query heads over 2 key heads, FFN 48, vocabulary 64, float32. The writers share
no code with the readers, nor with the gguf and safetensors packages, which refuse to write most lies.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rml.errors import RmlError
from rml.weight_source import Matrix, WeightSource, open_weights

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCAB = 32, 4, 2, 8, 48, 64


@dataclass(frozen=True)
class Lie:
    """A file that must be refused: how to make it, with which error, and words that the message must have."""

    name: str
    build: Callable[[Path], Path]
    error: type[RmlError]
    words: tuple[str, ...]


def u8(value: int) -> bytes:
    return struct.pack("<II", 0, 0)[:4] + struct.pack("<B", value)


def u32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def i32(value: int) -> bytes:
    return struct.pack("<Ii", 5, value)


def u64(value: int) -> bytes:
    return struct.pack("<IQ", 10, value)


def f32(value: float) -> bytes:
    return struct.pack("<If", 6, value)


def boolean(value: int) -> bytes:
    return struct.pack("<IB", 7, value)


def raw_string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def string(text: str) -> bytes:
    return struct.pack("<I", 8) + raw_string(text.encode())


def array(element: int, form: str, values: Sequence[float]) -> bytes:
    return struct.pack("<IIQ", 9, element, len(values)) + struct.pack(f"<{len(values)}{form}", *values)


def strings(texts: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(raw_string(text.encode()) for text in texts)


@dataclass
class Tensor:
    """A tensor of a GGUF file; shape in row-major order. What is None is computed honestly."""

    shape: tuple[int, ...]
    data: bytes
    type: int = 0
    dimensions: tuple[int, ...] | None = None  # what the table says instead
    offset: int | None = None


@dataclass
class Gguf:
    """A GGUF file in pieces; the keys are encoded values."""

    keys: dict[str, bytes]
    tensors: dict[str, Tensor]
    magic: bytes = b"GGUF"
    version: int = 3
    key_count: int | None = None
    tensor_count: int | None = None
    alignment: int = 32
    extra_keys: bytes = b""  # after the honest ones, counted as one
    extra_tensors: bytes = b""

    def header(self) -> bytes:
        keys = b"".join(raw_string(name.encode()) + value for name, value in self.keys.items()) + self.extra_keys
        table, offset = b"", 0
        for name, tensor in self.tensors.items():
            dimensions = tensor.dimensions if tensor.dimensions is not None else tensor.shape[::-1]
            table += raw_string(name.encode()) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
            table += struct.pack("<IQ", tensor.type, offset if tensor.offset is None else tensor.offset)
            offset += len(tensor.data) + -len(tensor.data) % self.alignment
        key_count = len(self.keys) + bool(self.extra_keys) if self.key_count is None else self.key_count
        tensor_count = len(self.tensors) + bool(self.extra_tensors) if self.tensor_count is None else self.tensor_count
        return (
            self.magic + struct.pack("<IQQ", self.version, tensor_count, key_count) + keys + table + self.extra_tensors
        )

    def encode(self) -> bytes:
        header = self.header()
        padded = (tensor.data + bytes(-len(tensor.data) % self.alignment) for tensor in self.tensors.values())
        return header + bytes(-len(header) % self.alignment) + b"".join(padded)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encode())
        return path


TOY_SHAPES = {
    "token_embd.weight": (VOCAB, HIDDEN),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "blk.0.ffn_gate.weight": (WIDTH, HIDDEN),
    "blk.0.ffn_up.weight": (WIDTH, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, WIDTH),
    "output_norm.weight": (HIDDEN,),
    "output.weight": (VOCAB, HIDDEN),
}


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Values that differ from tensor to tensor, exact in float16 and bfloat16."""
    values = np.arange(prod(shape)) * 7 + sum(name.encode())
    return ((values % 255 - 127) / 64.0).astype(np.float32).reshape(shape)


def toy_keys() -> dict[str, bytes]:
    return {
        "general.architecture": string("llama"),
        "general.name": string("toy"),
        "llama.block_count": u32(1),
        "llama.context_length": u32(128),
        "llama.embedding_length": u32(HIDDEN),
        "llama.feed_forward_length": u32(WIDTH),
        "llama.attention.head_count": u32(HEADS),
        "llama.attention.head_count_kv": u32(KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
        "tokenizer.ggml.tokens": strings([f"<{i}>" for i in range(VOCAB)]),
    }


def toy_gguf(**keys: bytes) -> Gguf:
    """The toy; keyword arguments with __ for . replace or add keys."""
    changed = {name.replace("__", "."): value for name, value in keys.items()}
    tensors = {name: Tensor(shape, numbers(name, shape).tobytes()) for name, shape in TOY_SHAPES.items()}
    return Gguf(toy_keys() | changed, tensors)


HF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
    "blk.0.attn_q.weight": "model.layers.0.self_attn.q_proj.weight",
    "blk.0.attn_k.weight": "model.layers.0.self_attn.k_proj.weight",
    "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
    "blk.0.attn_output.weight": "model.layers.0.self_attn.o_proj.weight",
    "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
    "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
    "blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight",
    "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
}


def toy_config(model_type: str = "llama", **changes: object) -> dict[str, object]:
    """config.json of the toy; a change to `...` removes the key."""
    config: dict[str, object] = {
        "model_type": model_type,
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 128,
    }
    return {key: value for key, value in (config | changes).items() if value is not ...}


@dataclass
class Entry:
    """A tensor of a safetensors file. What is None is computed honestly."""

    dtype: str
    shape: Sequence[object]
    data: bytes
    offsets: object = None


@dataclass
class Safetensors:
    """A safetensors file in pieces."""

    tensors: dict[str, Entry]
    metadata: object = field(default_factory=lambda: {"format": "pt"})
    length: int | None = None
    pad: int = 0  # spaces after the header
    tail: bytes = b""
    header: bytes | None = None

    def encode(self) -> bytes:
        table: dict[str, object] = {"__metadata__": self.metadata}
        data = b""
        for name, entry in self.tensors.items():
            offsets = [len(data), len(data) + len(entry.data)] if entry.offsets is None else entry.offsets
            table[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
            data += entry.data
        header = (json.dumps(table).encode() if self.header is None else self.header) + b" " * self.pad
        length = len(header) if self.length is None else self.length
        return struct.pack("<Q", length) + header + data + self.tail

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encode())
        return path


def toy_safetensors() -> Safetensors:
    entries = {
        HF_NAMES[name]: Entry("F32", shape, numbers(name, shape).tobytes()) for name, shape in TOY_SHAPES.items()
    }
    return Safetensors(entries)


def write_hf(
    directory: Path,
    config: Mapping[str, object] | None = None,
    weights: Safetensors | None = None,
    generation: Mapping[str, object] | None = None,
) -> Path:
    """A model directory."""
    (directory / "config.json").write_text(json.dumps(toy_config() if config is None else config))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    (weights or toy_safetensors()).write(directory / "model.safetensors")
    return directory


def load(path: Path) -> WeightSource:
    """Open a model and take every tensor that its config asks for, as the decoder does."""
    source = open_weights(path)
    for name, shape in source.config.tensor_shapes():
        if len(shape) == 1:
            source.vector(name, *shape)
        elif len(shape) == 2:
            source.matrix(name, *shape)
        else:
            source.experts(name, *shape)
    source.check_all_consumed()
    return source


FLOATS = {"F32": "<f4", "F16": "<f2"}


def values(matrix: Matrix) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A float matrix as float64."""
    data = matrix.data.copy()
    if matrix.format.name == "BF16":
        return (data.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64).reshape(matrix.rows, matrix.cols)
    return data.view(FLOATS[matrix.format.name]).astype(np.float64).reshape(matrix.rows, matrix.cols)
