"""Where the time of one decoded token goes, step by step: rml's own profile of a forward pass.

    python -m tools.step_profile MODEL                    after 100 tokens, one thread
    python -m tools.step_profile MODEL --context 2048 --threads 2

Every step of the program is timed alone, again and again, and the best time is kept: weights then lie in the caches as
far as they fit. Beside their sum stand a whole native run and a whole call of `forward`, medians of a real decode: what
the run takes more than the sum is memory, what the call takes more than the run is Python. Writes a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import rml
from rml.decoder import DecoderLM
from rml.formats import BY_ID
from rml.kernels import opcodes as op
from rml.kv_cache import KvCache
from tools.report import RUNS, markdown_table, stamp, stamp_text, write_text

NAMES = {
    op.BARRIER: "barrier", op.EMBED: "embedding", op.NORM: "norm", op.QUANTIZE: "round to int8", op.ROPE: "rope",
    op.STORE: "store in cache", op.ATTEND: "attention", op.FINISH: "attention, fold", op.ADD: "add",
    op.LAST_ROW: "last row", op.ROUTE: "route", op.MATMUL: "product", op.BIAS: "bias", op.GLU: "gate",
    op.SOFTCAP: "soft cap", op.EXPERTS_UP: "experts, up", op.EXPERTS_DOWN: "experts, down", op.FILL: "zero",
}  # fmt: skip
TRIES, TOKENS = 15, 60


def best_of(call: Callable[[], object]) -> float:
    """The shortest time of a call, in seconds."""
    return min(_timed(call) for _ in range(TRIES))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def step_times(model: DecoderLM, position: int) -> dict[str, list[float]]:
    """The time of every step of a lone token's program, by name; the call itself taken off."""
    run, engine = model.passes, model.engine
    assert run is not None
    records = engine.program.reshape(-1, op.WIDTH)
    found: dict[str, list[float]] = defaultdict(list)
    for step in range(run.last_end):
        kind = int(records[step][0])
        name = NAMES[kind]
        if kind == op.MATMUL:
            name = f"{BY_ID[int(records[step][1])].name} {records[step][3]} x {records[step][4]}"
        empty = best_of(partial(engine.run, step, step, 1, position))
        taken = best_of(partial(engine.run, step, step + 1, 1, position))
        found[name].append(max(taken - empty, 0.0))
    return found


def decode_times(model: DecoderLM, cache: KvCache, tokens: int) -> tuple[float, float]:
    """Medians of a real decode: one call of forward, and the native run within it, in seconds."""
    inner: list[float] = []
    native = model.engine.run

    def watched(first: int, last: int, count: int, position: int) -> None:
        inner.append(_timed(lambda: native(first, last, count, position)))

    vars(model.engine)["run"] = watched  # in the place of its own method
    try:
        outer = [_timed(partial(model.forward, [17 + i], cache)) for i in range(tokens)]
    finally:
        del vars(model.engine)["run"]
    return statistics.median(outer), statistics.median(inner)


def table(found: dict[str, list[float]], call: float, run: float) -> str:
    """Steps by their share, then the whole."""
    total = sum(map(sum, found.values()))
    rows: list[Sequence[object]] = []
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1])):
        weights = 1
        for part in name.split()[1::2] if " x " in name else ():
            weights *= int(part)
        speed = f"{weights * len(times) / sum(times) / 1e9:.1f}" if " x " in name else "-"
        rows.append((name, len(times), f"{sum(times) * 1e6:.0f}", f"{sum(times) / call:.1%}", speed))
    rows.append(("all steps, alone", "-", f"{total * 1e6:.0f}", f"{total / call:.1%}", "-"))
    rows.append(("native run", "-", f"{run * 1e6:.0f}", f"{run / call:.1%}", "-"))
    rows.append(("forward", "-", f"{call * 1e6:.0f}", "100.0%", "-"))
    columns = ("step", "times", "us", "share", "G weights/s")
    return markdown_table(columns, rows, right=columns[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="step_profile", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, default=100, help="tokens before (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="default %(default)s")
    parser.add_argument("--output", type=Path, default=RUNS / "profile.md", help="default: %(default)s")
    options = parser.parse_args(arguments)
    model = rml.load(options.model, threads=options.threads)
    cache = model.new_cache(options.context + TOKENS + 8)
    model.forward([5 + i % 50 for i in range(options.context)], cache)
    call, run = decode_times(model, cache, TOKENS)
    cache.truncate(options.context + 1)
    text = f"# One token of {options.model.name} after {options.context}, {options.threads} threads\n\n"
    text += f"{stamp_text(stamp(options.threads))}\n{table(step_times(model, options.context), call, run)}"
    write_text(options.output, text)
    print(text)
    print(f"wrote {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
