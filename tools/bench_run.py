"""Measures one model: yardstick, load, then for every number of threads all engines in turn, A B C A B C.

Each engine lives in a process of its own for the whole of a model and a number of threads, so that what one of them
does to the machine's clock and caches befalls all. Every cell begins with an untimed run, whose logits are judged; an
engine that is judged wrong is not timed. In a decode sample the first token is run but not counted: it wakes the
threads and brings back what the other engines drove out of the caches.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from tools.bench_client import Client, WorkerFailed
from tools.bench_engines import KINDS, YARDSTICK
from tools.bench_machine import Bandwidth, forget, warm
from tools.bench_plan import BASE, Case, reason_to_skip
from tools.bench_stamp import CLOSE_CALL, Verdict, judge, lead, read
from tools.bench_worker import prompt_length
from tools.comparison import Logits
from tools.fetch_real_models import store_dir

REST = 0.02  # seconds between two samples: threads of the last engine may still spin
MIN_ROUNDS = 3
Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass
class Settings:
    """How much is measured. seconds: once a cell has taken that long, it stops at MIN_ROUNDS samples or more."""

    engines: tuple[str, ...]
    threads: tuple[int, ...]
    rounds: int = 7
    seconds: float = 4.0
    loads: int = 3


@dataclass
class Place:
    """A case with what its engines open: the model itself, for transformers a directory; and the text's tokens."""

    case: Case
    directory: Path | None
    ids: list[int]
    skipped: dict[str, str] = field(default_factory=dict)

    def path(self, engine: str) -> Path:
        """What this engine opens."""
        if "file" in KINDS[engine].opens or self.case.is_directory:
            return self.case.path
        assert self.directory is not None
        return self.directory

    def runnable(self, settings: Settings) -> list[str]:
        """The engines that nothing speaks against."""
        return [engine for engine in settings.engines if not self.reason(engine)]

    def reason(self, engine: str) -> str:
        """Why this engine is not measured; empty if it is."""
        return self.skipped.get(engine, "") or reason_to_skip(self.case, engine)


def row(case: Case, engine: str, threads: int, what: str, n: int, **values: Any) -> Row:
    """A row of results; the first five values are its name."""
    return {"model": case.name, "engine": engine, "threads": threads, "what": what, "n": n, **values}


# ---- the yardstick ---------------------------------------------------------------------------------------------------


def source_hash() -> str:
    """A hash of the installed rml: exact logits of another source are another yardstick."""
    import rml

    digest = hashlib.sha256()
    folder = Path(str(rml.__file__)).parent
    for path in sorted([*folder.rglob("*.py"), folder / "_build.json"]):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def yardstick(place: Place, threads: int, say: Say) -> dict[int, dict[str, Logits]]:
    """Exact logits and greedy tokens after every prompt length that a row needs.

    They take longer than the measurement, so they are kept in the cache, under everything they depend on.
    """
    case, folder, source = place.case, store_dir() / "yardsticks", source_hash()[:12]
    status = case.path.stat()
    same = [case.path.name, status.st_size, status.st_mtime_ns, place.ids, case.capacity]
    files = {}
    for probe in case.probes().items():
        key = hashlib.sha256(repr([*same, probe]).encode()).hexdigest()[:12]
        files[probe] = folder / f"{case.name}-{source}-{key}.npz"
    missing = {probe: path for probe, path in files.items() if not path.exists()}
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        for path in set(folder.glob(f"{case.name}-*.npz")) - set(folder.glob(f"{case.name}-{source}-*")):
            path.unlink()  # of another source: nobody will ask for them again
        compute_yardstick(place, threads, missing, say)
    return {n: read(str(path)) for (n, _), path in files.items()}


def compute_yardstick(place: Place, threads: int, missing: dict[tuple[int, int], Path], say: Say) -> None:
    """Runs the exact engine over the text and, after each (prompt length, count), through `count` greedy tokens."""
    with Client(YARDSTICK, place.case.path, threads, place.case.capacity) as client:
        partial = next(iter(missing.values())).with_suffix(f".{os.getpid()}.part.npz")
        open_model(client, place, partial)
        for (n, count), path in missing.items():
            say(f"exact logits after {n} tokens")
            client.ask("greedy", n=n, count=count, save=str(partial))
            partial.replace(path)


def open_model(client: Client, place: Place, save: Path) -> dict[str, Any]:
    """Waits for the imports, loads the model, hands over the text; what the worker says of the load."""
    client.ready()
    found = client.ask("load", token=place.ids[0], save=str(save))
    client.ask("tokens", ids=place.ids)
    return found


# ---- load ------------------------------------------------------------------------------------------------------------


