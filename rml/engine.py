"""Runs programs: owns the arenas, the control words and the ranks. Knows steps and memory, nothing of models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rml import native
from rml.arenas import Ints, Region
from rml.build_info import BUILD
from rml.errors import EngineError
from rml.kernels import opcodes as op
from rml.kv_cache import PAGE_SIZE, KvCache
from rml.steps import Steps
from rml.threads import Crew
from rml.weight_source import MappedFile

SPIN_SECONDS = 1e-3  # how long an idle rank spins for the next program before it parks
TIMEOUT_SECONDS = 60.0  # how long a rank waits at a barrier for one that may be dead
EPOCH_STRIDE = 8  # each rank writes to a cache line of its own


class Engine:
    """The memory of one model's forward passes and the ranks that run them.

    In the release build the ranks are threads. The checked and interpreted kernels hold the interpreter's lock, where
    waiting at a barrier would wait for ever: there one thread takes the ranks' shares step by step, in turn.
    """

    def __init__(self, files: list[MappedFile], ranks: int) -> None:
        self.files, self.ranks = files, ranks
        self.weights, offsets = native.join([file.data for file in files])
        self.offsets = {id(file): offset for file, offset in zip(files, offsets, strict=True)}
        self.control = native.buffer(op.CONTROL, np.int64)
        self.epochs = native.buffer(EPOCH_STRIDE * ranks, np.int64)
        self.threaded = BUILD.mode == "release" and ranks > 1
        self.crew: Crew | None = None
        self.lock = threading.Lock()
        self.broken = ""
        self.calls: dict[int, Callable[..., int]] = {}  # rank -> the prepared run kernel of this generation
        self.serves: dict[int, Callable[..., int]] = {}

    def address(self, file: MappedFile, offset: int) -> int:
        """Where byte `offset` of a file lies in the weight memory."""
        return self.offsets[id(file)] + offset

    def install(self, steps: Steps, half: int, scratch: tuple[int, int, int]) -> None:
        """Allocates the arenas of a program and makes it the one that runs.

        half: f offset of the f16 table. scratch: entries of f, h and k that each rank needs.
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
        control[op.HALF] = half
        for word, base, stride in zip((op.SCRATCH, op.HSCRATCH, op.KSCRATCH), bases, strides, strict=True):
            control[word], control[word + 1] = base, stride
        self.cache: KvCache | None = None
        self._new_generation()

    def _new_generation(self) -> None:
        """The arrays have changed: prepared arguments are void; a rank that still holds them leaves native code."""
        self.control[op.GENERATION] += 1
        self.calls, self.serves = {}, {}

    def _arguments(self, rank: int) -> list[Any]:
        cache = self.cache
        assert cache is not None
        f = self.f
        return [
            self.program, self.control, self.epochs, self.ids, self.weights, self.weights, f, f, f.view(np.int64), f.view(np.int32),
            self.h, self.k, self.k, *cache.views, cache.table, rank, self.ranks,
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

        Raises EngineError when a rank does not come to a barrier in time; the engine cannot be used after that.
        """
        if self.broken:
            raise EngineError(self.broken)
        control = self.control
        control[op.TOKENS], control[op.POSITION], control[op.STATUS] = tokens, position, 0
        if self.threaded or self.ranks == 1:
            control[op.FIRST], control[op.LAST] = first, last
            late = self._run_together() if self.threaded else self._call(0)(0)
            if late:
                self.broken = (
                    f"rank {late - 1} did not reach a barrier within {TIMEOUT_SECONDS} s: load the model again"
                )
                raise EngineError(self.broken)
        else:
            for step in range(first, last):
                control[op.FIRST], control[op.LAST] = step, step + 1
                for rank in range(self.ranks):
                    self._call(rank)(0)
                if self.program[step * op.WIDTH] == op.LAST_ROW:
                    control[op.TOKENS] = 1
        status = int(control[op.STATUS])
        if status:
            assert self.cache is not None
            raise self.cache.overflow((status - 1) >> 16, (status - 1) & 0xFFFF)

    def _call(self, rank: int) -> Callable[..., int]:
        if rank not in self.calls:
            self.calls[rank] = native.kernel("program.run").with_scalars(*self._arguments(rank), None)
        return self.calls[rank]

    def _run_together(self) -> int:
        crew = self.crew
        if crew is None or not crew.survived_fork():
            self.epochs[:] = self.epochs[0]
            self.epochs[1::EPOCH_STRIDE] = self.control[op.WORK]
            crew = self.crew = Crew(self.ranks, self._serve, self._is_idle)
        self.control[op.WORK] += 1
        crew.wake()
        return self._call(0)(1)

    def _serve(self, rank: int) -> None:
        """Native work of rank 1 and up, until there has been none for a while or the arrays have changed."""
        if self.cache is None:
            time.sleep(SPIN_SECONDS)
            return
        generation = int(self.control[op.GENERATION])
        serve = native.kernel("program.serve").prepare(*self._arguments(rank), generation, SPIN_SECONDS)
        serve()

    def _is_idle(self, rank: int) -> bool:
        return bool(self.epochs[rank * EPOCH_STRIDE + 1] == self.control[op.WORK])

    def view(self, region: Region, tokens: int, arena: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """(tokens, width): a region's values in the f arena (or another), not copied."""
        arena = self.f if arena is None else arena
        return arena[region.offset : region.offset + tokens * region.width].reshape(tokens, region.width)

    def close(self) -> None:
        """Ends the worker threads; a later run starts new ones."""
        if self.crew is not None:
            self.crew.close()
            self.crew = None
