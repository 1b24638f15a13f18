"""Numbers shared by the writer of a program (rml.steps) and the kernels that run it.

A program is i64[steps][WIDTH]: the opcode, then its operands. Offsets count entries of the arena that the operand lives
in: f (float64), h (i16: int8 activations), k (i32: their sums) or ids (i64); `start` is a byte offset in the weights.
"""

from typing import Final

WIDTH: Final = 18

# opcode          operands, from entry 1 on
BARRIER: Final = 0
EMBED: Final = 1  # kind, start, cols, row bytes, scale(f), x, in panels (0, or `int8` of a product), rows
NORM: Final = 2  # x, weight, out, count, eps(f), items per token
QUANTIZE: Final = 3  # x, cols, group, h, scales, sums, items per token
ROPE: Final = 4  # x, heads, head dim, table, interleaved
STORE: Final = 5  # k, v, layer
ATTEND: Final = 6  # q, out, layer, window, scale(f), shared scratch
FINISH: Final = 7  # out, shared scratch, window: completes a lone token's attention
ADD: Final = 8  # x, y, count: x += y
LAST_ROW: Final = 9  # x, count, target, alone: if 1, from here on there is one token, the last
ROUTE: Final = 10  # scores, experts, chosen(ids), k, weights, renormalise
ROW_STEPS: Final = 11  # from here on, steps whose output rows are shared among the ranks
MATMUL: Final = 11  # kind, start, rows, cols, int8, x, h, scales, sums, y, y stride, accumulate
BIAS: Final = 12  # y, bias, rows, y stride
GLU: Final = 13  # gate, up, count, activation, items per token: gate = act(gate) * up
SOFTCAP: Final = 14  # y, rows, cap(f)
EXPERTS_UP: Final = 15  # kind, table(ids), rows, cols, int8, x, h, scales, sums, y, k, chosen(ids), experts
EXPERTS_DOWN: Final = 16  # kind, table(ids), rows, cols, int8, x, h, scales, sums, y, k, chosen(ids), experts, weights
FILL: Final = 17  # y, rows, y stride: zero

SILU: Final = 0
GELU_TANH: Final = 1

# entries of `control`, i64[CONTROL]: the run and the sizes that every step may need
WORK: Final = 0  # counts the pieces of work published to the other ranks
FIRST: Final = 2  # the steps to run, [FIRST, LAST)
LAST: Final = 3
TOKENS: Final = 4  # number of tokens n; their ids are ids[0:n]
POSITION: Final = 5  # of the first of them
STATUS: Final = 6  # 0, or what went wrong
GENERATION: Final = 7  # counts the changes of the arrays: arguments prepared before the last one are void
SCRATCH: Final = 8  # f: scratch of rank 0
SCRATCH_STRIDE: Final = 9
HSCRATCH: Final = 10  # h: scratch of rank 0
HSCRATCH_STRIDE: Final = 11
KSCRATCH: Final = 12  # k: scratch of rank 0
KSCRATCH_STRIDE: Final = 13
CACHE_DTYPE: Final = 16
NUM_LAYERS: Final = 17
PAGE_SIZE: Final = 18
KV_HEADS: Final = 19
GROUP: Final = 20  # query heads per key head
HEAD_DIM: Final = 21
SHARE: Final = 22  # rows that are not divided among ranks: a panel's, or fewer if nothing lies in panels
AHEAD: Final = 23  # bytes by which weights are asked for before they are read; 0: see caches.py
NEAREST: Final = 24  # bytes of the nearest data cache
CONTROL: Final = 32
