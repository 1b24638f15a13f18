"""Random-weight models for the benchmark: real shapes whose weights nobody has to download.

    python -m tools.bench_models              write those that are missing (2.2 GB, some minutes, once)
    python -m tools.bench_models NAME ...     only these; --list shows what there is

TinyLlama-1.1B's shape in Q8_0 and Q4_0, whole and with two layers and a vocabulary of 8192, and SmolLM2-135M's shape as
a Hugging Face directory in bfloat16. Weights are uniform, with the variance that keeps every layer's output near unit
size, so that logits are neither flat nor chaotic: a wrong kernel shows. They are written a tensor at a time with the
gguf and safetensors packages, which share no code with the engine.

They lie in $RML_MODELS_DIR, otherwise in the user's cache ($XDG_CACHE_HOME/rml/models), never in the clone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import quantize
from safetensors import TensorSpec, serialize_file

from tools.fetch_real_models import store_dir
from tools.progress import Progress
from tools.report import write_text

VERSION = 1  # in every file's name: raise it when the written bytes change
HEAD_SPREAD = 3.0  # standard deviation of the logits: as peaked as a language model's, more or less
TIED_SPREAD = 2.0  # the same with a tied head, where the token just read would otherwise win for ever

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Sizes of a model of the Llama family, in the words of config.json."""

    hidden: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool = False
    positions: int = 4096
    theta: float = 1e4
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.hidden // self.heads

    def matrices(self) -> Iterator[tuple[str, tuple[int, int], float]]:
        """Every matrix by GGUF name: shape (rows, columns), and the standard deviation of its weights."""
        kv = self.kv_heads * self.head_dim
        into = 1 / math.sqrt(self.hidden)
        back = 1 / math.sqrt(2 * self.layers)  # what is added to the residual stream must not grow with depth
        spread = (TIED_SPREAD if self.tied else HEAD_SPREAD) * into
        yield "token_embd.weight", (self.vocab, self.hidden), spread if self.tied else 1.0
        if not self.tied:
            yield "output.weight", (self.vocab, self.hidden), spread
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_q.weight", (self.hidden, self.hidden), into
            yield f"blk.{layer}.attn_k.weight", (kv, self.hidden), into
            yield f"blk.{layer}.attn_v.weight", (kv, self.hidden), into
            yield f"blk.{layer}.attn_output.weight", (self.hidden, self.hidden), back * into
            yield f"blk.{layer}.ffn_gate.weight", (self.width, self.hidden), into
            yield f"blk.{layer}.ffn_up.weight", (self.width, self.hidden), into
            yield f"blk.{layer}.ffn_down.weight", (self.hidden, self.width), back / math.sqrt(self.width)

    def norms(self) -> Iterator[str]:
        """Every norm by GGUF name; all weights are 1."""
        yield "output_norm.weight"
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight"
            yield f"blk.{layer}.ffn_norm.weight"


TINYLLAMA = Shape(hidden=2048, width=5632, layers=22, heads=32, kv_heads=4, vocab=32000)
TINYLLAMA_TOP = replace(TINYLLAMA, layers=2, vocab=8192)  # decoder.md's decoder_benchmark
SMOLLM2 = Shape(hidden=576, width=1536, layers=30, heads=9, kv_heads=3, vocab=49152, tied=True, theta=1e5)


@dataclass(frozen=True)
class Recipe:
    """One random model. stored: the matrices' GGUF type, or "BF16" for a Hugging Face directory."""

    name: str
    shape: Shape
    stored: str

    @property
    def path(self) -> Path:
        """Where it lies, whether or not it is there yet."""
        suffix = "" if self.stored == "BF16" else ".gguf"
        return store_dir() / f"{self.name}-v{VERSION}{suffix}"


RECIPES = (
    Recipe("random-tinyllama-2-layers-q8_0", TINYLLAMA_TOP, "Q8_0"),
    Recipe("random-tinyllama-2-layers-q4_0", TINYLLAMA_TOP, "Q4_0"),
    Recipe("random-tinyllama-q8_0", TINYLLAMA, "Q8_0"),
    Recipe("random-tinyllama-q4_0", TINYLLAMA, "Q4_0"),
    Recipe("random-smollm2-bf16", SMOLLM2, "BF16"),
)

