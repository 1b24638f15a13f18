"""Barriers between the workers (threads) that run one program together, spun in native code.

Each worker owns one cache line (8 entries) of `epochs`. This relies on x86's store order: what a worker wrote before
its epoch is seen by whoever sees the epoch. The waiting loops contain an opaque call that needs no GIL, librt's clock:
it keeps the load inside the loop and gives the time-out against a dead worker.
"""

from __future__ import annotations

from librt.time import time
from librt.vecs import vec
from mypy_extensions import i64


def barrier(epochs: vec[i64], worker: i64, workers: i64, epoch: i64, timeout: float) -> i64:
    """Publishes `epoch`, waits for the others'; returns 0, or 1 + the worker that did not come in `timeout` seconds."""
    epochs[worker * 8] = epoch
    for r in range(workers):
        if epochs[r * 8] < epoch:
            start: float = time()
            while epochs[r * 8] < epoch:
                if time() - start > timeout:
                    return i64(1) + r
    return i64(0)


def wait_for_work(epochs: vec[i64], slot: i64, seen: i64, seconds: float) -> i64:
    """Spins until epochs[slot] differs from `seen` or `seconds` have passed; returns the value last read."""
    start: float = time()
    while epochs[slot] == seen:
        if time() - start > seconds:
            return seen
    return epochs[slot]
