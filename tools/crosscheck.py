"""Every toy of fixtures/ through four implementations: reference, transformers, llama.cpp and, if it is there, rml.

    python tools/crosscheck.py                    all toys; prints a table, then `N passed, N failed`
    python tools/crosscheck.py qwen gemma3        only the toys whose names begin so
    python tools/crosscheck.py --report FILE.md   writes the table there too
    python tools/crosscheck.py --model FILE.gguf  only this real checkpoint, reference against transformers
    python tools/crosscheck.py --rml required     fails if rml cannot be loaded (auto: leaves it out and says so)

What is compared: reference with transformers truly in float64 (Hugging Face directories); reference with llama.cpp on a
float32 copy of each GGUF file; rml (exact products, float64 cache) with the reference, and with llama.cpp. A file that
llama.cpp cannot agree on says why, and fails if it agrees after all. The file as it is stored goes through llama.cpp
too, for information: there, activations are rounded to float16 or int8.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "tests")]  # behind what is installed: rml must be the built one

from tolerances import ENGINE_EXACT_F64, LLAMA_CPP, LLAMA_CPP_GEMMA, REFERENCE_TRANSFORMERS  # noqa: E402

import reference  # noqa: E402

Array = npt.NDArray[np.float64]
Engine = Callable[[Path, list[int]], Array]
FIXTURES = ROOT / "fixtures"

WINDOW = 11  # of the toys
LLAMA_CPP_DIFFERS: dict[str, tuple[int, str]] = {
    "llama-yarn-betas": (0, "llama.cpp does not read yarn_beta_fast and yarn_beta_slow"),
    "mistral": (WINDOW, "llama.cpp has no sliding window for the llama architecture"),
    "mixtral-window": (WINDOW, "llama.cpp has no sliding window for the llama architecture"),
    "qwen3_moe-raw": (0, "llama.cpp always renormalises the chosen experts of qwen3moe"),
    "gemma3-scale": (0, "llama.cpp scales gemma3's scores by head_dim, whatever query_pre_attn_scalar was"),
    "olmoe": (0, "llama.cpp loads olmoe only with as many key/value heads as heads"),
    "olmoe-renormalised": (0, "llama.cpp never renormalises the chosen experts of olmoe"),
}
"""Toy: positions that still agree, and why the others cannot."""


@dataclass(frozen=True)
class Row:
    """One comparison. `passed` None: for information."""

    model: str
    what: str
    error: float
    where: str
    limit: float | None
    passed: bool | None
    note: str = ""


def worst(a: Array, b: Array) -> tuple[float, str]:
    """The largest absolute difference, and its position and token."""
    gap = np.abs(a - b)
    position, token = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap))), gap.shape)
    return float(gap[position, token]), f"position {position}, token {token}"


def compare(model: str, what: str, a: Array, b: Array, limit: float, note: str = "") -> Row:
    error, where = worst(a, b)
    return Row(model, what, error, where, limit, error < limit, note)


def divergence(wanted: Array, got: Array) -> float:
    """Mean over the positions of the Kullback-Leibler divergence of softmax(got) from softmax(wanted), in nats."""

    def log_softmax(x: Array) -> Array:
        x = x - x.max(axis=-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))

    p, q = log_softmax(wanted), log_softmax(got)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def against_llama_cpp(model: str, what: str, logits: Array, peer: Array | None, family: str) -> Row:
    """A row for llama.cpp's logits (None: it refused the file), with the reason where it cannot agree."""
    limit = LLAMA_CPP_GEMMA if family == "gemma3_text" else LLAMA_CPP
    agree, reason = LLAMA_CPP_DIFFERS.get(model.split("/")[0], (len(logits), ""))
    if peer is None:
        return Row(model, what, float("nan"), "refused", limit, bool(reason), reason or "llama.cpp refused the file")
    if not reason:
        return compare(model, what, logits, peer, limit)
    error, where = worst(logits, peer)
    if agree and worst(logits[:agree], peer[:agree])[0] >= limit:
        return Row(model, what, error, where, limit, False, f"the first {agree} positions differ too: {reason}")
    if error < limit:
        return Row(model, what, error, where, limit, False, f"agrees although this was noted: {reason}")
    start = f", equal up to position {agree - 1}" if agree else ""
    return Row(model, what, error, where, limit, True, f"expected{start}: {reason}")


def find_engine() -> tuple[Engine | None, str]:
    """rml with exact products and a float64 cache, the prompt in one call; or None, and why."""
    try:
        rml: Any = importlib.import_module("rml")
        load = rml.load
        load(FIXTURES / "llama" / "model.gguf")  # kernels that are missing, or made for another processor, show here
    except (ImportError, AttributeError) as problem:
        return None, f"rml is left out: {problem}"

    def logits(model: Path, tokens: list[int]) -> Array:
        loaded = load(model, dot="exact")
        cache = loaded.new_cache(len(tokens), dtype="f64")
        return np.array(loaded.forward(tokens, cache, all_logits=True), dtype=np.float64)

    return logits, "rml is compared"


