"""Small runs of every kind, as the sessions write them, for tests of the HTML reports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from golden_cases import case

import reference
import rml
from tools import layer_errors, report
from tools.check_real_models import Row
from tools.checkpoints import CHECKPOINTS

NAME = CHECKPOINTS[0].name


def real_rows() -> list[dict[str, Any]]:
    """Checks of a checkpoint, one of them failed."""
    return [
        asdict(Row(NAME, "tokenizer", True, note="60 texts")),
        asdict(Row(NAME, "short, exact f64", True, 102, 5e-14, 1.1e-13, 1.9e-17, 0.0041, 1.0, "equal", "worst at 24")),
        asdict(Row(NAME, "short, int8 f32", False, 102, 0.62, 1.41, 0.0041, 0.0041, 0.91, "differs", "<b>no</b> & on")),
    ]


def layer_rows() -> list[dict[str, Any]]:
    """Errors along the layers, those of a toy in place of a checkpoint."""
    toy = case("gemma3/model.gguf")
    tokens, want = toy.golden()
    taps: dict[str, Any] = {}
    reference.load(toy.model).forward(tokens, taps)
    model, rows = rml.load(toy.model, threads=1, dot="exact"), []
    for way, cache in (("exact f64", "f64"), ("exact f32", "f32"), ("int8 f32", "int8")):
        about = {"checkpoint": NAME, "way": way}
        got = model.forward(tokens, model.new_cache(64, cache), all_logits=True)  # type: ignore[arg-type]
        watch = layer_errors.tap_errors(model, tokens, cache, taps)  # type: ignore[arg-type]
        rows.append(layer_errors.layers_row(watch.errors(), **about))
        rows.append(layer_errors.positions_row(got, want, **about))
        rows.append(layer_errors.histogram_row(layer_errors.histogram(got, want), **about))
    return rows


def deep_rows(layers: int) -> list[dict[str, Any]]:
    """The same of a model with so many layers, by dice."""
    dice = np.random.default_rng(0)
    parts = ("attn_norm", "q", "k", "v", "attn_out", "o_proj", "residual", "ffn_norm", "ffn_out", "output")
    taps = ["embed", *(f"blk.{layer}.{part}" for layer in range(layers) for part in parts), "final_norm", "logits"]
    errors = [float("nan"), 0.0, float("inf"), *10.0 ** dice.uniform(-16, -13, len(taps) - 3)]
    row = {"kind": "layers", "checkpoint": NAME, "way": "exact f64", "taps": taps, "relative": errors, "worst": errors}
    positions = {"kind": "positions", "checkpoint": NAME, "way": "exact f64", "worst": [1e-13], "kl": [0.0]}
    histogram = layer_errors.histogram_row(np.arange(40), checkpoint=NAME, way="exact f64")
    return [row, positions, histogram]


def bench_rows() -> list[dict[str, Any]]:
    """Two models; one engine is wrong, one was skipped, one is missing from the list of colours."""
    rows: list[dict[str, Any]] = []
    stamp = {"kl": 1e-5, "max_abs": 0.1, "agreed": 8, "positions": 8, "tokens": [1, 2, 3, 4, 5], "text": "KL 1e-5"}
    for model in ("smollm2-135m-instruct-q4_1", "a-model-with-a-name-that-is-far-too-long-for-any-telephone"):
        for engine, speed in (("rml", 900.0), ("llama.cpp", 600.0), ("another", 10.0)):
            for what, n in (("prefill", 128), ("prefill", 512), ("decode", 0), ("decode", 512)):
                base = {"model": model, "engine": engine, "threads": 2, "what": what, "n": n, "unit": "tokens/s"}
                seconds = [n / speed or 0.1, 1.02 * (n / speed or 0.1)]
                value = {"count": n or 90, "value": speed, "spread": 0.02, "samples": seconds, "stamp": stamp}
                rows.append({**base, **value, "settings": "threads 2", "ratio": speed / 600})
        about = {"model": model, "threads": 2, "unit": "s", "count": 1, "n": 1}
        rows.append({**about, "engine": "rml", "what": "load warm", "value": 0.1, "spread": 0.0, "samples": [0.1]})
        rows.append({**about, "engine": "llama.cpp", "what": "load warm", "note": "wrong logits: token 7"})
        rows.append({**about, "engine": "transformers f32", "what": "all", "note": "skipped: not installed", "n": 0})
        machine = {"model": model, "engine": "machine", "threads": 2, "what": "read bandwidth", "n": 0, "unit": "GB/s"}
        rows.append({**machine, "count": 1, "value": 16.0, "spread": 0.0, "samples": [15.0, 16.0]})
    return rows


def bench_head() -> dict[str, Any]:
    """The stamp of a benchmark on a busy machine."""
    models = {row["model"]: {"read_per_token": {"weights": 1000, "bytes": 600}} for row in bench_rows()}
    about = {"report": "benchmark", "quick": True, "busy_before": 0.5, "models": models}
    return report.stamp(2) | about | {"engines": ["rml", "llama.cpp", "another", "transformers f32"]}


def write_runs(folder: Path) -> None:
    """All reports but that of the goldens, which its own tool writes."""
    report.write_json(folder / "real_models.json", report.stamp(), real_rows())
    report.write_json(folder / "real_layers.json", report.stamp() | {"report": "real_layers"}, layer_rows())
    report.write_json(folder / "bench-1.json", bench_head(), bench_rows())
