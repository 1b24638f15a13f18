"""DecoderLM: one model class for every family; the switches of its config say what differs.

Legend: n tokens of a call, H hidden size, A heads of size D, K kv heads, I FFN width, E experts of width M, V
vocabulary.

    x (n, H) ── norm ── q (n, A·D), k, v (n, K·D) ── q/k norm ── rope ── cache ── attend ── output projection ──┐ added
    │                                                                                    [post norm] ──────────┤ to x
    └── norm ── gate, up (n, I) ── act(gate) · up ── down projection ── [post norm] ───────────────────────────┘
                 or: router (n, E) ── k experts of width M, weighted

`ForwardPass` writes these steps down once, as a program that every rank then runs natively; reading it is reading the
forward pass. Barriers stand where a step reads what other ranks wrote.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rml.arenas import Floats, Region
from rml.config import ModelConfig
from rml.engine import Engine
from rml.errors import InvalidArgument
from rml.kernels import attend, cache_rows, experts, matmul
from rml.kernels.opcodes import GELU_TANH, SILU
from rml.kv_cache import CacheType, KvCache
from rml.layers import DenseFfn, MoeFfn, Weights, load_weights
from rml.panels import for_products
from rml.rope import Rope
from rml.steps import Address, Steps, Tap
from rml.threads import choose_ranks
from rml.weight_source import Matrix, WeightSource

Logits = npt.NDArray[np.float64]
TapFunction = Callable[[str, Floats], npt.ArrayLike | None]

CALL_TOKENS = 64  # a longer prompt runs in pieces of this many: it bounds the workspace, and changes no bit
LOGIT_ENTRIES = 1 << 22  # of one piece when every token's logits are wanted: 32 MB


@dataclass(frozen=True, slots=True)
class Projection:
    """One of a layer's q, k and v: what makes it, where it goes, and its norm, of so many equal pieces of a row."""

    name: str
    matrix: Matrix
    bias: Floats | None
    out: Region
    norm: Floats | None = None
    pieces: int = 1


