"""One engine, one model, one number of threads, in a process of its own that takes commands until it is told to stop.

Started by bench_client.py as `python -m tools.bench_worker ENGINE MODEL THREADS CAPACITY`. A command is one line of
JSON on stdin, its answer one line on what was stdout; whatever the engine itself prints goes to stderr. Commands:

    {"do": "load", "token": 1, "save": PATH}              {"load": seconds, "first_logits": seconds since the start}
    {"do": "tokens", "ids": [...]}                        the text that contexts and prompts are made of
    {"do": "burn", "what": "decode", "n": 512, "feed": [...], "save": PATH}
                                                          untimed; logits of the last prompt token and of the last fed
                                                          one to PATH, {"tokens": the likeliest one at each position}
    {"do": "greedy", "n": 512, "count": 16, "save": PATH} the same, each likeliest token fed in turn
    {"do": "time", "what": "prefill", "n": 512, "feed": []}  {"seconds": [one per call of the engine], "top": token}
    {"do": "memory"}                                      bytes: peak, anonymous, file-backed
    {"do": "stop"}

prefill n: the first n tokens into an empty cache, in one call. decode n: tokens of `feed` one by one after a context of
n tokens (at 0: after the first token, since something must come first).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tools.bench_engines import KINDS, Engine, Logits

KEPT = 64  # of the likeliest tokens' logits, at every position: to judge whether another choice was a close one


def prompt_length(what: str, n: int) -> int:
    """Tokens before the first one whose time counts (decode), or whose logits are wanted (prefill)."""
    return n if what == "prefill" else max(n, 1)


class Session:
    """An engine and the text that its contexts are made of."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ids: list[int] = []
        self.context = 0  # a size to return to without running the text again

    def reach(self, size: int) -> None:
        """Brings the cache to the first `size` tokens of the text, running no more than those that are missing."""
        base = self.context if self.context <= size else 0
        self.engine.rewind(base)
        if size > base:
            self.engine.extend(self.ids[base:size])
            self.engine.rewind(size)
        self.context = size

    def prompt(self, what: str, n: int) -> Logits:
        """The logits of the last prompt token, in the way that is going to be timed: at once, or as a decode step."""
        last = prompt_length(what, n) - 1
        self.reach(0 if what == "prefill" else last)
        self.engine.extend(self.ids[self.engine.size : last + 1])
        return self.engine.logits()

    def burn(self, what: str, n: int, feed: Sequence[int]) -> tuple[Logits, list[int], Logits]:
        """Logits after the prompt; the likeliest token there and after each fed one; the last logits."""
        first = last = self.prompt(what, n)
        likeliest = [int(first.argmax())]
        for token in feed:
            self.engine.extend([token])
            last = self.engine.logits()
            likeliest.append(int(last.argmax()))
        return first, likeliest, last

    def greedy(self, n: int, count: int, save: Path) -> list[int]:
        """The yardstick's run: n tokens of the text, then `count` times the likeliest next one; count + 1 tokens.

        The file gets the first and the last logits whole, and of each position the KEPT likeliest tokens.
        """
        rows = [self.prompt("decode", n)]
        tokens = [int(rows[0].argmax())]
        for _ in range(count):
            self.engine.extend(tokens[-1:])
            rows.append(self.engine.logits())
            tokens.append(int(rows[-1].argmax()))
        kept = np.array([np.argpartition(-row, min(KEPT, row.size - 1))[:KEPT] for row in rows])
        values = np.take_along_axis(np.stack(rows), kept, axis=1)
        np.savez(save, first=rows[0], last=rows[-1], tokens=np.array(tokens), kept=kept, values=values)
        return tokens

    def timed(self, what: str, n: int, feed: Sequence[int]) -> list[float]:
        """Seconds of each call of the engine."""
        self.reach(0 if what == "prefill" else prompt_length(what, n))
        calls = [self.ids[:n]] if what == "prefill" else [[token] for token in feed]
        seconds = []
        for call in calls:
            start = time.perf_counter()
            self.engine.extend(call)
            seconds.append(time.perf_counter() - start)
        return seconds


def memory() -> dict[str, int]:
    """Bytes resident: the peak of this process, and what is anonymous and file-backed now."""
    found = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "anonymous": 0, "file": 0}
    names = {"VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "file"}
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition(":")
        if key in names:
            found[names[key]] = int(value.split()[0]) * 1024
    return found


class Worker:
    """The commands, on one engine."""

    def __init__(self, kind: str, model: Path, threads: int, capacity: int) -> None:
        self.kind, self.model, self.threads, self.capacity = KINDS[kind], model, threads, capacity
        for package in ("rml",) if kind.startswith("rml") else self.kind.packages:
            __import__(package)  # imports are not part of loading a model
        self.before_load = memory()["peak"]
        self.session: Session | None = None

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carries out one command."""
        do = command["do"]
        if do == "load":
            return self.load(command["token"], Path(command["save"]))
        if do == "memory":
            return memory() | {"before_load": self.before_load}
        session = self.session
        if session is None:
            raise ValueError(f"{do}: load comes first")
        if do == "tokens":
            session.ids = command["ids"]
            return {}
        if do == "greedy":
            return {"tokens": session.greedy(command["n"], command["count"], Path(command["save"]))}
        if do == "burn":
            first, tokens, last = session.burn(command["what"], command["n"], command["feed"])
            np.savez(command["save"], first=first, last=last)
            return {"tokens": tokens}
        if do == "time":
            seconds = session.timed(command["what"], command["n"], command["feed"])
            return {"seconds": seconds, "top": int(session.engine.logits().argmax())}
        raise ValueError(f"{do}: no such command")

    def load(self, token: int, save: Path) -> dict[str, Any]:
        """Opens the model and runs one token; its logits go to the file."""
        start = time.perf_counter()
        engine = self.kind.make(self.model, self.threads, self.capacity)
        loaded = time.perf_counter() - start
        engine.extend([token])
        first = time.perf_counter() - start
        logits = engine.logits()
        np.savez(save, first=logits, last=logits)
        engine.rewind(0)
        self.session = Session(engine)
        top = int(logits.argmax())
        return {"load": loaded, "first_logits": first, "settings": engine.settings, "top": top}


def serve(worker: Worker, commands: TextIO, answers: TextIO) -> None:
    """Answers commands until the stop; an error is an answer too."""
    for line in commands:
        command = json.loads(line)
        if command["do"] == "stop":
            return
        try:
            answer = worker.answer(command)
        except Exception as error:  # whatever an engine raises is the row's text
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> int:
    """Serves on stdin and stdout."""
    kind, model, threads, capacity = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines may print; answers stay clean
    worker = Worker(kind, Path(model), int(threads), int(capacity))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(worker, sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