def measure_loads(place: Place, settings: Settings, want: dict[int, dict[str, Logits]], scratch: Path) -> Iterator[Row]:
    """From the call that opens the model to the logits of one token: from the disk, and from the page cache."""
    case, threads = place.case, max(settings.threads)
    for what in ("load cold", "load warm"):
        seconds: dict[str, list[float]] = {engine: [] for engine in place.runnable(settings)}
        rows = {engine: row(case, engine, threads, what, 1, unit="s", count=1) for engine in seconds}
        for turn in range(settings.loads):
            for engine in list(seconds):
                if "note" not in rows[engine] and turn < KINDS[engine].loads:
                    load_once(place, engine, threads, what == "load cold", rows[engine], seconds[engine], scratch)
                    judge_load(rows[engine], want, scratch)
        for engine, found in rows.items():
            yield finish(found, seconds[engine])


def load_once(
    place: Place, engine: str, threads: int, cold: bool, found: Row, seconds: list[float], scratch: Path
) -> None:
    """One sample, in a process of its own whose imports are done before the clock starts."""
    path = place.path(engine)
    try:
        with Client(engine, path, threads, place.case.capacity) as client:
            client.ready()
            if cold and (stayed := forget(path)) > 0.05:
                found["note"] = f"skipped: {stayed:.0%} of the file stay in memory, another process uses it"
                return
            if not cold:
                warm(path)
            answer = client.ask("load", token=place.ids[0], save=str(scratch))
    except WorkerFailed as error:
        found["note"] = f"failed: {error}"
        return
    seconds.append(answer["first_logits"])
    found.setdefault("opened", []).append(round(answer["load"], 6))
    found["top"] = answer["top"]


def judge_load(found: Row, want: dict[int, dict[str, Logits]], scratch: Path) -> None:
    """The stamp of the first logits."""
    if "note" in found:
        return
    first = want[1]
    alone = {"first": first["first"], "last": first["first"]}
    alone |= {name: first[name][:1] for name in ("tokens", "kept", "values")}
    stamp_row(found, judge(alone, read(str(scratch)), [found.pop("top")], KINDS[found["engine"]].kl_limit))


def stamp_row(found: Row, verdict: Verdict) -> None:
    """Writes a verdict into its row."""
    found["stamp"] = verdict.as_dict() | {"text": verdict.text}
    if verdict.wrong:
        found["note"] = f"wrong logits: {verdict.wrong}"


def finish(found: Row, samples: Sequence[float]) -> Row:
    """Adds the samples (seconds) and their median, as time or speed; a row with a note has no figure."""
    if "note" not in found and samples:
        found["samples"] = [round(sample, 6) for sample in samples]
        middle = statistics.median(samples)
        found["value"] = found["count"] / middle if found["unit"] == "tokens/s" else middle
        found["spread"] = (max(samples) - min(samples)) / 2 / middle
    return found


# ---- speed -----------------------------------------------------------------------------------------------------------


