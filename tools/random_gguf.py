"""Random models of real shapes as GGUF files, written in a few megabytes of memory whatever their size.

Every matrix is Q4_0: random codes under random scales, of a size that keeps activations and logits ordinary (a
normalised input gives outputs of size 1). Bytes come from seeds, so the same call writes the same file anywhere, and
goldens of it can be committed without it. The header is the gguf package's; blocks go to the file piece by piece.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from tools.fixture_gguf import rope_divisors
from tools.progress import Progress

Bytes = npt.NDArray[np.uint8]

BLOCK, BLOCK_BYTES = 32, 18  # Q4_0: a float16 scale, then 32 codes of 4 bits
PIECE = 1 << 19  # blocks made at once: 9 MB
CODE_SPREAD = math.sqrt(21.5)  # deviation of (code - 8) over codes 0 to 15


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama, and its rotary table."""

    name: str
    layers: int
    hidden: int
    width: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    theta: float
    scaled_rope: bool = False  # Llama 3.1's, stored as rope_freqs.weight

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


SHAPES = {
    "llama-3.1-8b": Shape("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128256, 131072, 500000.0, scaled_rope=True),
    "llama-3.2-1b": Shape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 128256, 131072, 500000.0, scaled_rope=True),
    "tiny": Shape("tiny", 3, 64, 160, 4, 2, 512, 2048, 10000.0, scaled_rope=True),
}
LLAMA_31_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor to be written. `columns` 0: a vector of float32. `gain`: the size of outputs for inputs of size 1."""

    name: str
    rows: int
    columns: int
    gain: float = 1.0

    @property
    def nbytes(self) -> int:
        return self.rows * self.columns // BLOCK * BLOCK_BYTES if self.columns else 4 * self.rows


def shape_of(name: str, layers: int | None) -> Shape:
    """A shape of the table, with another number of layers if one is given. Raises ValueError for an unknown name."""
    if name not in SHAPES:
        raise ValueError(f"unknown shape {name!r}; known are {', '.join(SHAPES)}")
    if layers is not None and layers < 1:
        raise ValueError(f"{layers} layers: expected at least 1")
    return SHAPES[name] if layers is None else replace(SHAPES[name], layers=layers)


def tensors(shape: Shape) -> list[Tensor]:
    """All tensors in the order of the file: as the forward pass needs them."""
    hidden, kv = shape.hidden, shape.kv_heads * shape.head_dim
    out = [Tensor("rope_freqs.weight", shape.head_dim // 2, 0)] if shape.scaled_rope else []
    # rows of the embedding have elements of size 1, which is gain sqrt(columns)
    out.append(Tensor("token_embd.weight", shape.vocab, hidden, math.sqrt(hidden)))
    for layer in range(shape.layers):
        parts = [
            Tensor("attn_norm", hidden, 0),
            Tensor("attn_q", hidden, hidden, 1.5),  # scores of size 2: some keys matter more than others
            Tensor("attn_k", kv, hidden, 1.5),
            Tensor("attn_v", kv, hidden),
            Tensor("attn_output", hidden, hidden),
            Tensor("ffn_norm", hidden, 0),
            Tensor("ffn_gate", shape.width, hidden, 1.5),
            Tensor("ffn_up", shape.width, hidden),
            Tensor("ffn_down", hidden, shape.width),
        ]
        out += [replace(part, name=f"blk.{layer}.{part.name}.weight") for part in parts]
    return [*out, Tensor("output_norm.weight", hidden, 0), Tensor("output.weight", shape.vocab, hidden, 2.5)]


def parameters(shape: Shape) -> int:
    """How many weights the model has."""
    return sum(tensor.rows * (tensor.columns or 1) for tensor in tensors(shape))


def random_bytes(label: str, count: int) -> Bytes:
    """`count` bytes that belong to `label`: PCG64's raw output, which its definition fixes."""
    seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little")
    words = np.asarray(np.random.PCG64(seed).random_raw(-(-count // 8)), dtype="<u8")
    return words.view(np.uint8)[:count]


def blocks(label: str, count: int, spread: float) -> Bytes:
    """`count` Q4_0 blocks of weights with a deviation of about `spread`: (count, 18).

    Scales have both signs, as in real files: codes go from -8 to 7, and with one sign all sums would drift.
    """
    noise = random_bytes(label, count * BLOCK_BYTES).reshape(count, BLOCK_BYTES)
    wobble = 0.5 + (noise[:, 0] & 63) / 64.0  # 0.5 to 1.5
    scale = np.where(noise[:, 0] & 64, -1.0, 1.0) * wobble * (spread / CODE_SPREAD)
    out = noise.copy()
    out[:, :2] = scale.astype("<f2")[:, None].view(np.uint8)
    return out


def pieces(tensor: Tensor, seed: str, divisors: npt.NDArray[np.float64] | None) -> Iterator[Bytes]:
    """The bytes of a tensor, a few megabytes at a time."""
    if tensor.name == "rope_freqs.weight":
        assert divisors is not None
        yield divisors.astype("<f4").view(np.uint8)
    elif not tensor.columns:
        wobble = 0.5 + (random_bytes(f"{seed} {tensor.name}", tensor.rows) & 63) / 64.0
        yield wobble.astype("<f4").view(np.uint8)
    else:
        count = tensor.rows * tensor.columns // BLOCK
        spread = tensor.gain / math.sqrt(tensor.columns)
        for first in range(0, count, PIECE):
            yield blocks(f"{seed} {tensor.name} {first}", min(PIECE, count - first), spread)


def header(path: Path, shape: Shape, seed: str) -> gguf.GGUFWriter:
    """A writer whose metadata and tensor table are on the disk. llama.cpp opens the file too: it has no vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {shape.name}, {shape.layers} layers, seed {seed!r}")
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_0))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.theta)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("no_vocab")
    for tensor in tensors(shape):
        if tensor.columns:
            bytes_of_a_row = tensor.columns // BLOCK * BLOCK_BYTES
            kind = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor_info(
                tensor.name, (tensor.rows, bytes_of_a_row), np.dtype(np.uint8), tensor.nbytes, raw_dtype=kind
            )
        else:
            writer.add_tensor_info(tensor.name, (tensor.rows,), np.dtype(np.float32), tensor.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    return writer


def write(path: Path, shape: Shape, seed: str = "", done: Callable[[int], None] | None = None) -> int:
    """Writes the model and returns the file's size. `done` hears of every piece's bytes.

    The file has another name until it is whole: a run that was stopped leaves nothing that looks like a model.
    """
    rope = LLAMA_31_ROPE | {"rope_theta": shape.theta}
    divisors = rope_divisors(rope, shape.head_dim) if shape.scaled_rope else None
    partial = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = header(partial, shape, seed)
    try:
        file = writer.fout[0]
        for tensor in tensors(shape):
            writer.write_padding(file, file.tell())
            for piece in pieces(tensor, seed, divisors):
                file.write(piece.tobytes())
                if done is not None:
                    done(piece.size)
        writer.write_padding(file, file.tell())
    finally:
        writer.close()
    partial.replace(path)
    return path.stat().st_size


def write_with_progress(path: Path, shape: Shape, seed: str = "") -> int:
    """`write`, shown on stderr."""
    with Progress(f"writing {path.name}", sum(t.nbytes for t in tensors(shape)), "bytes") as progress:
        return write(path, shape, seed, progress.advance)