HF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
HF_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """The Hugging Face name of a tensor of the Llama family."""
    if name in HF_NAMES:
        return HF_NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{HF_PARTS[part]}.{kind}"


def random_matrix(seed: int, shape: tuple[int, int], deviation: float) -> Weights:
    """Uniform weights (rows, columns) of this standard deviation; the same for the same seed everywhere."""
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    values -= np.float32(0.5)
    values *= np.float32(deviation * math.sqrt(12.0))
    return values


def write_gguf(path: Path, recipe: Recipe, progress: Progress) -> None:
    """A GGUF file of the llama architecture without a tokenizer, written a tensor at a time."""
    shape, stored = recipe.shape, gguf.GGMLQuantizationType[recipe.stored]
    block, block_bytes = gguf.GGML_QUANT_SIZES[stored]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(recipe.name)
    add_keys(writer, shape)
    for name in shape.norms():
        writer.add_tensor_info(name, (shape.hidden,), np.dtype(np.float32), 4 * shape.hidden)
    for name, (rows, columns), _ in shape.matrices():
        row_bytes = columns // block * block_bytes
        writer.add_tensor_info(name, (rows, row_bytes), np.dtype(np.uint8), rows * row_bytes, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _ in shape.norms():
        writer.write_tensor_data(np.ones(shape.hidden, np.float32))
    for seed, (_, size, deviation) in enumerate(shape.matrices()):
        writer.write_tensor_data(quantize(random_matrix(seed, size, deviation), stored))
        progress.advance(math.prod(size) / 1e6)
    writer.close()


def add_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """The metadata that llama.cpp's converter writes for the llama architecture; no vocabulary."""
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_tokenizer_model("no_vocab")


def hf_config(shape: Shape) -> dict[str, object]:
    """config.json of a Llama model of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "max_position_embeddings": shape.positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "tie_word_embeddings": shape.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
    }


def write_hf(path: Path, recipe: Recipe, progress: Progress) -> None:
    """A Hugging Face directory: config.json and one file of bfloat16 tensors (weights cut to their upper halves)."""
    shape = recipe.shape
    path.mkdir(parents=True)
    one = np.uint16(0x3F80)  # 1.0
    tensors = {hf_name(name): np.full(shape.hidden, one, np.uint16) for name in shape.norms()}
    for seed, (name, size, deviation) in enumerate(shape.matrices()):
        bits = random_matrix(seed, size, deviation).view(np.uint32)
        tensors[hf_name(name)] = (bits >> np.uint32(16)).astype(np.uint16)
        progress.advance(math.prod(size) / 1e6)
    specs = {
        name: TensorSpec(dtype="bfloat16", shape=data.shape, data_ptr=data.ctypes.data, data_len=data.nbytes)
        for name, data in tensors.items()
    }
    serialize_file(specs, path / "model.safetensors", metadata={"format": "pt"})
    (path / "model.safetensors").chmod(0o644)  # the package makes files for the owner alone
    write_text(path / "config.json", json.dumps(hf_config(shape), indent=2) + "\n")


def ensure(recipe: Recipe) -> Path:
    """The model's path; writes it first if it is not there. It appears whole or not at all."""
    path = recipe.path
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    weights = sum(math.prod(size) for _, size, _ in recipe.shape.matrices())
    try:
        with Progress(f"writing {path.name}", weights / 1e6, "million weights") as progress:
            (write_hf if recipe.stored == "BF16" else write_gguf)(partial, recipe, progress)
        os.replace(partial, path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
    return path


def main() -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_models", description=str(__doc__).split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to write; all of them without a name")
    parser.add_argument("--list", action="store_true", help="show what there is, write nothing")
    arguments = parser.parse_args()
    known = {recipe.name: recipe for recipe in RECIPES}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known are {', '.join(known)}")
    for recipe in [known[name] for name in arguments.names] or list(RECIPES):
        if arguments.list:
            print(f"{recipe.name:32} {recipe.path}  {'there' if recipe.path.exists() else 'not written yet'}")
        else:
            print(ensure(recipe))
    return 0


if __name__ == "__main__":
    sys.exit(main())
