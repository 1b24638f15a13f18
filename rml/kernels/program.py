"""Runs a program, the steps of a whole forward pass, on one worker. See opcodes.py for records and control words.

The arenas: `ids` i64; `w` and `wb` the mapped weights; `f`, `fi`, `fw` and `fb` one memory as float64, i64, i32 and
bytes; `h` and `hu` one memory as i16 and u8; `k` and `kb` i32; `cf`, `cw`, `ch`, `cu` and `cb` the cache's memory as
float64, i32, i16, u8 and bytes; `pages` its page table.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8

from rml.kernels import experts, rowwise, tokenwise
from rml.kernels.attend import attend, attend_finish
from rml.kernels.cache_rows import store
from rml.kernels.opcodes import (
    ADD,
    AHEAD,
    ATTEND,
    BARRIER,
    BIAS,
    CACHE_DTYPE,
    EMBED,
    EXPERTS_DOWN,
    EXPERTS_UP,
    FILL,
    FINISH,
    FIRST,
    GENERATION,
    GLU,
    GROUP,
    HEAD_DIM,
    KV_HEADS,
    LAST,
    LAST_ROW,
    MATMUL,
    NEAREST,
    NORM,
    NUM_LAYERS,
    PAGE_SIZE,
    POSITION,
    QUANTIZE,
    ROPE,
    ROUTE,
    ROW_STEPS,
    SCRATCH,
    SCRATCH_STRIDE,
    SHARE,
    SOFTCAP,
    STATUS,
    STORE,
    TOKENS,
    WIDTH,
    WORK,
)
from rml.kernels.rope import rotate
from rml.kernels.sync import barrier, wait_for_work

TIMEOUT: Final = 60.0  # seconds that a rank waits at a barrier for another


def rotate_tokens(steps: vec[i64], p: i64, first: i64, last: i64, f: vec[float]) -> None:
    """Rotary embedding of each token's heads by its row of the angle table."""
    width: i64 = steps[p + 2] * steps[p + 3]
    for t in range(first, last):
        rotate(f, steps[p + 1] + t * width, steps[p + 2], steps[p + 3], steps[p + 4] + t * steps[p + 3], steps[p + 5])


def store_tokens(
    steps: vec[i64], p: i64, first: i64, last: i64, position: i64, control: vec[i64], f: vec[float], fb: bytes,
    cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, pages: vec[i64], scratch: i64,
) -> None:  # fmt: skip
    """Keys and values of tokens first..last-1 into the cache; the first that does not fit is told in STATUS."""
    width: i64 = control[KV_HEADS] * control[HEAD_DIM]
    failed: i64 = store(
        0, 1, last - first, position + first, f, fb, cf, cw, ch, cu, cb, pages, 0,
        steps[p + 1] + first * width, steps[p + 2] + first * width, scratch, steps[p + 3], control[NUM_LAYERS],
        control[PAGE_SIZE], control[KV_HEADS], control[HEAD_DIM], control[CACHE_DTYPE],
    )  # fmt: skip
    if failed >= 0 and control[STATUS] == 0:
        control[STATUS] = 1 + failed * 65536 + steps[p + 3]


def token_step(
    steps: vec[i64], p: i64, n: i64, position: i64, rank: i64, ranks: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], fb: bytes, fi: vec[i64], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
    cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, pages: vec[i64],
) -> None:  # fmt: skip
    """A step whose tokens are shared among the ranks."""
    op: i64 = steps[p]
    first: i64 = tokenwise.first_token(n, rank, ranks)
    last: i64 = tokenwise.first_token(n, rank + 1, ranks)
    if first == last:
        return
    scratch: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    if op == NORM:
        tokenwise.norm(steps, p, first, last, scratch, f)
    elif op == QUANTIZE:
        tokenwise.round_inputs(steps, p, n, first, last, f, fb, fi, hu, k, scratch)
    elif op == ROPE:
        rotate_tokens(steps, p, first, last, f)
    elif op == STORE:
        store_tokens(steps, p, first, last, position, control, f, fb, cf, cw, ch, cu, cb, pages, scratch)
    elif op == FINISH:
        if n == 1:
            attend_finish(
                0, 1, n, position, f, fb, fi, steps[p + 1], scratch, steps[p + 2],
                control[KV_HEADS], control[GROUP], control[HEAD_DIM], steps[p + 3], control[CACHE_DTYPE],
            )  # fmt: skip
    elif op == ADD:
        tokenwise.add_rows(steps, p, first, last, f)
    elif op == ROUTE:
        tokenwise.route(steps, p, first, last, ids, f, fb, fi, scratch)
    elif op == EMBED:
        tokenwise.embed(steps, p, first, last, rank, control, ids, w, wb, f, h, k, kb)


def row_step(
    steps: vec[i64], p: i64, n: i64, rank: i64, ranks: i64, control: vec[i64], ids: vec[i64], w: vec[u8], wb: bytes,
    f: vec[float], fb: bytes, fi: vec[i64], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
) -> None:  # fmt: skip
    """A step whose output rows are shared among the ranks."""
    op: i64 = steps[p]
    rows: i64 = steps[p + 3]
    if op == SOFTCAP or op == FILL:
        rows = steps[p + 2]
    first: i64 = rowwise.first_row(rows, control[SHARE], rank, ranks)
    last: i64 = rowwise.first_row(rows, control[SHARE], rank + 1, ranks)
    if first == last:
        return
    scratch: i64 = control[SCRATCH] + rank * control[SCRATCH_STRIDE]
    if op == MATMUL:
        rowwise.product(steps, p, n, first, last, rank, control, w, wb, f, h, hu, k, kb)
    elif op == GLU:
        rowwise.glu(steps, p, n, first, last, f, fb, fi, scratch)
    elif op == BIAS:
        rowwise.bias(steps, p, n, first, last, f)
    elif op == EXPERTS_UP:
        experts.expert_rows(steps, p, n, first, last, 0, rank, control, ids, w, wb, f, h, hu, k, kb)
    elif op == EXPERTS_DOWN:
        experts.expert_rows(steps, p, n, first, last, 1, rank, control, ids, w, wb, f, h, hu, k, kb)
    elif op == SOFTCAP:
        rowwise.softcap(steps, p, n, first, last, f, fb, fi, scratch)
    elif op == FILL:
        rowwise.zero(steps, p, n, first, last, f)