def hf_rows(case: dict[str, Any], tokens: list[int], logits: Array) -> Iterator[Row]:
    from tools import crosscheck_peers as peers

    peer = peers.transformers_logits(FIXTURES / case["model"], tokens)
    yield compare(case["model"], "reference, transformers", logits, peer, REFERENCE_TRANSFORMERS)


def gguf_rows(case: dict[str, Any], tokens: list[int], logits: Array, engine: Array | None) -> Iterator[Row]:
    from tools import crosscheck_peers as peers

    def run(path: Path) -> Array | None:
        try:
            return peers.llama_cpp_logits(path, tokens)
        except ValueError:
            return None

    name, path = case["model"], FIXTURES / case["model"]
    with tempfile.TemporaryDirectory() as place:
        wide = run(peers.float32_copy(path, Path(place) / "float32.gguf"))
    yield against_llama_cpp(name, "reference, llama.cpp", logits, wide, case["family"])
    if engine is not None:
        yield against_llama_cpp(name, "rml, llama.cpp", engine, wide, case["family"])
    if wide is not None and name.split("/")[0] not in LLAMA_CPP_DIFFERS:
        stored = run(path)
        if stored is not None:
            note = f"activations rounded; mean KL divergence {divergence(logits, stored):.1e} nats"
            yield Row(name, "reference, llama.cpp as stored", *worst(logits, stored), None, None, note)


def rows_of(case: dict[str, Any], engine: Engine | None) -> Iterator[Row]:
    """All comparisons of one model path."""
    golden = json.loads((FIXTURES / case["logits"]).read_text(encoding="utf-8"))
    tokens, path = golden["tokens"], FIXTURES / case["model"]
    logits = reference.load(path).forward(tokens)
    fast = None
    if engine is not None:
        try:
            fast = engine(path, tokens)
            yield compare(case["model"], "rml, reference", fast, logits, ENGINE_EXACT_F64)
        except ValueError as problem:
            yield Row(case["model"], "rml, reference", float("nan"), "refused", None, False, str(problem))
    if path.is_dir():
        yield from hf_rows(case, tokens, logits)
    else:
        yield from gguf_rows(case, tokens, logits, fast)


def real_row(model: Path) -> Row:
    """A real checkpoint, reference against transformers on the same widened weights."""
    from tools import crosscheck_real

    length, ours, theirs = crosscheck_real.logits(model)
    note = f"{length} tokens, {len(ours)} of them compared"
    return compare(model.name, "reference, transformers", ours, theirs, REFERENCE_TRANSFORMERS, note)


def line(row: Row) -> str:
    verdict = "info" if row.passed is None else "ok" if row.passed else "FAIL"
    limit = "" if row.limit is None else f"< {row.limit:.0e}"
    return (
        f"{verdict:4}  {row.model:42}  {row.what:30}  {row.error:8.1e}  {limit:7}  {row.where:24}  {row.note}".rstrip()
    )


def markdown(rows: list[Row], head: str) -> str:
    lines = [
        "# Crosscheck",
        "",
        head,
        "",
        "| model | compared | worst | limit | where | | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = "info" if row.passed is None else "ok" if row.passed else "**failed**"
        limit = "" if row.limit is None else f"{row.limit:.0e}"
        lines.append(f"| {row.model} | {row.what} | {row.error:.1e} | {limit} | {row.where} | {verdict} | {row.note} |")
    return "\n".join(lines) + "\n"


def all_rows(names: list[str], models: list[Path], engine: Engine | None) -> Iterator[Row]:
    """The chosen toys, or the real checkpoints if there are any."""
    for model in models:
        yield real_row(model)
    cases = [] if models else json.loads((FIXTURES / "MANIFEST.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        if not names or any(case["model"].startswith(name) for name in names):
            yield from rows_of(case, engine)


def main(arguments: list[str] | None = None) -> int:
    from tools import crosscheck_peers as peers

    parser = argparse.ArgumentParser(prog="crosscheck", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only toys whose names begin so")
    parser.add_argument("--report", type=Path, help="write the table there as Markdown")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a real GGUF file, instead of the toys")
    parser.add_argument("--rml", choices=["auto", "required"], default="auto")
    options = parser.parse_args(arguments)
    engine, about = find_engine()
    if engine is None and options.rml == "required":
        parser.error(about)
    head = f"{peers.versions()}; {about}"
    print(head, flush=True)
    rows: list[Row] = []
    for row in all_rows(options.names, options.model, engine):
        rows.append(row)
        print(line(row), flush=True)
    passed, failed = (sum(row.passed is verdict for row in rows) for verdict in (True, False))
    if options.report:
        options.report.write_text(markdown(rows, head) + f"\n{passed} passed, {failed} failed\n", encoding="utf-8")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
