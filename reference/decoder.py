"""The forward pass, after the modeling code of the eight families in transformers.

All positions are computed at once, without a cache, in float64 throughout. Letters as in config.py, and n tokens.

    x = embed[tokens] * scale
    per layer:  h = norm(x);  q, k, v = h Wq^T, h Wk^T, h Wv^T (+ bias, + QK-norm);  rotate q, k
                x += [norm] (softmax(q k^T * scale, causal, window) v) Wo^T
                h = norm(x);  x += [norm] ffn(h) or the weighted sum of the chosen experts' ffn(h)
    logits = norm(x) head^T, softly capped
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference.maths import Array, Blas, Maths
from reference.rope import rotate, tables
from reference.weights import Matrix, Weights

Tap = Callable[[str, Array], None]
"""Called with the name and the value of an activation; first axis = position. Names: embed; blk.N. followed by
attn_norm, q, k, v (after the bias, before QK-norm and rotation), q_rope, k_rope, attn_out, o_proj, residual, ffn_norm,
router_probs (n, E), router_choice (n, top k; ids, most probable first), ffn_out, output; final_norm; logits. Rows of q
and k are in Hugging Face's order whatever the file; o_proj and ffn_out are taken before Gemma's sandwich norms."""


def ignore(name: str, value: Array) -> None:
    """The tap of those who only want the logits."""


@dataclass(frozen=True)
class State:
    """A forward pass that has come this far: the residual stream `x` (n, H) as block number `layer` receives it."""

    layer: int
    x: Array


class Model:
    """A decoder over a weight file."""

    def __init__(self, weights: Weights, maths: Maths | None = None) -> None:
        self.weights, self.config = weights, weights.config
        self.maths: Maths = Blas() if maths is None else maths

    def forward(self, tokens: Sequence[int], taps: Tap | dict[str, Array] | None = None) -> Array:
        """Logits of every position: (n, V). `taps` sees, or collects, the activations on the way."""
        tap = taps.__setitem__ if isinstance(taps, dict) else taps or ignore
        logits = self.logits(self.states(tokens, tap))
        tap("logits", logits)
        return logits

    def states(self, tokens: Sequence[int], tap: Tap = ignore) -> Array:
        """The normalised states before the output matrix: (n, H). For a large vocabulary, feed `logits` parts of it."""
        last = deque(self.stream(tokens, tap), maxlen=1).pop()
        return self.normalised(last, tap)

    def stream(self, tokens: Sequence[int], tap: Tap = ignore, start: State | None = None) -> Iterator[State]:
        """The forward pass one layer at a time: the state before the first block, then after each.

        `start`: a state that an earlier pass over the same tokens yielded; this pass goes on from there. Between two
        layers the file's pages are given back to the system, so a mapped model of any size needs the memory of its
        largest layer.
        """
        cfg = self.config
        ids = np.asarray(tokens, dtype=np.int64)
        if ids.ndim != 1 or not len(ids) or ids.min() < 0 or ids.max() >= cfg.vocab:
            raise ValueError(f"expected a list of token ids from 0 to {cfg.vocab - 1}")
        state = self._embed(ids, tap) if start is None else start
        if state.x.shape != (len(ids), cfg.hidden) or not 0 <= state.layer <= cfg.layers:
            raise ValueError(f"a state of shape {state.x.shape} before layer {state.layer} is not one of these tokens")
        yield state
        rope = tables(cfg.rope, cfg.head_dim, len(ids), self.maths)
        local = rope if cfg.local_rope is None else tables(cfg.local_rope, cfg.head_dim, len(ids), self.maths)
        for layer in range(state.layer, cfg.layers):
            state = State(layer + 1, self._block(layer, state.x, local if cfg.slides(layer) else rope, tap))
            self.weights.release()
            yield state

    def _embed(self, ids: npt.NDArray[np.int64], tap: Tap) -> State:
        x = self._matrix("token_embd.weight", self.config.vocab, self.config.hidden).take(ids)
        x = x * self.config.embedding_scale
        tap("embed", x)
        return State(0, x)

    def normalised(self, last: State, tap: Tap = ignore) -> Array:
        """What the output matrix receives, from the state after the last block: (n, H)."""
        x = self._norm(last.x, "output_norm.weight")
        tap("final_norm", x)
        return x

    def logits(self, states: Array) -> Array:
        """(m, H) states to (m, V) logits."""
        cfg = self.config
        name = "token_embd.weight" if cfg.tied else "output.weight"
        logits = self._matrix(name, cfg.vocab, cfg.hidden).times(states, self.maths)
        return self.maths.tanh(logits / cfg.logit_cap) * cfg.logit_cap if cfg.logit_cap else logits

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` tokens that follow when the likeliest is always taken (ties: the lowest id)."""
        ids = list(tokens)
        for _ in range(count):
            ids.append(int(self.logits(self.states(ids)[-1:])[0].argmax()))
        return ids[len(tokens) :]

    def _matrix(self, name: str, rows: int, columns: int) -> Matrix:
        return self.weights.matrix(name, rows, columns)

    def _norm(self, x: Array, name: str) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
        weight = self.weights.vector(name, x.shape[-1])
        mean = self.maths.total(x * x) / x.shape[-1]
        return np.asarray(x / np.sqrt(mean + self.config.eps)[..., None] * weight)

    def _block(self, layer: int, x: Array, rope: tuple[Array, Array], tap: Tap) -> Array:
        cfg, prefix = self.config, f"blk.{layer}."
        h = self._norm(x, prefix + "attn_norm.weight")
        tap(prefix + "attn_norm", h)
        branch = self._attention(layer, h, rope, tap)
        if cfg.sandwich_norms:
            branch = self._norm(branch, prefix + "post_attention_norm.weight")
        x = x + branch
        tap(prefix + "residual", x)
        h = self._norm(x, prefix + "ffn_norm.weight")
        tap(prefix + "ffn_norm", h)
        branch = self._experts(prefix, h, tap) if cfg.experts else self._dense(prefix, h)
        tap(prefix + "ffn_out", branch)
        if cfg.sandwich_norms:
            branch = self._norm(branch, prefix + "post_ffw_norm.weight")
        x = x + branch
        tap(prefix + "output", x)
        return x

    def _projection(self, prefix: str, which: str, h: Array, rows: int) -> Array:
        """One of q, k, v from the normalised stream."""
        y = self._matrix(f"{prefix}attn_{which}.weight", rows, self.config.hidden).times(h, self.maths)
        if self.config.qkv_bias:
            y = y + self.weights.vector(f"{prefix}attn_{which}.bias", rows)
        return y

    def _heads(self, prefix: str, which: str, y: Array, rope: tuple[Array, Array]) -> Array:
        """QK-norm and rotation of q or k: (n, heads * D) to (n, heads, D)."""
        cfg, name = self.config, f"{prefix}attn_{which}_norm.weight"
        if cfg.qk_norm == "row":
            y = self._norm(y, name)
        heads = y.reshape(len(y), -1, cfg.head_dim)
        if cfg.qk_norm == "head":
            heads = self._norm(heads, name)
        return rotate(heads, *rope)

    def _attention(self, layer: int, h: Array, rope: tuple[Array, Array], tap: Tap) -> Array:
        """The attention branch: (n, H)."""
        cfg, prefix, n = self.config, f"blk.{layer}.", len(h)
        raw = {
            w: self._projection(prefix, w, h, heads * cfg.head_dim)
            for w, heads in (("q", cfg.heads), ("k", cfg.kv_heads), ("v", cfg.kv_heads))
        }
        for which, value in raw.items():
            tap(prefix + which, value)
        q = self._heads(prefix, "q", raw["q"], rope)
        k = self._heads(prefix, "k", raw["k"], rope)
        v = raw["v"].reshape(n, cfg.kv_heads, cfg.head_dim)
        tap(prefix + "q_rope", q.reshape(n, -1))
        tap(prefix + "k_rope", k.reshape(n, -1))
        hidden = self._hidden_pairs(n, cfg.slides(layer))
        out = np.empty((n, cfg.heads, cfg.head_dim))
        for head in range(cfg.heads):
            shared = head // (cfg.heads // cfg.kv_heads)
            scores = self.maths.product(q[:, head], k[:, shared]) * cfg.attention_scale
            scores[hidden] = -np.inf
            out[:, head] = self.maths.product(self._softmax(scores), np.ascontiguousarray(v[:, shared].T))
        flat = out.reshape(n, -1)
        tap(prefix + "attn_out", flat)
        y = self._matrix(prefix + "attn_output.weight", cfg.hidden, cfg.heads * cfg.head_dim).times(flat, self.maths)
        if cfg.output_bias:
            y = y + self.weights.vector(prefix + "attn_output.bias", cfg.hidden)
        tap(prefix + "o_proj", y)
        return y

    def _hidden_pairs(self, n: int, sliding: bool) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """(query, key) pairs that may not look at each other: later keys, and those `window` or more back."""
        back = np.arange(n)[:, None] - np.arange(n)[None, :]
        return (back < 0) | (back >= self.config.window) if sliding else back < 0

    def _softmax(self, scores: Array) -> Array:
        e = self.maths.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(e / self.maths.total(e)[..., None])

    def _activate(self, x: Array) -> Array:
        """SiLU x / (1 + exp(-x)), or GELU in its tanh form."""
        if self.config.activation == "silu":
            e = self.maths.exp(-np.abs(x))  # exp never overflows: 1 / (1 + exp(-x)) is e / (1 + e) below zero
            return np.asarray(x * (np.where(x >= 0, 1.0, e) / (1.0 + e)))
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
        return np.asarray(0.5 * x * (1.0 + self.maths.tanh(inner)))

    def _ffn(self, h: Array, gate: Matrix, up: Matrix, down: Matrix) -> Array:
        inner = self._activate(gate.times(h, self.maths)) * up.times(h, self.maths)
        return down.times(inner, self.maths)

    def _dense(self, prefix: str, h: Array) -> Array:
        width, hidden = self.config.width, self.config.hidden
        gate = self._matrix(prefix + "ffn_gate.weight", width, hidden)
        up = self._matrix(prefix + "ffn_up.weight", width, hidden)
        return self._ffn(h, gate, up, self._matrix(prefix + "ffn_down.weight", hidden, width))

    def _experts(self, prefix: str, h: Array, tap: Tap) -> Array:
        """Softmax over all experts, the top k (ties: the lower id), their weights, the weighted sum."""
        cfg = self.config
        router = self._matrix(prefix + "ffn_gate_inp.weight", cfg.experts, cfg.hidden)
        probs = self._softmax(router.times(h, self.maths))
        choice = np.argsort(-probs, axis=-1, kind="stable")[:, : cfg.experts_per_token]
        tap(prefix + "router_probs", probs)
        tap(prefix + "router_choice", choice.astype(np.float64))
        share = np.take_along_axis(probs, choice, axis=-1)
        if cfg.renormalise:
            share = share / self.maths.total(share)[:, None]
        out = np.zeros_like(h)
        for expert in range(cfg.experts):
            rows, slot = np.nonzero(choice == expert)
            if len(rows):
                out[rows] += self._expert(prefix, expert, h[rows]) * share[rows, slot][:, None]
        return out

    def _expert(self, prefix: str, expert: int, h: Array) -> Array:
        width, hidden = self.config.expert_width, self.config.hidden
        gate = self.weights.expert(prefix + "ffn_gate_exps.weight", expert, width, hidden)
        up = self.weights.expert(prefix + "ffn_up_exps.weight", expert, width, hidden)
        return self._ffn(h, gate, up, self.weights.expert(prefix + "ffn_down_exps.weight", expert, hidden, width))
