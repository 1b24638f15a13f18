"""`rml verify bisect`: the first step of the forward pass at which two runs part, and what that step does wrong.

Three passes over the same tokens, a few at a time. A and B run freely: how far they are apart at each activation is
what has been added up so far. Then B runs with every activation replaced by A's once it has been noted: what is
different now is the error that this one step adds. The first step that adds more than the tolerance is the finding;
the steps after it are judged on their own, so a second fault is seen too. A side that is a dump cannot be run on
other inputs: then the other side is. Of two dumps only the sum is known.

The error of an activation is that of its worst token: the length of the difference over the length of A's values (or a
tenth of their usual length, where a token's are small).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rml.config import ModelConfig
from rml.errors import InvalidArgument
from rml.verify_evidence import evidence, ffn_variant, norm_weight
from rml.verify_hints import Picture, hints
from rml.verify_sides import DumpSide, EngineSide, Side
from rml.verify_taps import Floats

SMALL: Final = 0.1  # of the usual length: shorter rows are measured against this
EXACT: Final = 1e-6
"""Of one step, both sides in float64 on the same weights. Seen: 1e-13 for an eps that one file keeps in float32,
1.5e-7 for rotary frequencies that one file divides by float32 numbers."""
SINGLE: Final = 1e-3  # one side in float32, or with a cache narrower than float64
INT8: Final = 0.25  # one side with int8 products, which round activations. Seen: 0.11 at the first token of a model
HEADED: Final = ("q", "k", "v", "q_rope", "k_rope", "attn_out")
INPUTS: Final = (".v", ".ffn_norm", ".router_probs", ".router_choice")  # what hints ask for besides the activation

QUANTISED: Final = 12.0  # times 2^-bits: one side with quantised weights of so many bits that the other does not have


@dataclass
class Step:
    """One activation. own: the error this step adds; None if neither side could be fed. total: the error so far.

    position: of the worst token (of `own` if known).
    """

    name: str
    own: float | None
    total: float
    position: int

    @property
    def error(self) -> float:
        """What is held against the tolerance."""
        return self.total if self.own is None else self.own


@dataclass
class Finding:
    """The first step over the tolerance, looked at closely.

    head: None where the activation has no heads. channel: within the head, or the row. positions, heads: how many are
    over the tolerance and of how many; hints and evidence in sentences.
    """

    step: Step
    token: int
    head: int | None
    channel: int
    value_a: float
    value_b: float
    positions: tuple[int, int]
    hints: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)


@dataclass
class Bisection:
    """What was found. fed: "A" or "B", the side that was also run on the other's activations; "" if none could be."""

    tolerance: float
    why: str
    fed: str
    tokens: list[int]
    steps: list[Step]
    missing: list[str]  # activations that only one side has
    first: Finding | None = None

    @property
    def over(self) -> list[Step]:
        """All steps that add more than the tolerance."""
        return [step for step in self.steps if not step.error <= self.tolerance]

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        first = None if self.first is None else vars(self.first) | {"step": vars(self.first.step)}
        return vars(self) | {
            "steps": [vars(step) for step in self.steps],
            "over": [step.name for step in self.over],
            "first": first,
        }


class Lengths:
    """Squared lengths of the difference and of A's values, for every token, as pieces come."""

    def __init__(self) -> None:
        self._difference: list[Floats] = []
        self._size: list[Floats] = []

    def add(self, name: str, a: Floats, b: Floats) -> None:
        """One piece of activation `name`."""
        if name.endswith(".router_choice"):
            a, b = chosen_of(a, b)
        with np.errstate(invalid="ignore", over="ignore"):
            self._difference.append(((a - b) ** 2).sum(axis=1))
            self._size.append((a**2).sum(axis=1))

    def errors(self) -> Floats:
        """Each token's error; infinite where one side is not finite and the other differs."""
        difference, size = np.concatenate(self._difference), np.concatenate(self._size)
        finite = size[np.isfinite(size)]
        usual = float(finite.mean()) if finite.size else 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = np.sqrt(difference / np.maximum(size, SMALL**2 * usual))
        errors[difference == 0] = 0.0
        errors[~np.isfinite(difference)] = np.inf
        return errors


