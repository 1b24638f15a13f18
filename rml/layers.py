"""The weights of a model as the forward pass needs them: every tensor that the config implies, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rml.arenas import Floats
from rml.config import ModelConfig
from rml.weight_source import Experts, MappedFile, Matrix, WeightSource


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights: views of the mapped file, and float64 copies of its norms and biases."""

    attention_norm: Floats  # (H,)
    q: Matrix  # [A·D, H]
    k: Matrix  # [K·D, H]
    v: Matrix  # [K·D, H]
    output: Matrix  # [H, A·D]
    q_bias: Floats | None  # (A·D,)
    k_bias: Floats | None  # (K·D,)
    v_bias: Floats | None  # (K·D,)
    output_bias: Floats | None  # (H,)
    q_norm: Floats | None  # (D,) per head or (A·D,) whole row
    k_norm: Floats | None  # (D,) or (K·D,)
    ffn_norm: Floats  # (H,)
    ffn: DenseFfn | MoeFfn
    post_attention_norm: Floats | None  # (H,), sandwich norms
    post_ffn_norm: Floats | None  # (H,)


@dataclass(frozen=True, slots=True)
class DenseFfn:
    """down(act(gate(x)) * up(x))."""

    gate: Matrix  # [I, H]
    up: Matrix  # [I, H]
    down: Matrix  # [H, I]


@dataclass(frozen=True, slots=True)
class MoeFfn:
    """The same by the k experts that the router likes best."""

    router: Matrix  # [E, H]
    gate: Experts  # E of [M, H]
    up: Experts  # E of [M, H]
    down: Experts  # E of [H, M]


@dataclass(frozen=True, slots=True)
class Weights:
    """Every tensor that the config implies; a missing or misshapen one has failed by now, with its file and shapes."""

    embedding: Matrix  # [V, H]
    layers: tuple[Layer, ...]
    final_norm: Floats  # (H,)
    head: Matrix  # [V, H], the embedding when tied
    rope_freqs: Floats | None  # (D/2,) divisors of the rotary frequencies
    wide_factors: bool = False  # of panels: as in the file, because some are too large for the other way (pack.py)

    def products(self) -> Iterator[Matrix]:
        """Every matrix that is multiplied, experts one by one."""
        for layer in self.layers:
            yield from (layer.q, layer.k, layer.v, layer.output)
            if isinstance(layer.ffn, DenseFfn):
                yield from (layer.ffn.gate, layer.ffn.up, layer.ffn.down)
            else:
                yield layer.ffn.router
                for experts in (layer.ffn.gate, layer.ffn.up, layer.ffn.down):
                    yield from experts
        yield self.head

    def matrices(self) -> Iterator[Matrix]:
        """Every matrix, experts one by one."""
        yield self.embedding
        yield from self.products()

    def map_products(self, matrix: Callable[[Matrix], Matrix], experts: Callable[[Experts], Experts]) -> Weights:
        """The same weights, every matrix that is multiplied replaced by what these functions make of it."""

        def layer_of(layer: Layer) -> Layer:
            f = layer.ffn
            ffn: DenseFfn | MoeFfn
            if isinstance(f, DenseFfn):
                ffn = DenseFfn(matrix(f.gate), matrix(f.up), matrix(f.down))
            else:
                ffn = MoeFfn(matrix(f.router), experts(f.gate), experts(f.up), experts(f.down))
            q, k, v, output = matrix(layer.q), matrix(layer.k), matrix(layer.v), matrix(layer.output)
            return replace(layer, q=q, k=k, v=v, output=output, ffn=ffn)

        return replace(self, head=matrix(self.head), layers=tuple(map(layer_of, self.layers)))

    def files(self) -> list[MappedFile]:
        """The mapped files (and aligned copies of unaligned tensors) that hold the matrices."""
        return list({id(matrix.file): matrix.file for matrix in self.matrices()}.values())


def load_weights(source: WeightSource) -> Weights:
    """Asks for every tensor of the recipe by its GGUF name, and for no other; nothing of the files may be left over."""
    c = source.config
    embedding = source.matrix("token_embd.weight", c.vocab_size, c.hidden_size)
    head = embedding if c.tied_head else source.matrix("output.weight", c.vocab_size, c.hidden_size)
    layers = tuple(load_layer(source, c, i) for i in range(c.num_layers))
    final_norm = source.vector("output_norm.weight", c.hidden_size)
    rope_freqs = source.vector("rope_freqs.weight", c.head_dim // 2) if c.has_rope_freqs else None
    source.check_all_consumed()
    return Weights(embedding, layers, final_norm, head, rope_freqs)


def load_layer(source: WeightSource, c: ModelConfig, index: int) -> Layer:
    """The weights of layer `index`."""

    def vector(name: str, length: int, wanted: bool = True) -> Floats | None:
        return source.vector(f"blk.{index}.{name}", length) if wanted else None

    def matrix(name: str, rows: int, cols: int) -> Matrix:
        return source.matrix(f"blk.{index}.{name}.weight", rows, cols)

    def norm(name: str) -> Floats:
        return source.vector(f"blk.{index}.{name}.weight", c.hidden_size)

    per_head = c.qk_norm == "head"
    return Layer(
        attention_norm=norm("attn_norm"),
        q=matrix("attn_q", c.q_size, c.hidden_size),
        k=matrix("attn_k", c.kv_size, c.hidden_size),
        v=matrix("attn_v", c.kv_size, c.hidden_size),
        output=matrix("attn_output", c.hidden_size, c.q_size),
        q_bias=vector("attn_q.bias", c.q_size, c.attention_bias),
        k_bias=vector("attn_k.bias", c.kv_size, c.attention_bias),
        v_bias=vector("attn_v.bias", c.kv_size, c.attention_bias),
        output_bias=vector("attn_output.bias", c.hidden_size, c.output_bias),
        q_norm=vector("attn_q_norm.weight", c.head_dim if per_head else c.q_size, c.qk_norm != "none"),
        k_norm=vector("attn_k_norm.weight", c.head_dim if per_head else c.kv_size, c.qk_norm != "none"),
        ffn_norm=norm("ffn_norm"),
        ffn=load_moe(source, c, index) if c.num_experts else load_dense(source, c, index),
        post_attention_norm=norm("post_attention_norm") if c.sandwich_norms else None,
        post_ffn_norm=norm("post_ffw_norm") if c.sandwich_norms else None,
    )


def load_dense(source: WeightSource, c: ModelConfig, index: int) -> DenseFfn:
    """The gated FFN of a layer."""
    return DenseFfn(
        gate=source.matrix(f"blk.{index}.ffn_gate.weight", c.intermediate_size, c.hidden_size),
        up=source.matrix(f"blk.{index}.ffn_up.weight", c.intermediate_size, c.hidden_size),
        down=source.matrix(f"blk.{index}.ffn_down.weight", c.hidden_size, c.intermediate_size),
    )


def load_moe(source: WeightSource, c: ModelConfig, index: int) -> MoeFfn:
    """The router and the experts of a layer."""
    return MoeFfn(
        router=source.matrix(f"blk.{index}.ffn_gate_inp.weight", c.num_experts, c.hidden_size),
        gate=source.experts(f"blk.{index}.ffn_gate_exps.weight", c.num_experts, c.expert_size, c.hidden_size),
        up=source.experts(f"blk.{index}.ffn_up_exps.weight", c.num_experts, c.expert_size, c.hidden_size),
        down=source.experts(f"blk.{index}.ffn_down_exps.weight", c.num_experts, c.hidden_size, c.expert_size),
    )
