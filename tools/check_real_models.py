"""Checks real checkpoints against the float64 reference, and prints what it found.

    python -m tools.check_real_models                    every checkpoint in $RML_MODELS_DIR (default .models/)
    python -m tools.check_real_models NAME ...           only these
    python -m tools.check_real_models --reference never  against the committed goldens alone

Per checkpoint: token ids and the chat prompt; then, for exact products with an f64 and an f32 cache and for int8, the
logits of every position of a prompt, the largest 8 and the normaliser against fixtures/real/NAME.json, all of them
against the reference itself; and a greedy continuation of 8 tokens. A run of the reference is kept beside the models
and taken up again while checkpoint, prompt and reference are the same.

Table on stdout; Markdown and JSON in reports/runs/. The last line is `N passed, N failed`; checkpoints that are not
there are listed with what to place where. Exit code 1 if anything failed, or nothing was there to check.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rml
from rml.cli_tables import table_text
from rml.errors import RmlError
from rml.generate import argmax
from rml.kv_cache import CacheType
from rml.scoring import reduce_row
from rml.tokenizer import Tokenizer
from rml.tokenizer_files import open_tokenizer
from tools import real_goldens, report
from tools.checkpoints import Checkpoint, find, models_dir
from tools.comparison import Divergence
from tools.progress import Progress
from tools.real_limits import LIMITS, Limit
from tools.resumable import ReferenceRun

Logits = npt.NDArray[np.float64]
LIVE_BYTES = 1 << 30  # larger checkpoints meet the reference itself only when asked: it takes minutes to hours


@dataclass
class Row:
    """One line of the result. Numbers are None where they do not apply."""

    checkpoint: str
    what: str
    passed: bool
    positions: int | None = None
    golden_error: float | None = None  # largest difference from a kept logit or normaliser
    worst: float | None = None  # largest difference from any logit of the reference
    mean_kl: float | None = None  # nats
    peer_kl: float | None = None  # llama.cpp's on the same file, tokens and positions
    top1: float | None = None
    greedy: str = ""
    note: str = ""


# ---- the reference ---------------------------------------------------------------------------------------------------


def reference_key(checkpoint: Checkpoint, model: Path, ids: Sequence[int]) -> str:
    """What a run of the reference depends on: the file (by size and time), the tokens, the reference's source."""
    digest = hashlib.sha256(repr((checkpoint.name, model.stat().st_size, model.stat().st_mtime_ns, list(ids))).encode())
    for source in sorted((report.ROOT / "reference").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def reference_logits(checkpoint: Checkpoint, model: Path, ids: Sequence[int]) -> Logits:
    """The reference's logits (positions, vocab) of every position, from its kept run or computed now; a mapped file."""
    folder = models_dir() / "reference"
    path = folder / f"{checkpoint.name}-{reference_key(checkpoint, model, ids)}.npy"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{checkpoint.name}-*"):
            old.unlink()
        compute_reference(model, ids, path)
    logits: Logits = np.load(path, mmap_mode="r")
    return logits


def compute_reference(model: Path, ids: Sequence[int], path: Path) -> None:
    """Runs the reference, or what is left of a run, and writes its logits; the file appears when it is whole."""
    run = ReferenceRun(model, ids, f"{len(ids)} tokens", path.parent)
    partial = path.with_suffix(".part")
    out = np.lib.format.open_memmap(partial, "w+", np.dtype(np.float64), (len(ids), run.model.config.vocab))
    with Progress("reference, logits", len(ids), "positions") as progress:
        for position, row in enumerate(run.rows(range(len(ids)))):
            out[position] = row
            progress.advance()
    out.flush()
    partial.rename(path)
    run.forget()


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_tokenizer(checkpoint: Checkpoint, tokenizer: Tokenizer, golden: Mapping[str, Any]) -> Row:
    """Every text's ids, and the text back from them."""
    cases = golden["tokenizer"]["cases"]
    wrong = [
        case["text"]
        for case in cases
        if tokenizer.encode(case["text"], special=case["special"], bos=False) != case["ids"]
    ]
    note = f"{len(cases)} texts, ids of {golden['tokenizer']['source']}"
    if wrong:
        note = f"{len(wrong)} of {len(cases)} texts have other ids, the first {wrong[0]!r}"
    return Row(checkpoint.name, "tokenizer", not wrong, note=note)


def check_chat(checkpoint: Checkpoint, tokenizer: Tokenizer, chat: Mapping[str, Any]) -> Row:
    """The prompt of a conversation with turn markers in a user's message."""
    ids = tokenizer.encode_chat(chat["messages"])
    if ids == chat["ids"]:
        return Row(checkpoint.name, "chat prompt", True, note=f"{len(ids)} tokens, ids of {chat['source']}")
    at = next(
        (i for i, (a, b) in enumerate(zip(ids, chat["ids"], strict=False)) if a != b), min(len(ids), len(chat["ids"]))
    )
    return Row(checkpoint.name, "chat prompt", False, note=f"differs from token {at} on")


def check_logits(
    checkpoint: Checkpoint, model: Path, prompt: Mapping[str, Any], limit: Limit, wanted: Logits | None
) -> Row:
    """One way of running the engine over one prompt, against the kept logits and, if given, all of the reference's."""
    loaded = rml.load(model, dot=limit.dot)
    kept = {position["position"]: position for position in prompt["positions"]}
    found, golden_error = Divergence(), 0.0
    for position, logits in enumerate(
        engine_logits(loaded, prompt["ids"], limit.cache, f"{checkpoint.name}, {limit.name}")
    ):
        if position in kept:
            golden_error = max(golden_error, kept_error(kept[position], logits))
        if wanted is not None:
            found.add(position, wanted[position], logits)
    parted, margin = compare_greedy(continue_greedily(loaded, prompt["ids"], limit.cache), prompt)
    row = Row(
        checkpoint.name,
        f"{prompt['name']}, {limit.name}",
        passed=True,
        positions=len(prompt["ids"]) if wanted is not None else len(kept),
        golden_error=golden_error,
        greedy=parted,
    )
    if wanted is not None:
        row.worst, row.mean_kl, row.top1 = found.worst, found.mean_kl, found.top1
        row.note = f"worst at position {found.worst_at[0]}, token {found.worst_at[1]}"
        if prompt["peer"] and prompt["name"] == "short":
            row.peer_kl = prompt["peer"]["mean_kl"]
    failures = list(limit.failures(row.golden_error, row.worst, row.mean_kl, row.peer_kl, margin))
    row.passed, row.note = not failures, "; ".join([*failures, row.note]).strip("; ")
    return row


def engine_logits(model: rml.DecoderLM, ids: Sequence[int], cache_dtype: CacheType, what: str) -> Iterator[Logits]:
    """The engine's logits (vocab,) of each position, a few positions at a time."""
    step = max(1, min(64, (1 << 22) // model.config.vocab_size))
    cache = model.new_cache(len(ids), cache_dtype)
    with Progress(what, len(ids), "positions") as progress:
        for first in range(0, len(ids), step):
            piece = ids[first : first + step]
            yield from model.forward(piece, cache, all_logits=True)
            progress.advance(len(piece))


def kept_error(kept: Mapping[str, Any], logits: Logits) -> float:
    """The largest difference at one position of the golden: of its logits, and of the normaliser over all of them."""
    gap = np.abs(logits[kept["ids"]] - kept["logits"]).max()
    normaliser = abs(reduce_row(0, logits, 1).log_sum_exp - kept["log_sum_exp"])
    return float(max(gap, normaliser)) if np.isfinite(logits).all() else float("inf")


def compare_greedy(tokens: Sequence[int], prompt: Mapping[str, Any]) -> tuple[str, float]:
    """Where a continuation leaves the reference's, in words, and the reference's margin there (0: it never does)."""
    for step, (a, b) in enumerate(zip(tokens, prompt["greedy"], strict=True)):
        if a != b:
            return f"until {step}, margin {prompt['margins'][step]:.2g}", prompt["margins"][step]
    return "equal", 0.0


def continue_greedily(model: rml.DecoderLM, ids: Sequence[int], cache_dtype: CacheType) -> list[int]:
    """The engine's greedy continuation."""
    cache = model.new_cache(len(ids) + real_goldens.GREEDY, cache_dtype)
    added: list[int] = []
    logits = model.forward(ids, cache)
    while True:
        added.append(argmax(logits))
        if len(added) == real_goldens.GREEDY:
            return added
        logits = model.forward(added[-1:], cache)


def check(checkpoint: Checkpoint, model: Path, live: str) -> Iterator[Row]:
    """All rows of one checkpoint."""
    golden = real_goldens.read_golden(checkpoint)
    if golden is None:
        yield Row(checkpoint.name, "golden", False, note="none yet: python -m tools.make_real_model_goldens")
        return
    if golden["file"]["size"] != model.stat().st_size:
        found = model.stat().st_size
        yield Row(checkpoint.name, "file", False, note=f"{found} bytes, the golden is of {golden['file']['size']}")
        return
    tokenizer = open_tokenizer(model)
    yield check_tokenizer(checkpoint, tokenizer, golden)
    if golden["chat"]:
        yield check_chat(checkpoint, tokenizer, golden["chat"])
    for prompt in golden["prompts"]:
        wanted = None
        if prompt["name"] == "short" and (live == "always" or (live == "auto" and model.stat().st_size < LIVE_BYTES)):
            wanted = reference_logits(checkpoint, model, prompt["ids"])
        for limit in LIMITS:
            yield check_logits(checkpoint, model, prompt, limit, wanted)


# ---- report ----------------------------------------------------------------------------------------------------------

COLUMNS = (
    "checkpoint",
    "what",
    "verdict",
    "positions",
    "top-8 error",
    "worst error",
    "mean KL",
    "llama.cpp KL",
    "top-1",
    "greedy",
    "note",
)
RIGHT = COLUMNS[3:9]


def cells(row: Row) -> tuple[str, ...]:
    """A row as it is shown."""
    return (
        row.checkpoint,
        row.what,
        "passed" if row.passed else "FAILED",
        "-" if row.positions is None else str(row.positions),
        report.number_text(row.golden_error),
        report.number_text(row.worst),
        report.number_text(row.mean_kl),
        report.number_text(row.peer_kl),
        "-" if row.top1 is None else f"{100 * row.top1:.1f} %",
        row.greedy or "-",
        row.note,
    )


def write_reports(folder: Path, rows: Sequence[Row], skipped: Sequence[str]) -> None:
    """real_models.md and real_models.json."""
    stamp = report.stamp()
    passed = sum(row.passed for row in rows)
    text = (
        "# Real checkpoints against the float64 reference\n\n"
        + report.stamp_text(stamp)
        + "\n"
        + report.markdown_table(COLUMNS, map(cells, rows), RIGHT)
        + "".join(f"\n{line}" for line in skipped)
        + f"\n{passed} passed, {len(rows) - passed} failed\n"
        + EXPLANATION
    )
    report.write_text(folder / "real_models.md", text)
    report.write_json(folder / "real_models.json", stamp, [asdict(row) for row in rows])


EXPLANATION = """
- **top-8 error**: largest difference from the eight largest logits, or from the log-sum-exp, kept in fixtures/real/.
- **worst error**: largest difference from any logit of the reference, at every position.
- **mean KL**: mean Kullback-Leibler divergence from the reference's distribution, in nats; **llama.cpp KL** is that of
  llama.cpp on the same file, tokens and positions, measured when the golden was made.
- **top-1**: positions at which the reference's likeliest token is also the engine's.
- **greedy**: eight tokens, each the likeliest, compared with the reference's; where they part, how far the reference's
  own choice was ahead of its second.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoints; none = all that are present")
    parser.add_argument(
        "--reference", choices=("auto", "always", "never"), default="auto", help="run the reference itself"
    )
    parser.add_argument("--report-dir", type=Path, default=report.RUNS, help="where reports go")
    options = parser.parse_args(argv)
    rows: list[Row] = []
    skipped: list[str] = []
    for checkpoint in find(options.names):
        model = models_dir() / checkpoint.path
        if not model.exists():
            skipped.append(f"skipped {checkpoint.name}: place {checkpoint.origin} at $RML_MODELS_DIR/{checkpoint.path}")
            continue
        try:
            rows += check(checkpoint, model, options.reference)
        except RmlError as error:
            rows.append(Row(checkpoint.name, "run", False, note=f"{type(error).__name__}: {error}"))
    passed = sum(row.passed for row in rows)
    print(table_text("Real checkpoints", COLUMNS, map(cells, rows), RIGHT))
    print("\n".join(skipped), end="\n\n" if skipped else "")
    write_reports(options.report_dir, rows, skipped)
    if not rows:
        print(f"nothing to check in {models_dir()}: run python -m tools.fetch_real_models")
    print(f"{passed} passed, {len(rows) - passed} failed")
    return 0 if rows and passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