def chosen_of(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Chosen ids (n, k) as one column per id with 1 where it was chosen: their order does not matter."""
    width = int(max(a.max(), b.max())) + 1

    def spread(ids: Floats) -> Floats:
        out = np.zeros((len(ids), width))
        np.put_along_axis(out, ids.astype(np.int64), 1.0, axis=1)
        return out

    return spread(a), spread(b)


def default_tolerance(a: Side, b: Side) -> tuple[float, str]:
    """The error of one step that needs no explanation, and the explanation."""
    engines = [side for side in (a, b) if isinstance(side, EngineSide)]
    kinds = [{m.format for m in e.model.layers.matrices() if m.format.activation_group} for e in engines]
    if len(engines) == 2 and kinds[0] != kinds[1]:
        bits = min(8 * kind.block_bytes / kind.block_weights for kind in kinds[0] ^ kinds[1])
        return min(1.0, QUANTISED * 2.0**-bits), f"weights of {bits:.3g} bits on one side only"
    if any(kind and engine.model.dot == "int8" for kind, engine in zip(kinds, engines, strict=True)):
        return INT8, "int8 products"
    if a.is_single() or b.is_single():
        return SINGLE, "a side in float32"
    return EXACT, "both sides in float64"


def common_tokens(a: Side, b: Side, tokens: Sequence[int] | None) -> list[int]:
    """The tokens both sides are run on: a dump's own. Raises InvalidArgument where they contradict each other."""
    held = [side for side in (a, b) if side.tokens is not None]
    if len(held) == 2 and held[0].tokens != held[1].tokens:
        raise InvalidArgument(f"{a.name} and {b.name} are dumps of different tokens")
    if held:
        own = list(held[0].tokens or ())
        if tokens is not None and list(tokens) != own:
            raise InvalidArgument(f"{held[0].name} is a dump of other tokens than those asked for")
        return own
    if tokens is None:
        raise InvalidArgument("two models need tokens to run")
    return list(tokens)


@dataclass(frozen=True)
class Piece:
    """Activations of some tokens: of both free runs, and of A and B with the same inputs in every step."""

    a: dict[str, Floats]
    b: dict[str, Floats]
    fed_a: dict[str, Floats]
    fed_b: dict[str, Floats]


class Pair:
    """A and B, and which of them is fed."""

    def __init__(self, a: Side, b: Side, tokens: Sequence[int]) -> None:
        self.a, self.b, self.tokens = a, b, list(tokens)
        self.fed = (
            "" if isinstance(a, DumpSide) and isinstance(b, DumpSide) else "A" if isinstance(b, DumpSide) else "B"
        )
        there, engines = [a.names(), b.names()], [s for s in (a, b) if isinstance(s, EngineSide)]
        order = engines[0].names() if engines else there[0]
        self.names = [name for name in order if name in there[0] and name in there[1]]
        self.missing = sorted(set(there[0]) ^ set(there[1]))
        if not self.names:
            raise InvalidArgument(f"{a.name} and {b.name} have no activation in common: {there[0][:3]}, {there[1][:3]}")

    def shape_of_heads(self, name: str, width: int) -> tuple[int, int]:
        """Heads and head_dim of an activation; 0 and 0 if it has no heads, or nobody knows."""
        kind = name.rpartition(".")[2]
        if kind not in HEADED:
            return 0, 0
        for side in (self.a, self.b):
            known = (
                side.config.head_dim if side.config is not None else int(getattr(side, "about", {}).get("head_dim", 0))
            )
            if known and width % known == 0:
                return width // known, known
        return 0, 0

    def stream(self, wanted: Collection[str], on_tokens: Callable[[int], None] | None = None) -> Iterator[Piece]:
        """The free runs' and the fed run's activations, those that are `wanted`."""
        step = min(self.a.piece(), self.b.piece())
        for side in (self.a, self.b):
            side.start(len(self.tokens))
        for first in range(0, len(self.tokens), step):
            piece = self.tokens[first : first + step]
            a, b = self.a.run(piece, self.names), self.b.run(piece, self.names)
            for name in self.names:
                if a[name].shape != b[name].shape:
                    widths = f"{a[name].shape[1]} values in A and {b[name].shape[1]} in B"
                    raise InvalidArgument(f"{name} has {widths}: not the same model")
            fed_a, fed_b = a, b
            if self.fed == "B":
                fed_b = self.b.run(piece, wanted, feed=a)
            elif self.fed == "A":
                fed_a = self.a.run(piece, wanted, feed=b)
            a, b = ({n: values[n] for n in wanted} for values in (a, b))
            fed_a, fed_b = ({n: values[n] for n in wanted} for values in (fed_a, fed_b))
            yield Piece(a, b, fed_a, fed_b)
            if on_tokens:
                on_tokens(len(piece))


def bisect(
    a: Side,
    b: Side,
    tokens: Sequence[int] | None = None,
    tolerance: float | None = None,
    on_tokens: Callable[[int], None] | None = None,
) -> Bisection:
    """Compares every activation that both sides have. on_tokens: told how many tokens have just been run."""
    pair = Pair(a, b, common_tokens(a, b, tokens))
    limit, why = default_tolerance(a, b) if tolerance is None else (tolerance, "given")
    total = {name: Lengths() for name in pair.names}
    own = {name: Lengths() for name in pair.names}
    for piece in pair.stream(pair.names, on_tokens):
        for name in pair.names:
            total[name].add(name, piece.a[name], piece.b[name])
            if pair.fed:
                own[name].add(name, piece.fed_a[name], piece.fed_b[name])
    steps = []
    for name in pair.names:
        sums = total[name].errors()
        added = own[name].errors() if pair.fed else sums
        steps.append(Step(name, float(added.max()) if pair.fed else None, float(sums.max()), int(added.argmax())))
    found = Bisection(limit, why, pair.fed, pair.tokens, steps, pair.missing)
    if found.over:
        found.first = examine(pair, found.over[0], limit)
    return found


def examine(pair: Pair, step: Step, limit: float) -> Finding:
    """Runs again, keeps what goes into the step and what comes out, and looks at it."""
    picture = take_picture(pair, step.name, limit)
    position = step.position
    with np.errstate(invalid="ignore"):
        difference = np.abs(picture.a[position] - picture.b[position])
    worst = int(np.where(np.isfinite(difference), difference, np.inf).argmax())
    engines = [side.model for side in (pair.a, pair.b) if isinstance(side, EngineSide)]
    return Finding(
        step=step,
        token=pair.tokens[position],
        head=worst // picture.head_dim if picture.heads else None,
        channel=worst % picture.head_dim if picture.heads else worst,
        value_a=float(picture.a[position, worst]),
        value_b=float(picture.b[position, worst]),
        positions=(len(picture.wrong), len(pair.tokens)),
        hints=hints(picture),
        evidence=evidence(engines[0], engines[1], step.name) if len(engines) == 2 else one_file(pair, picture),
    )


def one_file(pair: Pair, picture: Picture) -> list[str]:
    """What the one model file at hand can tell about a step."""
    x = picture.input("ffn_norm")
    finite = np.isfinite(picture.a).all() and np.isfinite(picture.b).all()
    if x is None or not finite:
        return []
    if isinstance(pair.b, EngineSide):
        return ffn_variant(pair.b.model, picture.name, x, picture.b, picture.a)
    return ffn_variant(pair.a.model, picture.name, x, picture.a, picture.b) if isinstance(pair.a, EngineSide) else []


def take_picture(pair: Pair, name: str, limit: float) -> Picture:
    """Both sides' values of one activation, from the fed runs, and A's of the same layer."""
    layer = name.rpartition(".")[0]
    inputs = [n for n in pair.names if layer and n.rpartition(".")[0] == layer and n.endswith(INPUTS)]
    parts: list[Piece] = list(pair.stream([name, *inputs]))
    a, b = (np.concatenate([getattr(part, side)[name] for part in parts]) for side in ("fed_a", "fed_b"))
    believed = "b" if pair.fed == "A" else "a"  # whose values went into the step on both sides
    given = {n.rpartition(".")[2]: np.concatenate([getattr(part, believed)[n] for part in parts]) for n in inputs}
    lengths = Lengths()
    lengths.add(name, a, b)
    heads, head_dim = pair.shape_of_heads(name, a.shape[1])
    engines = [side.model if isinstance(side, EngineSide) else None for side in (pair.a, pair.b)]
    index = int(layer.rpartition(".")[2]) if layer else 0
    return Picture(
        name=name,
        a=a,
        b=b,
        limit=limit,
        errors=lengths.errors(),
        heads=heads,
        head_dim=head_dim,
        inputs=given,
        windows=tuple(None if e is None else window_of(e.config, index) for e in engines),  # type: ignore[arg-type]
        norms=tuple(None if e is None else norm_weight(e, name) for e in engines),  # type: ignore[arg-type]
    )


def window_of(config: ModelConfig, layer: int) -> int:
    """How many keys a layer sees; 0 = all."""
    return config.sliding_window if config.sliding_layers[layer] else 0
