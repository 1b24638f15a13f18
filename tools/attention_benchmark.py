"""One decode step of a Llama-3-8B layer's attention (32 heads over 8 kv heads of 128), per context and cache type.

    python -m tools.attention_benchmark                     512, 4096 and 16384 tokens, all cache types
    python -m tools.attention_benchmark --tokens 4096 --dtypes f32,int8 --rounds 50
    python -m tools.attention_benchmark --layers 1          always the same layer, as much of it as caches hold

One thread, also for BLAS. Beside the kernels, in the same rounds: one plain read of the f32 keys and values,
attend_ref (the definition, in float64), and the same step in numpy's f32 BLAS, over the cache's own layout
([token][head][channel]) and over keys and values laid out per head ([head][token][channel]). Every round times each
contender once, right after an untimed run on another layer, so what else the machine does hits all alike, and what the
contender before it left in caches and prefetchers does not count. The layers are taken in turn and are 268 MB of f32
together: as in a decoder, nothing of a layer is left in the caches when its turn comes. Best and median of the rounds
are kept; the first round is burn-in. Timed is the thread's processor time, which on an idle machine is the time on the
clock, and on a busy one leaves out the waiting. With two ranks, their shares are timed one after the other and the
slower one counts.

No speed is printed for a wrong result: each row of the kernels carries its largest difference from attend_ref on what
that cache holds. Writes a Markdown table and a JSON file of all samples.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from tools.report import RUNS, markdown_table, number_text, stamp, stamp_text, write_json, write_text

HEADS, KV_HEADS, DIM = 32, 8, 128
LIMIT = 1e-9  # of the largest difference from attend_ref, values of size 1
F32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


@dataclass
class Contender:
    """Something timed once a round: `run` with the number of a layer."""

    name: str
    dtype: str
    run: Callable[[int], object]
    error: float | None = None
    samples: list[float] = field(default_factory=list)

    def time_once(self, layer: int, other: int) -> None:
        """Runs `other`, then times `layer`."""
        self.run(other)
        start = time.thread_time()
        self.run(layer)
        self.samples.append(time.thread_time() - start)

    @property
    def best(self) -> float:
        return min(self.samples)


def numpy_step(q: F32, k: F32, v: F32) -> F32:
    """The step in f32 BLAS: q (8, 4, 128), k and v (8, tokens, 128) or views of that shape; gives (8, 4, 128)."""
    scores = np.matmul(q, k.transpose(0, 2, 1)) * np.float32(DIM**-0.5)
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    result: F32 = np.matmul(scores, v)
    return result


class Setting:
    """Keys, values and queries of one context length, and everything that is timed on them."""

    def __init__(self, tokens: int, layers: int, dtypes: Sequence[str]) -> None:
        self.tokens, self.layers = tokens, layers
        rng = np.random.default_rng(8)
        self.q = rng.standard_normal((1, HEADS, DIM))
        self.keys = rng.standard_normal((layers, tokens, KV_HEADS, DIM), np.float32)
        self.values = rng.standard_normal((layers, tokens, KV_HEADS, DIM), np.float32)
        self.contenders = [Contender("one read", "f32", self._read)]
        for dtype in dtypes:
            self.contenders += self._kernels(dtype)
        self.contenders += self._numpy()
        self.contenders.append(Contender("attend_ref", "f64", self._definition()))

    def _read(self, layer: int) -> object:
        """Reads keys and values once, through the faster of numpy's reductions."""
        return [part.reshape(-1).view(np.float64) @ part.reshape(-1).view(np.float64) for part in self._both(layer)]

    def _both(self, layer: int) -> tuple[F32, F32]:
        return self.keys[layer], self.values[layer]

    def _kernels(self, dtype: str) -> list[Contender]:
        """One rank, and two ranks' shares; checked against the definition on what the cache holds."""
        from rml.attention import LayerAttention, attend_ref
        from rml.kv_cache import KvCache

        cache = KvCache(layer_config(self.layers), self.tokens, dtype)  # type: ignore[arg-type]
        cache.extend(self.tokens)
        store = LayerAttention(cache, min(self.tokens, 512))
        for layer in range(self.layers):
            for first in range(0, self.tokens, 512):
                part = slice(first, first + 512)
                k, v = (values[part].astype(np.float64) for values in self._both(layer))
                store.store(k, v, first, layer)
        found = []
        expected = attend_ref(self.q, cache.read(0, 0), cache.read(0, 1), self.tokens - 1)
        for ranks in (1, 2):
            attention = LayerAttention(cache, 1, ranks)
            error = float(np.abs(attention.attend(self.q, self.tokens - 1) - expected).max())
            steps = [attention.steps(1, self.tokens - 1, layer) for layer in range(self.layers)]
            if ranks == 1:
                found.append(Contender("rml", dtype, Steps(steps), error))
            else:
                found.append(Shares("rml, slower of 2 ranks", dtype, Steps(steps), error))
        return found

    def _numpy(self) -> list[Contender]:
        q = self.q.astype(np.float32).reshape(KV_HEADS, HEADS // KV_HEADS, DIM)
        same = [[part.transpose(1, 0, 2) for part in self._both(layer)] for layer in range(self.layers)]
        heads = [[np.ascontiguousarray(part) for part in layer] for layer in same]
        return [
            Contender("numpy f32 BLAS", "f32", lambda layer: numpy_step(q, *same[layer])),
            Contender("numpy f32 BLAS, laid out per head", "f32", lambda layer: numpy_step(q, *heads[layer])),
        ]

    def _definition(self) -> Callable[[int], object]:
        from rml.attention import attend_ref

        k, v = (part.astype(np.float64) for part in self._both(0))
        return lambda layer: attend_ref(self.q, k, v, self.tokens - 1)

    def measure(self, rounds: int, say: Callable[[str], None]) -> None:
        """Times every contender in every round; attend_ref, which takes long, in every tenth."""
        for turn in range(rounds + 1):
            for contender in self.contenders:
                if contender.name != "attend_ref" or turn % 10 < 2:
                    contender.time_once(turn % self.layers, (turn + self.layers // 2) % self.layers)
            if turn == 0:
                for contender in self.contenders:
                    contender.samples.clear()
        say(f"{self.tokens} tokens: {rounds} rounds")

    def rows(self) -> list[dict[str, Any]]:
        by_name = {contender.name: contender.best for contender in self.contenders if contender.dtype == "f32"}
        fastest = min(best for name, best in by_name.items() if name.startswith("numpy"))
        return [
            {
                "tokens": self.tokens, "layers": self.layers, "what": c.name, "dtype": c.dtype,
                "milliseconds": c.best * 1e3, "median": statistics.median(c.samples) * 1e3,
                "reads": c.best / by_name["one read"], "of_numpy": c.best / fastest, "error": c.error,
                "samples": [round(sample * 1e3, 5) for sample in c.samples],
            }
            for c in self.contenders
        ]  # fmt: skip


class Steps:
    """The prepared kernel calls of each layer, run one after the other."""

    def __init__(self, layers: list[list[Callable[[], None]]]) -> None:
        self.layers = layers

    def __call__(self, layer: int) -> None:
        for part in self.layers[layer]:
            part()


class Shares(Contender):
    """Two ranks: the slower share of the first half of the calls, then of the second half."""

    def time_once(self, layer: int, other: int) -> None:
        assert isinstance(self.run, Steps)
        self.run(other)
        seconds = []
        for part in self.run.layers[layer]:
            start = time.thread_time()
            part()
            seconds.append(time.thread_time() - start)
        self.samples.append(max(seconds[:2]) + max(seconds[2:]))


def layer_config(layers: int) -> Any:
    """A ModelConfig with the attention of Llama 3 8B."""
    from rml.config import ModelConfig, RopeConfig

    return ModelConfig(
        model_type="llama", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_layers=layers,
        num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, rms_norm_eps=1e-5, max_position_embeddings=131072,
        rope=RopeConfig(500000.0),
    )  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    columns = ["tokens", "what", "cache", "ms", "median", "x one read", "x numpy", "largest error"]
    cells = [
        [
            row["tokens"], row["what"], row["dtype"], f"{row['milliseconds']:.3f}", f"{row['median']:.3f}",
            f"{row['reads']:.2f}", f"{row['of_numpy']:.2f}", number_text(row["error"]),
        ]
        for row in rows
    ]  # fmt: skip
    return markdown_table(columns, cells, right=[*columns[:1], *columns[3:]])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="attention_benchmark", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", default="512,4096,16384", help="context lengths (default %(default)s)")
    parser.add_argument("--dtypes", default="f64,f32,f16,int8", help="cache types (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=40, help="rounds per context (default %(default)s)")
    parser.add_argument("--layers", type=int, default=0, help="layers taken in turn (default: 32768 / tokens)")
    parser.add_argument("--output", type=Path, default=RUNS / "attention", help="path of the reports, without suffix")
    parser.add_argument("--allow-slow-kernels", action="store_true", help="also without release kernels")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    options = parse(arguments)
    from rml.build_info import BUILD

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if BUILD.mode != "release" and not options.allow_slow_kernels:
        say(
            f"{BUILD}: their speed means nothing. Install the project with RML_KERNELS=release, or --allow-slow-kernels"
        )
        return 2
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for tokens in map(int, options.tokens.split(",")):
            setting = Setting(tokens, options.layers or max(1, 32768 // tokens), options.dtypes.split(","))
            setting.measure(options.rounds, say)
            rows += setting.rows()
    wrong = [row for row in rows if row["error"] is not None and not row["error"] <= LIMIT]
    for row in wrong:
        say(f"WRONG: {row['tokens']} tokens, {row['what']}, {row['dtype']}: {row['error']:.1e} from attend_ref")
    rows = [row for row in rows if row not in wrong]
    head = stamp(threads=1)
    text = f"# One attention step, {HEADS} heads over {KV_HEADS} kv heads of {DIM}\n\n{stamp_text(head)}\n{table(rows)}"
    write_text(options.output.with_suffix(".md"), text)
    write_json(options.output.with_suffix(".json"), head, rows)
    print(table(rows))
    say(f"wrote {options.output.with_suffix('.md')} and .json")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
