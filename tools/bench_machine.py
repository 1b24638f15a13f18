"""What the machine itself can do, and what else it is doing: read bandwidth, load, the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

BANDWIDTH_SECONDS = 0.15  # one sample reads its memory as often as that takes
Words = npt.NDArray[np.int64]


def reduce_or(part: Words) -> object:
    """Reads every word once; the vectorised loop is limited by memory alone."""
    return np.bitwise_or.reduce(part)


def reduce_dot(part: Words) -> object:
    """The same through BLAS (one thread of it): x . x of the words as doubles, all zero. Faster on some machines."""
    doubles = part.view(np.float64)
    return doubles @ doubles


READERS: tuple[Callable[[Words], object], ...] = (reduce_or, reduce_dot)


class Bandwidth:
    """Read bandwidth of one footprint, by 1 or more threads; every sample is kept.

    The memory is anonymous, so that large pages may back it: what the hardware can give, not what a mapped file gets.
    """

    def __init__(self, size: int, threads: int) -> None:
        """size: bytes, shared among the threads."""
        self.parts: list[Words] = np.array_split(np.zeros(size // 8, np.int64), threads)
        for part in self.parts:
            part.fill(0)  # zeroed pages are not yet resident
        self.samples: list[float] = []  # bytes per second

    def sample(self) -> float:
        """Reads for a while with the best of the readers; appends and returns bytes per second."""
        with threadpool_limits(1):
            self.samples.append(max(self._read(reader) for reader in READERS))
        return self.samples[-1]

    def _read(self, reader: Callable[[Words], object]) -> float:
        size = sum(part.nbytes for part in self.parts)
        start = time.perf_counter()
        reader(self.parts[0])
        once = time.perf_counter() - start
        repeats = max(1, round(BANDWIDTH_SECONDS / len(READERS) / once))
        gate = threading.Barrier(len(self.parts) + 1)

        def work(part: Words) -> None:
            gate.wait()
            for _ in range(repeats):
                reader(part)

        threads = [threading.Thread(target=work, args=(part,)) for part in self.parts]
        for thread in threads:
            thread.start()
        gate.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        return size * repeats / (time.perf_counter() - start)

    @property
    def best(self) -> float:
        """The largest sample: what the memory can do."""
        return max(self.samples)

    @property
    def median(self) -> float:
        """The median sample: what it did while the engines ran."""
        return statistics.median(self.samples)


def busy_share(seconds: float = 0.5) -> float:
    """The share of all cores that is in use, while this process sleeps; 0 where the system does not tell."""

    def ticks() -> tuple[int, int]:
        fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    try:
        total, idle = ticks()
        time.sleep(seconds)
        total_after, idle_after = ticks()
    except (OSError, ValueError, IndexError):
        return 0.0
    return 1.0 - (idle_after - idle) / max(total_after - total, 1)


def files_of(model: Path) -> list[Path]:
    """The files that hold a model's weights."""
    return sorted(model.glob("*.safetensors")) if model.is_dir() else [model]


def resident_share(path: Path) -> float:
    """The share of a file's pages that is in the page cache; 0 where the system does not tell."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except (AttributeError, OSError):
        return 0.0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        data = np.frombuffer(view, np.uint8)
        flags = np.zeros(pages, np.uint8)
        address, length = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(size)
        failed = mincore(address, length, ctypes.c_void_p(flags.ctypes.data))
        del data  # a mapping cannot be closed while an array looks into it
    return 0.0 if failed else float((flags & 1).mean())


def forget(model: Path) -> float:
    """Asks the system to drop a model's files from its page cache; returns the largest share that stayed.

    Pages that another process has mapped stay.
    """
    if not hasattr(os, "posix_fadvise"):
        return 1.0
    for path in files_of(model):
        with path.open("rb") as file:
            os.fsync(file.fileno())  # what was written just now cannot be dropped before it is on the disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return max((resident_share(path) for path in files_of(model)), default=1.0)


def warm(model: Path) -> None:
    """Reads a model's files, so that they are in the page cache."""
    for path in files_of(model):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
