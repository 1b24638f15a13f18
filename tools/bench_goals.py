"""What the engine is meant to reach, as ratios within one run, and what a run shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Found = Iterator[tuple[str, float]]  # where, ratio
Look = Callable[["Results"], Found]

SMOLLM2, GEMMA = "smollm2-135m-instruct-q4_1", "gemma3-270m-q4_k_m"
REAL = (SMOLLM2, GEMMA)
FROM_MEMORY = ("random-tinyllama-q8_0", "random-tinyllama-q4_0")
BF16 = "random-smollm2-bf16"


def label(found: Row) -> str:
    """What a row measures: the number of tokens is part of it where it was chosen."""
    return f"{found['what']} {found['n']}" if found["what"] in ("prefill", "decode") else str(found["what"])


class Results:
    """The rows that have a value, by what they are."""

    def __init__(self, rows: Sequence[Row], models: Mapping[str, Any]) -> None:
        self.rows = {(r["model"], r["engine"], r["threads"], r["what"], r["n"]): r for r in rows if "value" in r}
        self.models = models

    def of(self, engine: str, what: str, models: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
        """Rows of an engine, with words for where they were measured; of all models without a list."""
        for (model, who, threads, kind, _), found in self.rows.items():
            if who == engine and kind == what and (not models or model in models):
                yield f"{model}, {label(found)}, {threads} thread{'s' * (threads > 1)}", found

    def twin(self, found: Row, **changes: Any) -> Row | None:
        """The same measurement with another engine, number of threads or context."""
        wanted = {**found, **changes}
        return self.rows.get((wanted["model"], wanted["engine"], wanted["threads"], wanted["what"], wanted["n"]))

    def read_share(self, found: Row) -> float | None:
        """Weight bytes per second of a decode row as a share of the read bandwidth measured beside it."""
        machine = self.twin(found, engine="machine", what="read bandwidth", n=0)
        size = weight_bytes(self.models, found)
        return None if machine is None or size is None else found["value"] * size / 1e9 / machine["value"]


def weight_bytes(models: Mapping[str, Any], found: Row) -> float | None:
    """Bytes of weights that this engine reads for one token: as stored, or of transformers' dtype."""
    if found["model"] not in models:
        return None
    read = models[found["model"]]["read_per_token"]
    width = {"transformers f32": 4.0, "transformers bf16": 2.0}.get(found["engine"])
    return float(read["weights"]) * width if width else float(read["bytes"])


def against_llama_cpp(what: str, models: Sequence[str] = (), only: int | None = None) -> Look:
    """The ratio that the rows carry."""

    def look(results: Results) -> Found:
        for place, found in results.of("rml", what, models):
            if "ratio" in found and only in (None, found["n"]):
                yield place, found["ratio"]

    return look


def against_transformers(what: str, engines: Sequence[str], models: Sequence[str]) -> Look:
    """Speed over that of the fastest of these engines."""

    def look(results: Results) -> Found:
        for place, found in results.of("rml", what, models):
            peers = [twin["value"] for engine in engines if (twin := results.twin(found, engine=engine))]
            if peers:
                yield place, found["value"] / max(peers)

    return look


def loads(results: Results) -> Found:
    """Load to first logits, from the disk and from memory."""
    yield from against_llama_cpp("load cold", [GEMMA])(results)
    yield from against_llama_cpp("load warm", [GEMMA])(results)


def bandwidth_share(results: Results) -> Found:
    """Decoding the large models at once: what share of the memory's speed the weights are read with."""
    for place, found in results.of("rml", "decode", FROM_MEMORY):
        share = results.read_share(found)
        if share is not None and found["n"] == 0:
            yield place, share


def two_threads(results: Results) -> Found:
    """Two threads over one."""
    for place, found in results.of("rml", "decode"):
        if found["threads"] == 2 and (alone := results.twin(found, threads=1)):
            yield place, found["value"] / alone["value"]


def long_context(results: Results) -> Found:
    """2048 tokens of context over none."""
    for place, found in results.of("rml", "decode", [SMOLLM2]):
        if found["n"] == 2048 and (short := results.twin(found, n=0)):
            yield place, found["value"] / short["value"]


@dataclass(frozen=True)
class Goal:
    """A ratio to reach in every place; most: it is a ceiling."""

    text: str
    target: float
    look: Look
    most: bool = False

    def worst(self, results: Results) -> tuple[str, float] | None:
        """Where it is furthest from the target; None if nothing of it was measured."""
        found = list(self.look(results))
        if not found:
            return None
        return (max if self.most else min)(found, key=lambda pair: pair[1])

    def reached(self, value: float) -> bool:
        """Whether this value is good enough."""
        return value <= self.target if self.most else value >= self.target


TRANSFORMERS = ("transformers f32", "transformers bf16")
GOALS = (
    Goal("decode, SmolLM2 and Gemma, against llama.cpp", 1.5, against_llama_cpp("decode", REAL)),
    Goal("decode, TinyLlama's shape from memory, against llama.cpp", 1.15, against_llama_cpp("decode", FROM_MEMORY)),
    Goal("the same: weight bytes read, share of the read bandwidth", 0.8, bandwidth_share),
    Goal("prefill 512, SmolLM2, against llama.cpp", 1.5, against_llama_cpp("prefill", [SMOLLM2], 512)),
    Goal("prefill 512, Gemma, against llama.cpp", 1.0, against_llama_cpp("prefill", [GEMMA], 512)),
    Goal("decode against transformers, its best dtype", 4.0, against_transformers("decode", TRANSFORMERS, REAL)),
    Goal(
        "prefill of a bfloat16 directory against transformers in float32", 1.0,
        against_transformers("prefill", TRANSFORMERS[:1], [BF16]),
    ),
    Goal("load to first logits, Gemma, against llama.cpp", 1.0, loads),
    Goal("two threads against one, decode", 1.8, two_threads),
    Goal("peak resident memory against llama.cpp", 1.0, against_llama_cpp("peak memory"), most=True),
    Goal("decode after 2048 tokens against 0, SmolLM2", 0.8, long_context),
)  # fmt: skip
