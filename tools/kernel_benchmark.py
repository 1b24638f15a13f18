"""Every product kernel beside the machine's own read bandwidth, one and two threads, from the cache and from memory.

    python -m tools.kernel_benchmark                      all formats
    python -m tools.kernel_benchmark --formats Q8_0,Q4_K --rounds 5
    python -m tools.kernel_benchmark --quick              two rounds and a smaller memory footprint

Paths: one token (int8 activations for quantised formats, float64 for F32, F16, BF16), tiles of 32 and 128 tokens
(int8), and the exact products (float64 activations) of one token. The unit is weights per second, times tokens:
multiply-adds. GB/s is the weights' bytes read once per call. The yardstick is a kernel that only reads the same number
of bytes, timed in the same rounds with the same threads. From memory two threads share a matrix; from the cache each
has one of its own, in its own second-level cache, so that a call takes as long as one thread's. Every round times each
contender once, so what else the machine does hits all alike; the first round is burn-in, the best of the others counts.
Timed is the threads' processor time, the slowest thread's where there are two: on an idle machine the time on the
clock, on a busy one without the waiting.

No speed is printed for a wrong result: each row carries the largest difference from the product in float64 of gguf-py's
weights, relative to the sizes of the terms, and tiles must have the bits of the one-token products.
Writes a Markdown table and a JSON file of all samples.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from threadpoolctl import threadpool_limits

from tools.report import RUNS, markdown_table, number_text, stamp, stamp_text, write_json, write_text

COLS = 2048
CACHED = 512 << 10  # bytes: within the second-level cache
MEMORY = 256 << 20  # far above the last-level cache of the machines this is run on
LEAST_SECONDS = 0.004  # a sample repeats its calls for as long
LIMIT = 1e-6  # gguf-py's weights are float32: of formats with a minimum 6e-8 of each term is rounded away
FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
Call = Callable[[], object]


@dataclass
class Contender:
    """One kernel, footprint and number of threads: `calls` has one prepared call per thread."""

    name: str
    path: str
    place: str
    calls: Sequence[Call]
    nbytes: int
    work: int  # multiply-adds of all calls together
    error: float = 0.0
    wrong: str = ""
    repeats: int = 0
    samples: list[float] = field(default_factory=list)

    def time_once(self) -> None:
        """Appends the seconds of one pass: the processor time of the slowest thread."""
        if not self.repeats:
            once = run_together(self.calls, 1)
            self.repeats = max(1, round(LEAST_SECONDS / once))
        self.samples.append(run_together(self.calls, self.repeats) / self.repeats)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def threads(self) -> int:
        return len(self.calls)


def run_together(calls: Sequence[Call], repeats: int) -> float:
    """Seconds of processor time of the slowest thread, each repeating its call."""
    spent = [0.0] * len(calls)
    gate = threading.Barrier(len(calls))

    def work(rank: int) -> None:
        gate.wait()
        start = time.thread_time()
        for _ in range(repeats):
            calls[rank]()
        spent[rank] = time.thread_time() - start

    others = [threading.Thread(target=work, args=(rank,)) for rank in range(1, len(calls))]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    return max(spent)


# ---- what is timed ---------------------------------------------------------------------------------------------------


def matrix(name: str, nbytes: int) -> tuple[Any, int]:
    """About `nbytes` of random rows of COLS weights, flat, and their number; beyond 4 MB the rows repeat."""
    from rml.formats import BY_NAME
    from tools.kernel_case import random_blocks

    stored = BY_NAME[name]
    size = stored.row_bytes(COLS)
    step = 256 if nbytes >= 256 * size else 8  # whole panels for two threads, if that is not too much
    rows = nbytes // (step * size) * step or 8
    distinct = min(rows, max((4 << 20) // size, 8))
    rng = np.random.default_rng(1)
    if stored.is_float:
        values = (rng.standard_normal((distinct, COLS)) * 0.02).astype(np.float32)
        if name == "BF16":
            raw = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        else:
            raw = values.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
    else:
        raw = random_blocks(rng, name, distinct * COLS // stored.block_weights)
    return np.resize(raw.reshape(distinct, size), (rows, size)), rows


def contenders(name: str, path: str, place: str, nbytes: int, tokens: int) -> list[Contender]:
    """One format and path for one thread and for two, checked."""
    from tools.kernel_case import Case

    raw, rows = matrix(name, nbytes)
    x = np.random.default_rng(2).standard_normal((tokens, COLS))
    case = Case(name, raw, rows, COLS, x, ranks=2)
    if case.group:
        case.round_rows()
    error, wrong = check(case, name, path)
    label = {"one": "one token", "exact": "one token, exact", "int8": f"{tokens} tokens"}[path]
    work, whole = rows * COLS * tokens, case.call(path, 0, rows)
    if place == "cache":
        twin = Case(name, raw, rows, COLS, x)
        if twin.group:
            twin.round_rows()
        pair, times = [whole, twin.call(path, 0, rows)], 2
    else:
        half = rows // 256 * 128
        pair, times = [case.call(path, 0, half), case.call(path, half, rows, rank=1)], 1
    return [
        Contender(name, label, place, [whole], raw.nbytes, work, error, wrong),
        Contender(name, label, place, pair, raw.nbytes * times, work * times, error, wrong),
    ]


def check(case: Any, name: str, path: str) -> tuple[float, str]:
    """The largest relative difference from gguf-py's weights times the activations; why the result is wrong, or ""."""
    from tools.kernel_case import same_bits

    rows = [*range(8), *range(case.rows - 8, case.rows)]
    raw = np.array(case.w).reshape(case.rows, -1)[rows]
    weights = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float64).reshape(len(rows), COLS)
    case.call(path, 0, case.rows)()
    got = case.results()[:, rows]
    worst = 0.0
    for t in {0, case.tokens - 1}:
        x = case.f[case.x + t * COLS : case.x + (t + 1) * COLS].copy()
        if case.group and path != "exact":
            q, scales = case.round_row(t)
            x = (q.reshape(-1, case.group) * scales[:, None]).ravel()
        worst = max(worst, float((np.abs(got[t] - weights @ x) / (np.abs(weights) @ np.abs(x))).max()))
        if path == "int8" and not same_bits(case.one(t)[rows], got[t]):
            return worst, f"token {t} has other bits among others than alone"
    return worst, "" if worst <= LIMIT else f"{worst:.1e} from the float64 product, limit {LIMIT:g}"