class Group:
    """All engines on one model with one number of threads, alive together."""

    def __init__(
        self, place: Place, settings: Settings, threads: int, want: dict[int, dict[str, Logits]], scratch: Path
    ) -> None:
        self.place, self.settings, self.threads, self.want, self.scratch = place, settings, threads, want, scratch
        self.clients: dict[str, Client] = {}
        self.failed: dict[str, str] = {}
        self.wrong: set[str] = set()
        self.settings_text: dict[str, str] = {}

    def start(self, stack: ExitStack) -> None:
        """Starts the engines, one after the other; one that fails has a reason from then on."""
        for engine in self.place.runnable(self.settings):
            path = self.place.path(engine)
            client = stack.enter_context(Client(engine, path, self.threads, self.place.case.capacity))
            try:
                self.settings_text[engine] = open_model(client, self.place, self.scratch)["settings"]
                self.clients[engine] = client
            except WorkerFailed as error:
                self.failed[engine] = f"failed: {error}"

    def cell(self, what: str, n: int) -> Iterator[Row]:
        """One measurement on every engine."""
        want = self.want[prompt_length(what, n)]
        feed = [int(token) for token in want["tokens"][:-1]]
        able = [engine for engine in self.clients if n <= KINDS[engine].context]
        rows = {engine: self.empty_row(engine, what, n, len(feed)) for engine in able}
        for engine, found in rows.items():
            self.burn(engine, found, want, feed)
        samples: dict[str, list[float]] = {engine: [] for engine in rows}
        start, turn = time.monotonic(), 0
        while turn < self.settings.rounds:
            order = [engine for engine in rows if "note" not in rows[engine]]
            for engine in order[turn % max(len(order), 1) :] + order[: turn % max(len(order), 1)]:
                self.sample(engine, rows[engine], want, samples[engine])
            turn += 1
            if turn >= MIN_ROUNDS and time.monotonic() - start > self.settings.seconds:
                break
        for engine, found in rows.items():
            finish(found, samples[engine])
            if "value" in found and samples.get(BASE) and "note" not in rows[BASE]:
                pairs = zip(samples[BASE], samples[engine], strict=True)
                per_token = statistics.median(base / mine for base, mine in pairs)
                found["ratio"] = per_token * found["count"] / rows[BASE]["count"]
            yield found

    def empty_row(self, engine: str, what: str, n: int, steps: int) -> Row:
        """A speed's row before it is measured; count: the tokens whose time a sample is."""
        count = n if what == "prefill" else min(steps, KINDS[engine].steps + 1) - 1
        return row(self.place.case, engine, self.threads, what, n, unit="tokens/s", count=count)

    def burn(self, engine: str, found: Row, want: dict[str, Logits], feed: list[int]) -> None:
        """The untimed run and its verdict."""
        try:
            answer = self.clients[engine].ask(
                "burn", what=found["what"], n=found["n"], feed=feed, save=str(self.scratch)
            )
        except WorkerFailed as error:
            found["note"] = f"failed: {error}"
            return
        verdict = judge(want, read(str(self.scratch)), answer["tokens"], KINDS[engine].kl_limit)
        stamp_row(found, verdict)
        if verdict.wrong:
            self.wrong.add(engine)

    def sample(self, engine: str, found: Row, want: dict[str, Logits], samples: list[float]) -> None:
        """One timed run. It must end with the token that the judged run had there, or with one as likely."""
        time.sleep(REST)
        fed = 0 if found["what"] == "prefill" else found["count"] + 1
        feed = [int(token) for token in want["tokens"][:fed]]
        try:
            answer = self.clients[engine].ask("time", what=found["what"], n=found["n"], feed=feed)
        except WorkerFailed as error:
            found["note"] = f"failed: {error}"
            return
        judged, top = found["stamp"]["tokens"][fed], answer["top"]
        if top != judged and lead(want, fed, top) > CLOSE_CALL * found["stamp"]["max_abs"]:
            found["note"] = f"wrong logits: ended with token {top}, untimed with {judged}"
            self.wrong.add(engine)
            return
        seconds = answer["seconds"]
        counted = seconds if found["what"] == "prefill" else seconds[1:]
        samples.append(sum(counted))
        if found["what"] == "decode":
            found["fastest"] = min(found.get("fastest", 1e9), *counted)

    def memory(self) -> Iterator[Row]:
        """Peak resident memory of each process over all the cells; none for an engine with wrong logits."""
        for engine, client in self.clients.items():
            found = row(self.place.case, engine, self.threads, "peak memory", 0, unit="MB", count=1)
            try:
                sizes = client.ask("memory")
            except WorkerFailed as error:
                yield found | {"note": f"failed: {error}"}
                continue
            if engine in self.wrong:
                yield found | {"note": "wrong logits: see the rows above"}
                continue
            stamp = {"text": "as the rows above"}
            yield found | {"value": sizes["peak"] / 1e6, "bytes": sizes, "spread": 0.0, "stamp": stamp}


def add_ratios(rows: Sequence[Row]) -> None:
    """Ratios of load times and memory, where they stand for themselves: above 1 is faster, below 1 is smaller."""
    base = {(r["model"], r["threads"], r["what"]): r["value"] for r in rows if r["engine"] == BASE and "value" in r}
    for found in rows:
        key = (found["model"], found["threads"], found["what"])
        if "value" in found and found["unit"] != "tokens/s" and key in base:
            found["ratio"] = found["value"] / base[key] if found["unit"] == "MB" else base[key] / found["value"]


def measure_speed(
    place: Place, settings: Settings, want: dict[int, dict[str, Logits]], scratch: Path, say: Say
) -> Iterator[Row]:
    """Every cell with every number of threads, then the memory, then the machine's bandwidth beside it."""
    case = place.case
    for threads in settings.threads:
        bandwidth = Bandwidth(weight_sizes(case)["bytes"], threads)
        group = Group(place, settings, threads, want, scratch)
        with ExitStack() as stack:
            group.start(stack)
            for what, n in case.cells():
                say(f"{threads} thread{'s' * (threads > 1)}, {what} {n}")
                bandwidth.sample()
                for found in group.cell(what, n):
                    yield found | {"settings": group.settings_text[found["engine"]]}
            bandwidth.sample()
            yield from group.memory()
        for engine, reason in group.failed.items():
            yield row(case, engine, threads, "all", 0, note=reason)
        yield row(
            case, "machine", threads, "read bandwidth", 0,
            unit="GB/s", count=1, value=bandwidth.best / 1e9, spread=0.0,
            samples=[round(sample / 1e9, 3) for sample in bandwidth.samples],
        )  # fmt: skip


def weight_sizes(case: Case) -> dict[str, int]:
    """Bytes and number of the weights that one decode step reads: all, but of an embedding that is no head one row."""
    from rml.weight_source import open_weights

    source = open_weights(case.path)
    tensors = [
        tensor
        for name, tensor in source.tensors.items()
        if source.config.tied_head or name not in ("token_embd.weight", "model.embed_tokens.weight")
    ]
    return {"bytes": sum(tensor.nbytes for tensor in tensors), "weights": sum(prod(tensor.shape) for tensor in tensors)}
