"""What a model will need, known before anything large is allocated: from the header, the config and the norms alone."""

from __future__ import annotations

from dataclasses import dataclass

from rml.decoder import CALL_TOKENS, ForwardPass
from rml.kv_cache import DTYPES, PAGE_SIZE, bytes_per_token
from rml.layers import Weights, load_weights
from rml.panels import is_packed, panel_bytes
from rml.weight_source import WeightSource

ARENA_BYTES = {"f": 8, "h": 2, "k": 4, "ids": 8}  # arena -> bytes of an entry (rml/arenas.py)


@dataclass(frozen=True)
class Memory:
    """Bytes, by what they are for.

    weights: stored tensors that are used as they lie in the file, mapped: resident once touched, shared between
        processes, given back under pressure. panels: quantised matrices, rewritten for int8 products; their tensors are
        read once, a piece at a time. copies: tensors that are copied (norms and biases as float64, tensors the file
        does not align).
        workspace: activations, constants and every rank's scratch, for calls of up to `tokens` tokens. logits: what
        `forward` returns for the last token. cache: one position's keys and values, by cache dtype.
    """

    weights: int
    panels: int
    copies: int
    workspace: int
    logits: int
    cache: dict[str, int]
    tokens: int
    threads: int

    def cache_bytes(self, dtype: str, context: int) -> int:
        """The cache's arena for `context` positions: whole pages, resident as they fill."""
        return -(-context // PAGE_SIZE) * PAGE_SIZE * self.cache[dtype]


def estimate(
    source: WeightSource, threads: int, tokens: int | None = None, exact: bool = False, weights: Weights | None = None
) -> Memory:
    """The memory of a model loaded with so many threads, for calls of up to `tokens` tokens.

    None: for calls of any length, which are cut into pieces.
    """
    config = source.config
    weights = weights or load_weights(source)
    packed = [] if exact else [matrix for matrix in weights.products() if is_packed(matrix)]
    own = {id(tensor.file) for tensor in source.tensors.values()}
    vectors = sum(shape[0] for _, shape in config.tensor_shapes() if len(shape) == 1)
    tokens = min(tokens or CALL_TOKENS, CALL_TOKENS)
    run = ForwardPass(config, weights, lambda file, offset: offset, tokens, 1, exact)
    scratch = dict(zip(("f", "h", "k"), run.scratch_sizes(), strict=True))
    entries = {name: getattr(run.steps, name).size + threads * scratch.get(name, 0) for name in ARENA_BYTES}
    return Memory(
        weights=sum(tensor.nbytes for tensor in source.tensors.values()) - sum(matrix.nbytes for matrix in packed),
        panels=sum(map(panel_bytes, packed)),
        copies=8 * vectors + sum(file.size for file in weights.files() if id(file) not in own),
        workspace=sum(count * ARENA_BYTES[name] for name, count in entries.items()),
        logits=8 * config.vocab_size,
        cache={dtype: bytes_per_token(config, dtype) for dtype in DTYPES},
        tokens=tokens,
        threads=threads,
    )
