"""The workers of a model: the caller's thread is worker 0, the others stay in native code between steps.

Waking a thread for each product would cost more than the product. So every worker runs the same program on its share
of the rows and meets the others at a barrier spun in native code (rml/kernels/sync.py). Between two programs a worker
spins for about a millisecond, then parks on a condition variable: an idle model costs nothing.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rml.errors import InvalidArgument

MAX_RANKS = 64
T = TypeVar("T")


def cgroup_cores() -> int:
    """The processor quota of this control group, in whole cores; MAX_RANKS where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return MAX_RANKS if quota == "max" else math.ceil(float(quota) / float(period))
    except (OSError, ValueError):
        return MAX_RANKS


def available_cores() -> int:
    """Cores that this process may use: its affinity and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, cgroup_cores()))


def choose_ranks(threads: int | None) -> int:
    """The number of ranks for `threads=`; None takes every available core. Warns above that number."""
    if threads is None:
        return min(available_cores(), MAX_RANKS)
    if not 1 <= threads <= MAX_RANKS:
        raise InvalidArgument(
            f"threads={threads}: expected 1 to {MAX_RANKS}, or None for all {available_cores()} cores"
        )
    if threads > available_cores():
        warnings.warn(
            f"threads={threads} on {available_cores()} available cores: no faster than threads={available_cores()}",
            stacklevel=4,
        )
    return threads


def sum_of_all(work: Callable[[T], int], items: Sequence[T], threads: int) -> int:
    """The sum of work(item) over all items, by `threads` threads at once, the caller's among them.

    If one of them raises an error, that is raised here when the others have done the rest.
    """
    todo = iter(items)
    done: list[int] = []
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            for item in todo:
                done.append(work(item))
        except BaseException as error:  # whatever it is, it belongs to the caller
            errors.append(error)

    others = [threading.Thread(target=serve, name="rml-loader") for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    serve()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    return sum(done)


def _serve(reference: weakref.ref[Crew], number: int, condition: threading.Condition) -> None:
    """The life of one worker thread: native work while there is any, else parked; ends with its crew."""
    while True:
        crew = reference()
        if crew is None or crew.closed:
            return
        serve = crew.serve
        del crew  # a parked worker must not keep the model alive
        serve(number)
        del serve
        with condition:
            crew = reference()
            if crew is None or crew.closed:
                return
            if crew.is_idle(number):
                crew.parked += 1
                del crew
                condition.wait_for(lambda: _wanted(reference, number))
                crew = reference()
                if crew is None:
                    return
                crew.parked -= 1


def _wanted(reference: weakref.ref[Crew], number: int) -> bool:
    crew = reference()
    return crew is None or crew.closed or not crew.is_idle(number)


class Crew:
    """The threads of workers 1 and up.

    `serve(number)` runs native work and returns when there has been none for a while; `is_idle(number)` tells, under
    the lock, whether there is none now. `wake` is called after work was published.
    """

    def __init__(self, workers: int, serve: Callable[[int], None], is_idle: Callable[[int], bool]) -> None:
        self.serve, self.is_idle = serve, is_idle
        self.closed, self.parked = False, 0
        self.process = os.getpid()
        self.condition = threading.Condition()
        reference = weakref.ref(self, _notify(self.condition))
        self.threads = [
            threading.Thread(
                target=_serve, args=(reference, number, self.condition), name=f"rml-worker-{number}", daemon=True
            )
            for number in range(1, workers)
        ]
        for worker in self.threads:
            worker.start()

    def wake(self) -> None:
        """Wakes the parked workers; nearly free when none is parked."""
        if self.threads:
            with self.condition:
                if self.parked:
                    self.condition.notify_all()

    def survived_fork(self) -> bool:
        """Whether the worker threads exist in this process: a fork copies the memory but not the threads."""
        return self.process == os.getpid()

    def close(self) -> None:
        """Ends the workers; they leave native code within about a millisecond."""
        with self.condition:
            self.closed = True
            self.condition.notify_all()


def _notify(condition: threading.Condition) -> Callable[[object], None]:
    """Wakes parked workers when their crew is collected, so that they end."""

    def collected(_reference: object) -> None:
        if sys.is_finalizing():
            return
        with condition:
            condition.notify_all()

    return collected