def step_of(
    steps: vec[i64], p: i64, n: i64, position: i64, rank: i64, ranks: i64, control: vec[i64], ids: vec[i64],
    w: vec[u8], wb: bytes, f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], h: vec[i16], hu: vec[u8],
    k: vec[i32], kb: bytes, cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, pages: vec[i64],
) -> None:  # fmt: skip
    """One rank's share of the step at steps[p:]."""
    op: i64 = steps[p]
    if op == ATTEND:
        attend(
            rank, ranks, n, position, f, fb, fi, fw, ch, cu, cb, pages, 0,
            steps[p + 1], steps[p + 2], control[SCRATCH] + rank * control[SCRATCH_STRIDE], steps[p + 6],
            steps[p + 3], control[NUM_LAYERS], control[PAGE_SIZE], control[KV_HEADS], control[GROUP],
            control[HEAD_DIM], steps[p + 4], f[steps[p + 5]], control[CACHE_DTYPE], control[NEAREST],
        )  # fmt: skip
    elif op == LAST_ROW:
        if rank == 0:
            tokenwise.last_row(steps, p, n, f)
    elif op >= ROW_STEPS:
        row_step(steps, p, n, rank, ranks, control, ids, w, wb, f, fb, fi, h, hu, k, kb)
    else:
        token_step(
            steps, p, n, position, rank, ranks, control, ids, w, wb, f, fb, fi, h, hu, k, kb,
            cf, cw, ch, cu, cb, pages,
        )  # fmt: skip


def fetch_next(steps: vec[i64], step: i64, end: i64, share: i64, rank: i64, ranks: i64, wb: bytes, ahead: i64) -> None:
    """Asks for the first weights of the next product, for its rank's share, while the steps before it are done."""
    while step < end:
        if steps[step * WIDTH] == MATMUL:
            rowwise.fetch_share(steps, step * WIDTH, share, rank, ranks, wb, ahead)
            return
        step += 1


def run(
    steps: vec[i64], control: vec[i64], epochs: vec[i64], ids: vec[i64], w: vec[u8], wb: bytes,
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
    cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, pages: vec[i64],
    worker: i64, workers: i64, ranks: i64,
) -> i64:  # fmt: skip
    """Runs steps control[FIRST] up to control[LAST] for the ranks worker, worker + workers, ... below `ranks`.

    The workers are threads that run the same call at the same time; they meet at every BARRIER and at the end. There
    may be fewer of them than ranks: one alone takes every rank's share in turn.
    Returns 0, or 1 + the worker that did not come to a barrier.
    """
    epoch: i64 = epochs[worker * 8]
    n: i64 = control[TOKENS]
    position: i64 = control[POSITION]
    late: i64 = 0
    for step in range(control[FIRST], control[LAST]):
        p: i64 = step * WIDTH
        op: i64 = steps[p]
        if op == BARRIER:
            if workers > 1:
                epoch += 1
                late = barrier(epochs, worker, workers, epoch, TIMEOUT)
                if late != 0:
                    return late
        else:
            rank: i64 = worker
            while rank < ranks:
                step_of(
                    steps, p, n, position, rank, ranks, control, ids, w, wb, f, fb, fi, fw, h, hu, k, kb,
                    cf, cw, ch, cu, cb, pages,
                )  # fmt: skip
                rank += workers
            if op == LAST_ROW and steps[p + 4] != 0:
                position += n - 1
                n = 1
            if op == MATMUL:
                fetch_next(steps, step + 1, control[LAST], control[SHARE], worker, ranks, wb, control[AHEAD])
    if workers > 1:
        return barrier(epochs, worker, workers, epoch + 1, TIMEOUT)
    return late


def serve(
    steps: vec[i64], control: vec[i64], epochs: vec[i64], ids: vec[i64], w: vec[u8], wb: bytes,
    f: vec[float], fb: bytes, fi: vec[i64], fw: vec[i32], h: vec[i16], hu: vec[u8], k: vec[i32], kb: bytes,
    cf: vec[float], cw: vec[i32], ch: vec[i16], cu: vec[u8], cb: bytes, pages: vec[i64],
    worker: i64, workers: i64, ranks: i64, generation: i64, seconds: float,
) -> i64:  # fmt: skip
    """The life of a worker above 0 in native code: runs what worker 0 publishes in control[WORK].

    Returns 0 after `seconds` without work, 1 when the arrays are of another generation, 2 when a barrier failed.
    """
    mine: i64 = worker * 8 + 1
    while True:
        work: i64 = wait_for_work(control, WORK, epochs[mine], seconds)
        if control[GENERATION] != generation:
            return i64(1)
        if work == epochs[mine]:
            return i64(0)
        epochs[mine] = work
        late: i64 = run(
            steps, control, epochs, ids, w, wb, f, fb, fi, fw, h, hu, k, kb, cf, cw, ch, cu, cb, pages,
            worker, workers, ranks,
        )  # fmt: skip
        if late != 0:
            return i64(2)