class ForwardPass:
    """The program of one forward pass for up to `tokens` tokens, and the regions it works in."""

    def __init__(
        self, config: ModelConfig, weights: Weights, address: Address, tokens: int, logit_tokens: int, exact: bool,
        tapped: bool = False,
    ) -> None:  # fmt: skip
        """tapped: every block's output goes through a branch buffer, where taps can see it before it is added."""
        c = self.config = config
        self.weights = weights
        self.capacity, self.logit_capacity = tokens, logit_tokens
        k = c.experts_per_token
        ffn_width = k * c.expert_size if c.num_experts else c.intermediate_size
        self.widest = max(c.hidden_size, c.q_size, ffn_width)
        widens = exact or (not c.tied_head and weights.embedding.format.activation_group > 0)
        s = self.steps = Steps(address, tokens, exact, self.widest, weights.wide_factors, widens)
        self.tokens = s.ids.take(tokens)
        self.x = s.region(c.hidden_size)
        self.normed = s.region(c.hidden_size)
        self.tapped = tapped
        self.activation = GELU_TANH if c.activation == "gelu_tanh" else SILU
        self.adds = not (c.sandwich_norms or tapped)
        self.branch = self.x if self.adds else s.region(c.hidden_size)
        attention, ffn = s.either([c.q_size, c.kv_size, c.kv_size, c.q_size], [ffn_width, ffn_width])
        self.q, self.k, self.v, self.attended = attention
        self.gate, self.up = ffn
        self.shared = s.region(attend.attend_shared(c.num_heads, c.head_dim), 1)
        self.angles = s.region(c.head_dim)  # cos, then sin, of every pair, for the call's positions
        self.local_angles = s.region(c.head_dim) if c.rope_local_theta is not None else self.angles
        if c.num_experts:
            self.scores, self.expert_weights = s.region(c.num_experts), s.region(k)
            self.chosen = s.ids.take(tokens * k)
        self.last, self.last_angles = s.region(c.hidden_size, 1), s.region(c.head_dim, 1)
        self.logits = s.region(c.vocab_size, logit_tokens)
        self.write()

    def scratch_sizes(self) -> tuple[int, int, int]:
        """Entries of f, h and k that one rank's scratch needs, for the most demanding step."""
        c, widest = self.config, self.widest
        int8 = min(self.steps.int8(matrix.format) for matrix in self.weights.products())
        sizes = experts if c.num_experts else matmul
        attention = attend.attend_scratch(c.num_kv_heads, c.num_heads // c.num_kv_heads, c.head_dim)
        own = max(sizes.scratch_f(widest, int8), attention, cache_rows.STORE_SCRATCH + c.kv_size, 2048)
        return own, sizes.scratch_h(widest), sizes.scratch_k(widest)

    def write(self) -> None:
        """Embed, every layer, the head.

        In the last layer a token whose logits nobody wants leaves only its key and value. What comes after those is
        written twice: for the last token alone, and for all. Taps see that layer whole.
        """
        c, s, w = self.config, self.steps, self.weights
        s.embed(w.embedding, c.embedding_scale, self.x)
        s.tap("embed", self.x)
        final = len(w.layers) - 1
        angles = [self.local_angles if self.is_sliding(index) else self.angles for index in range(final + 1)]
        for index in range(final + self.tapped):
            self.project(index, self.x, angles[index], "qkv")
            self.attention_half(index, self.x)
            self.ffn_half(index, self.x)
        if not self.tapped:
            self.project(final, self.x, angles[final], "kv")
        self.body_end = s.position()
        if not self.tapped:
            s.last_rows((self.x, self.last), (angles[final], self.last_angles))
            self.finish(final, self.last, self.last_angles)
        self.last_end = s.position()
        self.finish(final, self.x, angles[final])
        self.all_end = s.position()

    def finish(self, final: int, x: Region, angles: Region) -> None:
        """What is left of the last layer, and the head."""
        if not self.tapped:
            self.project(final, x, angles, "q")
            self.attention_half(final, x)
            self.ffn_half(final, x)
        self.head(x)

    def is_sliding(self, index: int) -> bool:
        return bool(self.config.sliding_window) and self.config.sliding_layers[index]

    def project(self, index: int, x: Region, angles: Region, names: str) -> None:
        """q = rope(q(norm x)), k = rope(k(norm x)), v = v(norm x), those in `names`; k and v go into the cache."""
        c, s, layer = self.config, self.steps, self.weights.layers[index]
        queries, keys = (c.num_heads, c.num_kv_heads) if c.qk_norm == "head" else (1, 1)
        every = (
            Projection("q", layer.q, layer.q_bias, self.q, layer.q_norm, queries),
            Projection("k", layer.k, layer.k_bias, self.k, layer.k_norm, keys),
            Projection("v", layer.v, layer.v_bias, self.v),
        )
        parts = [part for part in every if part.name in names]
        rotated = [part for part in parts if part.name != "v"]
        s.norm(x, layer.attention_norm, self.normed, c.rms_norm_eps)
        s.tap(f"blk.{index}.attn_norm", self.normed)
        s.prepare(self.normed, [part.matrix for part in parts])
        for part in parts:
            s.matmul(part.matrix, self.normed, part.out, part.bias)
        s.barrier()
        for part in parts:
            s.tap(f"blk.{index}.{part.name}", part.out)
        for part in rotated:
            if part.norm is not None:
                s.norm(part.out, part.norm, part.out, c.rms_norm_eps, part.pieces)
            s.rope(part.out, c.head_dim, angles, c.rope_interleaved)
        for part in rotated:
            s.tap(f"blk.{index}.{part.name}_rope", part.out)  # before k is stored: a tap may change it
        if "k" in names:
            s.store(self.k, self.v, index)
        s.barrier()

    def attention_half(self, index: int, x: Region) -> None:
        """x += output(attend(q, keys, values)), of all tokens or of the last one."""
        c, s, layer = self.config, self.steps, self.weights.layers[index]
        window = c.sliding_window if self.is_sliding(index) else 0
        s.attend(self.q, self.attended, index, window, c.attention_scale, self.shared)
        s.tap(f"blk.{index}.attn_out", self.attended)
        s.prepare(self.attended, (layer.output,))
        s.matmul(layer.output, self.attended, self.branch_of(x), layer.output_bias, self.adds)
        self.close_branch(x, layer.post_attention_norm, f"blk.{index}.o_proj")
        s.tap(f"blk.{index}.residual", x)

    def ffn_half(self, index: int, x: Region) -> None:
        """x += down(act(gate(norm x)) * up(norm x)), or the same by experts."""
        c, s, layer = self.config, self.steps, self.weights.layers[index]
        s.norm(x, layer.ffn_norm, self.normed, c.rms_norm_eps)
        s.tap(f"blk.{index}.ffn_norm", self.normed)
        if isinstance(layer.ffn, DenseFfn):
            self.dense_ffn(layer.ffn, self.branch_of(x))
        else:
            self.moe_ffn(index, layer.ffn, self.branch_of(x))
        self.close_branch(x, layer.post_ffn_norm, f"blk.{index}.ffn_out")
        s.tap(f"blk.{index}.output", x)

    def dense_ffn(self, ffn: DenseFfn, out: Region) -> None:
        """The gated FFN of every token."""
        s = self.steps
        s.prepare(self.normed, (ffn.gate, ffn.up))
        s.matmul(ffn.gate, self.normed, self.gate)
        s.matmul(ffn.up, self.normed, self.up)
        s.glu(self.gate, self.up, self.activation)
        s.barrier()
        s.prepare(self.gate, (ffn.down,))
        s.matmul(ffn.down, self.gate, out, accumulate=self.adds)

    def moe_ffn(self, index: int, ffn: MoeFfn, out: Region) -> None:
        """Every token through its k best experts; their outputs added in rising order of expert."""
        c, s, k = self.config, self.steps, self.config.experts_per_token
        s.prepare(self.normed, (ffn.router,))
        s.matmul(ffn.router, self.normed, self.scores)
        s.barrier()
        s.route(self.scores, self.chosen, self.expert_weights, c.normalize_expert_weights)
        s.tap(f"blk.{index}.router_probs", self.scores)
        s.tap(f"blk.{index}.router_choice", Region(self.chosen, k), in_ids=True)
        s.prepare(self.normed, (ffn.gate, ffn.up))
        s.experts_up(ffn.gate, self.normed, self.gate, k, self.chosen)
        s.experts_up(ffn.up, self.normed, self.up, k, self.chosen)
        s.glu(self.gate, self.up, self.activation, items=k)
        s.barrier()
        s.prepare(self.gate, (ffn.down,), items=k)
        if not self.adds:
            s.fill(out)
        s.experts_down(ffn.down, self.gate, out, k, self.chosen, self.expert_weights)

    def head(self, x: Region) -> None:
        """logits = head(norm x), capped where the config says so."""
        c, s, w = self.config, self.steps, self.weights
        s.norm(x, w.final_norm, self.normed, c.rms_norm_eps)
        s.tap("final_norm", self.normed)
        s.prepare(self.normed, (w.head,))
        s.matmul(w.head, self.normed, self.logits)
        if c.final_logit_softcapping:
            s.softcap(self.logits, c.final_logit_softcapping)
        s.barrier()
        s.tap("logits", self.logits)

    def branch_of(self, x: Region) -> Region:
        """Where a block's output goes: straight into the residual stream x, or to a branch that is normed first."""
        return x if self.adds else self.branch

    def close_branch(self, x: Region, post_norm: Floats | None, name: str) -> None:
        """All ranks are done with the block; with sandwich norms its output is normed and only then added to x."""
        s = self.steps
        s.barrier()
        if self.adds:
            return
        s.tap(name, self.branch)
        if post_norm is not None:
            s.norm(self.branch, post_norm, self.branch, self.config.rms_norm_eps)
        s.add(x, self.branch)


class DecoderLM:
    """A loaded model. `rml.load` opens it, `new_cache` gives a memory of keys and values, `forward` runs tokens.

    A model and its caches serve one caller at a time; several models may live in one process.
    """

    def __init__(self, source: WeightSource, threads: int | None = None, dot: str | None = None) -> None:
        """source: an opened model. The other arguments are those of `rml.load`."""
        if dot not in (None, "int8", "exact"):
            raise InvalidArgument(f'dot={dot!r}: expected "int8" (quantised weights times int8 activations) or "exact"')
        self.weights = source
        self.config = source.config
        self.dot = dot or "int8"
        ranks = choose_ranks(threads)
        self.layers = for_products(load_weights(source), ranks, exact=dot == "exact")
        self.ropes = [Rope(self.config, self.layers.rope_freqs)]
        if self.config.rope_local_theta is not None:
            self.ropes.append(Rope.local(self.config))
        self.engine = Engine(self.layers.files(), ranks)
        weakref.finalize(self, self.engine.close).atexit = False  # the workers end with the model
        self.passes: ForwardPass | None = None

    @property
    def threads(self) -> int:
        """The number of ranks."""
        return self.engine.ranks

    def new_cache(self, capacity: int, dtype: CacheType = "f32") -> KvCache:
        """A KV cache for `capacity` tokens; dtype "f64", "f32", "f16" or "int8". Memory is used as positions fill."""
        return KvCache(self.config, capacity, dtype)

    def forward(
        self,
        tokens: Sequence[int] | npt.NDArray[np.integer],
        cache: KvCache,
        all_logits: bool = False,
        out: Logits | None = None,
        taps: TapFunction | None = None,
    ) -> Logits:
        """Runs n tokens at positions cache.size onward; returns the logits (vocab,) of the last, or with
        all_logits (n, vocab).

        A prefill and a decode step are the same call. out: a float64 array of that shape to write to. taps: called with
        the name and the values (n, width) of every named activation (`tap_names`), in order; what it returns, if not
        None, takes their place. Without taps none of this costs anything; a call cut into pieces taps each of them.
        Raises InvalidArgument (a ValueError) for empty input, an id outside the vocabulary, a wrong `out`, or a cache
        made for another model; CacheFull when the cache has no room. In every case nothing has changed.
        """
        ids = self._check_tokens(tokens)
        out = self._check_out(len(ids), all_logits, out)
        if cache.config is not self.config and cache.config != self.config:
            raise InvalidArgument("cache: made for another model; use this model's new_cache()")
        start = cache.extend(len(ids))
        try:
            self._run(ids, cache, start, all_logits, out, taps)
        except BaseException:
            cache.truncate(start)
            raise
        return out

    def _check_tokens(self, tokens: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.size == 0:
            raise InvalidArgument(f"tokens: expected one or more ids in one dimension, found shape {ids.shape}")
        if ids.dtype.kind not in "iu":
            raise InvalidArgument(f"tokens: expected integers, found {ids.dtype}")
        wrong = np.flatnonzero((ids < 0) | (ids >= self.config.vocab_size))
        if wrong.size:
            at = int(wrong[0])
            raise InvalidArgument(f"tokens[{at}] = {ids[at]}: outside the vocabulary of {self.config.vocab_size} ids")
        return ids.astype(np.int64)

    def _check_out(self, n: int, all_logits: bool, out: Logits | None) -> Logits:
        shape = (n, self.config.vocab_size) if all_logits else (self.config.vocab_size,)
        if out is None:
            return np.empty(shape)
        if out.shape != shape or out.dtype != np.float64 or not out.flags.writeable:
            raise InvalidArgument(
                f"out: expected a writable float64 array of shape {shape}, found {out.dtype} {out.shape}"
            )
        return out

    def _run(
        self,
        ids: npt.NDArray[np.int64],
        cache: KvCache,
        start: int,
        all_logits: bool,
        out: Logits,
        taps: TapFunction | None,
    ) -> None:
        every = all_logits or taps is not None  # the head runs for every token
        most = max(1, min(CALL_TOKENS, LOGIT_ENTRIES // self.config.vocab_size)) if every else CALL_TOKENS
        run = self._reserve(min(len(ids), most), min(len(ids), most) if every else 1, taps is not None)
        self.engine.use_cache(cache)
        for first in range(0, len(ids), most):
            piece = ids[first : first + most]
            n, position, is_last = len(piece), start + first, first + most >= len(ids)
            self._place(run, piece, position)
            if every:
                self._run_steps(run, 0, run.body_end, n, position, taps)
                self._run_steps(run, run.last_end, run.all_end, n, position, taps)
            else:
                self._run_steps(run, 0, run.last_end if is_last else run.body_end, n, position, None)
            if all_logits:
                out[first : first + n] = self.engine.view(run.logits, n)
        if not all_logits:
            out[:] = self.engine.view(run.logits, n if every else 1)[-1]  # one row is all there is room for otherwise

    def _run_steps(
        self, run: ForwardPass, first: int, last: int, n: int, position: int, taps: TapFunction | None
    ) -> None:
        """Runs steps [first, last) natively, in one piece but for taps."""
        done = first
        if taps is not None:
            for tap in (tap for tap in run.steps.taps if first < tap.step <= last):
                if done < tap.step:
                    self.engine.run(done, tap.step, n, position)
                self._tap(tap, n, taps)
                done = tap.step
        if done < last:
            self.engine.run(done, last, n, position)

    def _tap(self, tap: Tap, n: int, taps: TapFunction) -> None:
        values = self.engine.view(tap.region, n, self.engine.ids if tap.in_ids else self.engine.f)
        replaced = taps(tap.name, values.astype(np.float64))
        if replaced is not None:
            values[:] = replaced

    def tap_names(self) -> list[str]:
        """The names of the activations that `taps` sees, in the order of the forward pass."""
        run = self._reserve(1, 1, tapped=True)
        return [tap.name for tap in run.steps.taps]

    def _place(self, run: ForwardPass, ids: npt.NDArray[np.int64], position: int) -> None:
        """Writes a call's inputs into the arenas: token ids, and cos and sin of every rotary pair at its positions."""
        n, pairs = len(ids), self.config.head_dim // 2
        self.engine.ids[run.tokens : run.tokens + n] = ids
        for rope, region in zip(self.ropes, (run.angles, run.local_angles), strict=False):
            table = self.engine.view(region, n)
            rope.angles(position, n, table[:, :pairs], table[:, pairs:])

    def _reserve(self, tokens: int, logit_tokens: int, tapped: bool = False) -> ForwardPass:
        """A program and arenas for calls of this size: those in place unless this is the largest call so far."""
        run = self.passes
        if run is None or run.capacity < tokens or run.logit_capacity < logit_tokens or run.tapped != tapped:
            if run is not None:
                tokens, logit_tokens = max(tokens, run.capacity), max(logit_tokens, run.logit_capacity)
            address, exact = self.engine.address, self.dot == "exact"
            run = ForwardPass(self.config, self.layers, address, tokens, logit_tokens, exact, tapped)
            self.engine.install(run.steps, run.scratch_sizes())
            self.passes = run
        return run
