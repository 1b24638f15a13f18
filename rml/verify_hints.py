"""What a step does wrong, guessed from the pattern of the difference.

Each function below knows one pattern and returns a sentence, or None. First those that explain every number (B is A
with its rows in another order, times a factor, plus a bias ...), of which the first that fits is given; then those
that say where the difference is and is not (positions, heads, channels, experts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rml.verify_taps import Floats, deinterleave, interleave

FIT: Final = 0.1  # of the difference that an explanation may leave over
FEW: Final = 4  # below so many tokens a pattern over tokens means nothing
NORMS: Final = ("attn_norm", "ffn_norm", "final_norm")


@dataclass(frozen=True)
class Picture:
    """One activation of both sides, (n, width), the step's inputs alike if they could be made so.

    name, kind: of the activation, `blk.3.attn_out` and `attn_out`. limit: the tolerance. errors (n,): each token's.
    heads, head_dim: of the activation; 0 = it has none, or they are not known. inputs: other activations of the
    layer by kind. windows: keys that this layer sees in A and in B; 0 = all, None = not known. norms: the norm's
    weights in A and in B, None = not known.
    """

    name: str
    a: Floats
    b: Floats
    limit: float
    errors: Floats
    heads: int = 0
    head_dim: int = 0
    inputs: Mapping[str, Floats] | None = None
    windows: tuple[int | None, int | None] = (None, None)
    norms: tuple[Floats | None, Floats | None] = (None, None)

    @property
    def kind(self) -> str:
        """The name without the layer."""
        return self.name.rpartition(".")[2]

    @property
    def wrong(self) -> list[int]:
        """Positions over the limit."""
        return [int(i) for i in np.flatnonzero(~(self.errors <= self.limit))]

    def input(self, kind: str) -> Floats | None:
        """One of A's other activations."""
        return (self.inputs or {}).get(kind)

    def explains(self, guess: Floats) -> bool:
        """Whether B is `guess` and not A: what is left over is a tenth of the difference."""
        before, after = _distance(self.a, self.b), _distance(guess, self.b)
        return bool(np.isfinite(before) and after <= FIT * before)

    def by_head(self, values: Floats) -> Floats:
        """(n, heads, D)."""
        return values.reshape(len(values), self.heads, self.head_dim)


def _distance(x: Floats, y: Floats) -> float:
    return float(np.linalg.norm(x - y))


def _join(numbers: list[int], most: int = 8) -> str:
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")


# ----------------------------------------------------------------------------------------- explanations of every number


def not_finite(p: Picture) -> str | None:
    """NaN or infinity on one side only."""
    for side, values in (("A", p.a), ("B", p.b)):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            position, channel = (int(i) for i in bad[0])
            return f"{len(bad)} values of {side} are not finite, the first at position {position}, channel {channel}"
    return None


def other_pairing(p: Picture) -> str | None:
    """Rows of q or k in the order of the other file format."""
    if p.kind not in ("q", "k", "q_rope", "k_rope") or not p.head_dim:
        return None
    if any(p.explains(change(p.a, p.head_dim)) for change in (interleave, deinterleave)):
        return (
            "the rows of every head lie in the other pairing order, (2i, 2i + 1) for (i, i + D/2): the permutation "
            "between the file formats was left out, or done twice"
        )
    return None


def moved_heads(p: Picture) -> str | None:
    """Heads that hold each other's values."""
    if p.heads < 2:
        return None
    a, b = p.by_head(p.a), p.by_head(p.b)
    cost = np.array([[_distance(a[:, i], b[:, j]) for i in range(p.heads)] for j in range(p.heads)])
    source = cost.argmin(axis=1)
    moved = [j for j in range(p.heads) if source[j] != j]
    if not moved or not p.explains(a[:, source].reshape(p.a.shape)):
        return None
    return "heads in another order: " + ", ".join(f"head {j} of B is head {source[j]} of A" for j in moved[:8])


