"""Runs programs: owns the arenas, the control words and the workers. Knows steps and memory, nothing of models."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from rml import native
from rml.arenas import Ints, Region
from rml.build_info import BUILD
from rml.caches import bytes_ahead, nearest_cache
from rml.errors import EngineError
from rml.kernels import opcodes as op
from rml.kv_cache import PAGE_SIZE, KvCache
from rml.steps import Steps
from rml.threads import Crew, available_cores
from rml.weight_source import MappedFile

SPIN_SECONDS = 1e-3  # how long an idle worker spins for the next program before it parks
TIMEOUT_SECONDS = 60.0  # how long a worker waits at a barrier for one that may be dead
EPOCH_STRIDE = 8  # each worker writes to a cache line of its own


class Engine:
    """The memory of one model's forward passes and the workers that run them.

    The work of a step is cut into `ranks` shares. In the release build every core has a worker, a thread that takes one
    rank (or more, in turn, where there are fewer cores than ranks). The checked and interpreted kernels hold the
    interpreter's lock, where waiting at a barrier would wait for ever: there one worker takes all shares.
    """

    def __init__(self, files: list[MappedFile], ranks: int) -> None:
        self.files, self.ranks = files, ranks
        self.weights, offsets = native.join([file.data for file in files])
        self.offsets = {id(file): offset for file, offset in zip(files, offsets, strict=True)}
        self.control = native.buffer(op.CONTROL, np.int64)
        self.workers = min(ranks, available_cores()) if BUILD.mode == "release" else 1
        self.epochs = native.buffer(EPOCH_STRIDE * self.workers, np.int64)
        self.crew: Crew | None = None
        self.broken = ""

    def address(self, file: MappedFile, offset: int) -> int:
        """Where byte `offset` of a file lies in the weight memory."""
        return self.offsets[id(file)] + offset

    def install(self, steps: Steps, scratch: tuple[int, int, int]) -> None:
        """Allocates the arenas of a program and makes it the one that runs.

        scratch: entries of f, h and k that each rank needs.
        """
        strides = [-(-count // 64) * 64 for count in scratch]
        bases = [
            plan.take(stride * self.ranks) for plan, stride in zip((steps.f, steps.h, steps.k), strides, strict=True)
        ]
        self.program: Ints = native.copy(steps.program(), np.int64)
        self.f = native.buffer(steps.f.size, np.float64)
        self.h = native.buffer(steps.h.size, np.int16)
        self.k = native.buffer(steps.k.size, np.int32)
        self.ids = native.buffer(steps.ids.size, np.int64)
        steps.floats.write(self.f)
        steps.integers.write(self.ids)
        control = self.control
        for word, base, stride in zip((op.SCRATCH, op.HSCRATCH, op.KSCRATCH), bases, strides, strict=True):
            control[word], control[word + 1] = base, stride
        control[op.SHARE] = steps.share
        control[op.NEAREST] = nearest_cache()
        control[op.AHEAD] = bytes_ahead(int(control[op.NEAREST]))
        self.cache: KvCache | None = None
        self._new_generation()

    def _new_generation(self) -> None:
        """The arrays have changed: prepared arguments are void; a worker that still holds them leaves native code."""
        self.control[op.GENERATION] += 1
        if self.cache is not None:
            self._call = native.kernel("program.run").prepare(*self._arguments(0, self.cache))

    def _arguments(self, worker: int, cache: KvCache) -> list[Any]:
        f = self.f
        return [
            self.program, self.control, self.epochs, self.ids, self.weights, self.weights,
            f, f, f.view(np.int64), f.view(np.int32), self.h, self.h.view(np.uint8), self.k, self.k,
            *cache.views, cache.table, worker, self.workers, self.ranks,
        ]  # fmt: skip

    def use_cache(self, cache: KvCache) -> None:
        """The cache that STORE and ATTEND work on."""
        if cache is not self.cache:
            self.cache = cache
            c, control = cache.config, self.control
            control[op.CACHE_DTYPE], control[op.PAGE_SIZE] = cache.type_id, PAGE_SIZE
            control[op.NUM_LAYERS], control[op.KV_HEADS], control[op.HEAD_DIM] = (
                c.num_layers,
                c.num_kv_heads,
                c.head_dim,
            )
            control[op.GROUP] = c.num_heads // c.num_kv_heads
            self._new_generation()

    def run(self, first: int, last: int, tokens: int, position: int) -> None:
        """Runs the steps [first, last) for `tokens` tokens, the first of them at `position`.

        Raises EngineError when a worker does not come to a barrier in time; the engine cannot be used after that.
        """
        if self.broken:
            raise EngineError(self.broken)
        control = self.control
        control[op.TOKENS], control[op.POSITION], control[op.STATUS] = tokens, position, 0
        control[op.FIRST], control[op.LAST] = first, last
        try:
            if self.workers > 1:
                self._publish()
            late = self._call()
        except BaseException:
            self.broken = "a run was interrupted: load the model again"
            raise
        if late:
            self.broken = f"worker {late - 1} did not reach a barrier within {TIMEOUT_SECONDS} s: load the model again"
            raise EngineError(self.broken)
        status = int(control[op.STATUS])
        if status:
            assert self.cache is not None
            raise self.cache.overflow((status - 1) >> 16, (status - 1) & 0xFFFF)

    def _publish(self) -> None:
        """Tells the other workers that there is work; starts them first if there are none in this process."""
        crew = self.crew
        if crew is None or not crew.survived_fork():
            self.epochs[:] = self.epochs[0]
            self.epochs[1::EPOCH_STRIDE] = self.control[op.WORK]
            crew = self.crew = Crew(self.workers, self._serve, self._is_idle)
        self.control[op.WORK] += 1
        crew.wake()

    def _serve(self, worker: int) -> None:
        """Native work of worker 1 and up, until there has been none for a while or the arrays have changed."""
        generation, cache = int(self.control[op.GENERATION]), self.cache
        if cache is None:  # between two programs
            time.sleep(SPIN_SECONDS)
            return
        serve = native.kernel("program.serve").prepare(*self._arguments(worker, cache), generation, SPIN_SECONDS)
        serve()

    def _is_idle(self, worker: int) -> bool:
        return bool(self.epochs[worker * EPOCH_STRIDE + 1] == self.control[op.WORK])

    def view(self, region: Region, tokens: int, arena: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """(tokens, width): a region's values in the f arena (or another), not copied."""
        arena = self.f if arena is None else arena
        return arena[region.offset : region.offset + tokens * region.width].reshape(tokens, region.width)

    def close(self) -> None:
        """Ends the worker threads; a later run starts new ones."""
        if self.crew is not None:
            self.crew.close()
            self.crew = None