def readers(place: str, nbytes: int) -> list[Contender]:
    """The yardstick: the same number of bytes, only read."""
    from rml import native

    times = 2 if place == "cache" else 1
    words = nbytes // 8
    memory = native.buffer(words * times, np.int64)
    memory[:] = 1  # zeroed pages are not yet resident
    read = native.kernel("dense.read_words")
    part = words * times // 2
    return [
        Contender("-", "only reading", place, [read.prepare(memory, 0, words)], words * 8, words),
        Contender("-", "only reading", place,
                  [read.prepare(memory, rank * part * 8, part) for rank in range(2)], part * 16, part * 2),
    ]  # fmt: skip


def measure(group: Sequence[Contender], rounds: int) -> None:
    """Times all of a group in every round; the first round is burn-in."""
    for turn in range(rounds + 1):
        for contender in group:
            contender.time_once()
            if turn == 0:
                contender.samples.clear()


# ---- report ----------------------------------------------------------------------------------------------------------


def as_row(c: Contender, yardstick: Contender) -> dict[str, Any]:
    """A result as JSON values."""
    bandwidth = yardstick.nbytes / yardstick.best / 1e9
    speed = c.nbytes / c.best / 1e9
    return {
        "format": c.name, "path": c.path, "place": c.place, "threads": c.threads, "bytes": c.nbytes,
        "giga_per_second": c.work / c.best / 1e9, "gigabytes_per_second": speed, "read_bandwidth": bandwidth,
        "of_bandwidth": speed / bandwidth, "median_seconds": statistics.median(c.samples), "error": c.error,
        "wrong": c.wrong, "samples": c.samples,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown; no speed where the result is wrong."""
    columns = [
        "format",
        "path",
        "weights in",
        "threads",
        "G madd/s",
        "GB/s",
        "of read bandwidth",
        "x 1 thread",
        "error",
    ]
    one = {(r["format"], r["path"], r["place"]): r["giga_per_second"] for r in rows if r["threads"] == 1}
    cells = []
    for r in rows:
        speeds: list[object] = ["-", "-", "-", "-", f"WRONG: {r['wrong']}"]
        if not r["wrong"]:
            ratio = r["giga_per_second"] / one[r["format"], r["path"], r["place"]]
            error = "-" if r["format"] == "-" else number_text(r["error"])
            speeds = [
                f"{r['giga_per_second']:.1f}", f"{r['gigabytes_per_second']:.1f}", f"{r['of_bandwidth']:.0%}",
                f"{ratio:.2f}", error,
            ]  # fmt: skip
        cells.append([r["format"], r["path"], r["place"], r["threads"], *speeds])
    return markdown_table(columns, cells, right=columns[3:])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kernel_benchmark", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--formats", default=",".join(FORMATS), help="default: all")
    parser.add_argument("--rounds", type=int, default=10, help="rounds that count (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two rounds, 64 MB for memory: only a smoke test")
    parser.add_argument("--output", type=Path, default=RUNS / "kernels", help="path of the reports, without suffix")
    parser.add_argument("--allow-slow-kernels", action="store_true", help="also without release kernels")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All rows, place by place and format by format; the yardstick is timed again with each format."""
    rounds, memory = (2, MEMORY >> 2) if options.quick else (options.rounds, MEMORY)
    rows: list[dict[str, Any]] = []
    for place, nbytes in (("cache", CACHED), ("memory", memory)):
        read = readers(place, nbytes)
        for name in options.formats.split(","):
            group = contenders(name, "one", place, nbytes, 1)
            if place == "cache" and name.startswith("Q"):
                group += contenders(name, "int8", place, nbytes, 32) + contenders(name, "int8", place, nbytes, 128)
                group += contenders(name, "exact", place, nbytes, 1)
            measure([*read, *group], rounds)
            rows += [as_row(c, read[c.threads - 1]) for c in group]
            say(f"{place}: {name}")
        rows += [as_row(c, c) for c in read]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    options = parse(arguments)
    from rml.build_info import BUILD

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if BUILD.mode != "release" and not options.allow_slow_kernels:
        say(f"{BUILD}: their speed means nothing. Install with RML_KERNELS=release, or --allow-slow-kernels")
        return 2
    with threadpool_limits(1):
        rows = run(options, say)
    head = stamp(threads=2)
    title = "# Product kernels" + (" (quick run)" if options.quick else "")
    text = f"{title}\n\n{stamp_text(head)}\n{table(rows)}"
    write_text(options.output.with_suffix(".md"), text)
    write_json(options.output.with_suffix(".json"), head, rows)
    print(table(rows))
    say(f"wrote {options.output.with_suffix('.md')} and .json")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