def wrong_key_head(p: Picture) -> str | None:
    """At position 0 attention gives the only value there is: that of the key head which a query head reads."""
    v = p.input("v")
    if p.kind != "attn_out" or v is None or not p.heads:
        return None
    values = v[0].reshape(-1, p.head_dim)
    group = p.heads // len(values)
    read = [int(np.linalg.norm(values - head, axis=1).argmin()) for head in p.by_head(p.b)[0]]
    expected = [h // group for h in range(p.heads)]
    if read == expected or not np.allclose(values[read].ravel(), p.b[0], rtol=max(p.limit, 1e-6), atol=1e-12):
        return None
    pairs = enumerate(zip(read, expected, strict=True))
    wrong = [f"query head {h} reads key head {r}, not {e}" for h, (r, e) in pairs if r != e]
    return "grouping of query heads over key heads: " + ", ".join(wrong[:8])


def one_factor(p: Picture) -> str | None:
    """B = c A."""
    size = float((p.a**2).sum())
    c = float((p.a * p.b).sum()) / size if size else 0.0
    if not p.explains(c * p.a):
        return None
    known = {"the square root of the width": p.a.shape[1] ** 0.5, "the square root of head_dim": p.head_dim**0.5}
    named = [
        f" ({'1 over ' if power < 0 else ''}{what})"
        for what, value in known.items()
        for power in (1, -1)
        if value > 1 and abs(c / value**power - 1) < 1e-3
    ]
    return f"B is {c:.6g} times A everywhere{''.join(named[:1])}: a scale"


def same_difference(p: Picture) -> str | None:
    """B = A + bias."""
    if len(p.a) < FEW:
        return None
    bias = (p.b - p.a).mean(axis=0)
    return "B - A is the same at every token: a bias" if p.explains(p.a + bias) else None


def factor_per_token(p: Picture) -> str | None:
    """B = c[token] A."""
    size = (p.a**2).sum(axis=1, keepdims=True)
    c = (p.a * p.b).sum(axis=1, keepdims=True) / np.where(size > 0, size, 1.0)
    if p.a.shape[1] < FEW or not p.explains(c * p.a):
        return None
    text = f"a factor of its own for every token ({c.min():.6g} to {c.max():.6g})"
    if p.kind in NORMS:
        return f"{text}: eps, or the mean in the norm"
    if p.kind == "ffn_out" and p.input("router_probs") is not None:
        return f"{text}: the chosen experts' weights, which sum to 1 or do not"
    return text


def factor_per_channel(p: Picture) -> str | None:
    """B = c[channel] A: a norm's weight."""
    if len(p.a) < FEW:
        return None
    size = (p.a**2).sum(axis=0)
    c = (p.a * p.b).sum(axis=0) / np.where(size > 0, size, 1.0)
    if not p.explains(c * p.a):
        return None
    weight_a, weight_b = p.norms
    if weight_a is None and weight_b is not None:
        weight_a = weight_b / np.where(c == 0, np.nan, c)
    if weight_b is None and weight_a is not None:
        weight_b = weight_a * c
    text = "a factor of its own for every channel: the weight of a norm"
    if weight_a is None or weight_b is None:
        return text
    offset = weight_b - weight_a
    for side, value in (("B", -1.0), ("A", 1.0)):
        if np.nanmax(np.abs(offset - value)) < 1e-3:
            return f"the norm scales by w on {side}'s side where the other has 1 + w: the 1 is missing"
        if np.nanmax(np.abs(offset + value)) < 1e-3:
            return f"the norm scales by 2 + w on {side}'s side where the other has 1 + w: the 1 was added twice"
    return text


def soft_cap(p: Picture) -> str | None:
    """B = c tanh(A / c), or the other way round; c from the largest value, by bisection."""
    if p.kind != "logits":
        return None
    for plain, capped, side in ((p.a, p.b, "A"), (p.b, p.a, "B")):
        at = np.unravel_index(np.abs(plain).argmax(), plain.shape)
        x, y = abs(float(plain[at])), abs(float(capped[at]))
        if not 0 < y < x:
            continue
        low, high = y, 1e6 * x
        for _ in range(200):
            c = (low * high) ** 0.5
            low, high = (c, high) if c * np.tanh(x / c) < y else (low, c)
        guess = c * np.tanh(plain / c)
        if _distance(guess, capped) <= FIT * _distance(p.a, p.b):
            return f"a soft cap of {c:.4g} on the logits is left out on {side}'s side"
    return None


def same_order(p: Picture) -> str | None:
    """Logits whose ranking agrees although their sizes do not."""
    if p.kind != "logits" or not (np.argsort(p.a, axis=1) == np.argsort(p.b, axis=1)).all():
        return None
    return "the logits rank alike and differ in size: a function of each one alone, such as a soft cap or a temperature"


def turned_pairs(p: Picture) -> str | None:
    """Rotary pairs of the right length at the wrong angle."""
    if p.kind not in ("q_rope", "k_rope") or not p.head_dim:
        return None
    half = p.head_dim // 2
    a, b = (p.by_head(x).reshape(len(x), p.heads, 2, half) for x in (p.a, p.b))
    lengths_a, lengths_b = np.hypot(a[:, :, 0], a[:, :, 1]), np.hypot(b[:, :, 0], b[:, :, 1])
    if _distance(lengths_a, lengths_b) > FIT * _distance(p.a, p.b) or 0 in p.wrong:
        return None
    error = np.hypot(a[:, :, 0] - b[:, :, 0], a[:, :, 1] - b[:, :, 1]).sum(axis=(0, 1))
    pairs = [int(i) for i in np.flatnonzero(error > p.limit * lengths_a.sum(axis=(0, 1)))]
    which = "all pairs" if len(pairs) == half else f"pairs {_join(pairs)} of {half}"
    return (
        f"rotary angles: {which} have the right length and are turned too far or not far enough: theta or its scaling"
    )


EXPLANATIONS: Final[tuple[Callable[[Picture], str | None], ...]] = (
    not_finite,
    other_pairing,
    moved_heads,
    wrong_key_head,
    one_factor,
    same_difference,
    factor_per_token,
    soft_cap,
    factor_per_channel,
    same_order,
    turned_pairs,
)


# --------------------------------------------------------------------------------------------- where it is and is not


def some_positions(p: Picture) -> str | None:
    """Which positions are right tells what the step does with positions."""
    n, wrong = len(p.errors), p.wrong
    if not wrong or len(wrong) == n:
        return None
    first = wrong[0]
    later = len(wrong) >= 0.8 * (n - first)
    if p.kind.endswith("_rope") and first >= 1 and later:
        return (
            "position 0 agrees and those above it do not: rotary embedding"
            if first == 1
            else (f"positions below {first} agree: rotary embedding, scaling of long contexts")
        )
    if p.kind == "attn_out":
        if wrong == list(range(n - 1)):
            return "only the last position agrees: the others look at tokens after them; the causal mask"
        if first == 1 and later and not any(w == 1 for w in p.windows):
            return "position 0, which has one key and no choice, agrees: the scores (scale, mask, order of keys)"
        if later:
            known = [f"{side} {w or 'none'}" for side, w in zip("AB", p.windows, strict=True) if w is not None]
            window = f" (windows: {', '.join(known)})" if known else ""
            return f"positions below {first} agree and those from {first} on do not: a window of {first} keys{window}"
    return f"{len(wrong)} of {n} positions differ: {_join(wrong)}"


def some_heads(p: Picture) -> str | None:
    """Heads that are right."""
    if p.heads < 2:
        return None
    difference = np.linalg.norm(p.by_head(p.a - p.b), axis=2)
    size = np.linalg.norm(p.by_head(p.a), axis=2)
    worst = (difference / np.maximum(size, 0.1 * size.mean() + 1e-300)).max(axis=0)
    wrong = [int(i) for i in np.flatnonzero(~(worst <= p.limit))]
    if not wrong or len(wrong) == p.heads:
        return None
    why = ": grouping over key heads, or the key heads themselves" if p.kind == "attn_out" else ""
    return f"only heads {_join(wrong)} of {p.heads} differ{why}"


def some_channels(p: Picture) -> str | None:
    """A few channels of many."""
    difference = np.abs(p.a - p.b).max(axis=0)
    wrong = [int(i) for i in np.flatnonzero(difference > p.limit * (np.abs(p.a).max() + 1e-300))]
    if not wrong or len(wrong) > max(1, p.a.shape[1] // 4):
        return None
    what = {"logits": "tokens", "router_probs": "experts", "router_choice": "experts"}.get(p.kind, "channels")
    return f"only {what} {_join(wrong)} of {p.a.shape[1]} differ: rows of the matrix before this"


def some_experts(p: Picture) -> str | None:
    """Tokens that are wrong share an expert that tokens which are right never chose."""
    choice = p.input("router_choice")
    if p.kind != "ffn_out" or choice is None:
        return None
    wrong = set(p.wrong)
    right = {int(e) for i, row in enumerate(choice) if i not in wrong for e in row}
    suspects = sorted({int(e) for i in wrong for e in choice[i]} - right)
    if not suspects or not right or not all(any(int(e) in suspects for e in choice[i]) for i in wrong):
        return None
    names = " or ".join(map(str, suspects))
    return f"only tokens that chose expert {names} differ: the weights or the order of these experts"


PLACES: Final[tuple[Callable[[Picture], str | None], ...]] = (some_positions, some_heads, some_experts, some_channels)

STEPS: Final[dict[str, str]] = {
    "embed": "rows of the embedding, or its scale",
    "attn_norm": "the norm before attention: its weight, eps",
    "q": "the query projection: its matrix, its bias",
    "k": "the key projection: its matrix, its bias",
    "v": "the value projection: its matrix, its bias",
    "q_rope": "QK-norm or rotary embedding of the queries",
    "k_rope": "QK-norm or rotary embedding of the keys",
    "attn_out": "attention: scale of the scores, mask, window, grouping of heads",
    "o_proj": "the output projection: its matrix, its bias, the order of heads in its columns",
    "residual": "the post-attention norm, or the sum with the stream",
    "ffn_norm": "the norm before the FFN: its weight, eps",
    "router_probs": "the router's matrix, or its softmax",
    "router_choice": "the choice of the likeliest experts",
    "ffn_out": "the FFN: gate, up and down matrices and which is which, the activation, the weights of experts",
    "output": "the post-FFN norm, or the sum with the stream",
    "final_norm": "the last norm: its weight, eps",
    "logits": "the output matrix (tied or not), a soft cap",
}


def hints(picture: Picture) -> list[str]:
    """Sentences, the most telling first; the last says what the step consists of."""
    found: list[str] = []
    for explain in EXPLANATIONS:
        text = explain(picture)
        if text is not None:
            found.append(text)
            break
        if explain is not_finite and not np.isfinite(picture.a).all():
            break
    if np.isfinite(picture.a).all() and np.isfinite(picture.b).all():
        found += [text for text in (place(picture) for place in PLACES) if text is not None]
    return [*found, f"this step is {STEPS[picture.kind]}"] if picture.kind in STEPS else found
