"""`rml verify kv`: what each type of KV cache costs, layer by layer, against a cache in float64.

Two runs for each type. In the first every layer's attention gets the float64 run's input, so that what is seen in a
layer (keys, values, the attention's output) is that layer's rounding alone. The second runs freely, and its logits show
what all layers together do to the expectations. Errors are relative: root mean square of the difference over that of
the float64 run's values. Of keys and values that is taken channel by channel, so that a large channel does not hide the
others, and then the root mean square over the channels.

Exact products show the cache alone: with int8 ones, the smallest change of a key flips roundings of later activations.

int8 shares one scale among a group of channels of a key: one channel that is much larger than the others takes the
resolution away from them. The keys are searched for such channels, which biases put there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rml.decoder import DecoderLM
from rml.kv_cache import CacheOverflow, CacheType, KvCache, int8_group
from rml.verify_record import divergence, log_softmax
from rml.verify_taps import piece_tokens

Floats = npt.NDArray[np.float64]

ROUNDED: Final[tuple[CacheType, ...]] = ("f32", "f16", "int8")
OUTLIER: Final = 44.0
"""Largest key of a group over the median channel's root mean square from where int8, with steps of largest / 127 and an
error of step / sqrt(12), takes more than a tenth of that channel: 0.1 * 127 * sqrt(12)."""
HARMLESS: Final = 0.01  # nats of mean KL divergence: below what 8-bit weights cost


@dataclass
class LayerErrors:
    """One layer's relative errors. zeroed: share of the keys that are not 0 but stored as 0."""

    key: float
    value: float
    attention: float
    zeroed: float


@dataclass
class TypeReport:
    """One type of cache. problem: why it cannot hold this model's keys or values; the rest is then empty."""

    dtype: CacheType
    layers: list[LayerErrors] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)  # of each position's logits, nats
    same_top: float = 0.0
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As a JSON object; divergences as figures."""
        kl = np.array(self.kl or [0.0])
        figures = {"kl_mean": float(kl.mean()), "kl_max": float(kl.max()), "same_top": self.same_top}
        layers = [vars(layer) for layer in self.layers]
        return {"dtype": self.dtype, "problem": self.problem, "layers": layers} | ({} if self.problem else figures)


@dataclass(frozen=True)
class Outlier:
    """The group of key channels of a layer that int8 serves worst.

    largest: the largest key, in `channel` of `head` at `position`. median: of the group's channels' root mean squares.
    step: the int8 step of that key. zeroed: share of the group's keys that int8 stores as 0.
    """

    layer: int
    head: int
    channel: int
    position: int
    largest: float
    median: float
    step: float
    zeroed: float


class _Run:
    """One cache and what is added up from its taps; `fed` by the float64 run's attention inputs, or free."""

    def __init__(self, cache: KvCache, fed: bool) -> None:
        self.cache, self.fed = cache, fed
        self.difference: dict[str, float] = {}
        self.seen: dict[str, Floats] = {}
        self.problem = ""

    def forward(self, model: DecoderLM, tokens: Sequence[int], truth: dict[str, Floats]) -> None:
        """Runs a piece. A free run keeps its logits, a fed one adds up the errors of attention's outputs."""
        self.seen = {}

        def tap(name: str, values: Floats) -> Floats | None:
            if self.fed and name.endswith(".attn_norm"):
                return truth[name]
            if self.fed and name.endswith(".attn_out"):
                self.difference[name] = self.difference.get(name, 0.0) + float(((values - truth[name]) ** 2).sum())
            if not self.fed and name == "logits":
                self.seen[name] = values
            return None

        try:
            model.forward(tokens, self.cache, taps=tap)
        except CacheOverflow as error:
            self.problem = str(error)


def measure(
    model: DecoderLM,
    tokens: Sequence[int],
    dtypes: Sequence[CacheType] = ROUNDED,
    on_tokens: Callable[[int], None] | None = None,
) -> tuple[list[TypeReport], list[Outlier]]:
    """Runs `tokens` with every type of cache. on_tokens: told how many tokens have just been run.

    Returns a report per type, and the layers whose keys have outliers.
    """
    n = len(tokens)
    exact = model.new_cache(n, "f64")
    reports = {dtype: TypeReport(dtype) for dtype in dtypes}
    fed = {dtype: _Run(model.new_cache(n, dtype), True) for dtype in dtypes}
    free = {dtype: _Run(model.new_cache(n, dtype), False) for dtype in dtypes}
    size: dict[str, float] = {}  # of attention's outputs: sums of squares
    same = dict.fromkeys(dtypes, 0)
    step = piece_tokens(model)
    for first in range(0, n, step):
        piece = tokens[first : first + step]
        truth = _truth(model, piece, exact)
        for name, values in truth.items():
            size[name] = size.get(name, 0.0) + float((values**2).sum())
        a = [log_softmax(row, f"position {first + i}, f64 cache") for i, row in enumerate(truth.pop("logits"))]
        for dtype in dtypes:
            for run in (fed[dtype], free[dtype]):
                if not run.problem:
                    run.forward(model, piece, truth)
            for i, row in enumerate(free[dtype].seen.get("logits", ())):
                b = log_softmax(row, f"position {first + i}, {dtype} cache")
                reports[dtype].kl.append(divergence(a[i], b)[0])
                same[dtype] += a[i].best == b.best
        if on_tokens:
            on_tokens(len(piece))
    outliers = []
    for layer in range(model.config.num_layers):
        keys, values = exact.read(layer, 0), exact.read(layer, 1)
        for dtype in dtypes:
            if not fed[dtype].problem:
                name = f"blk.{layer}.attn_out"
                attention = _relative(fed[dtype].difference[name], size[name])
                reports[dtype].layers.append(_layer_errors(fed[dtype].cache, layer, keys, values, attention))
        found = find_outlier(keys, layer)
        if found.largest > OUTLIER * found.median:
            outliers.append(found)
    for dtype in dtypes:
        reports[dtype].same_top = same[dtype] / n
        reports[dtype].problem = fed[dtype].problem or free[dtype].problem
    return list(reports.values()), outliers


def _truth(model: DecoderLM, tokens: Sequence[int], cache: KvCache) -> dict[str, Floats]:
    """The float64 run's attention inputs and outputs, and its logits, for one piece."""
    seen: dict[str, Floats] = {}

    def tap(name: str, values: Floats) -> None:
        if name == "logits" or name.endswith((".attn_norm", ".attn_out")):
            seen[name] = values

    model.forward(tokens, cache, taps=tap)
    return seen


def _relative(difference: float, size: float) -> float:
    """Root of a quotient of sums of squares; 0 where nothing differs."""
    return float(np.sqrt(difference / size)) if size else float(difference > 0) * np.inf


def _layer_errors(cache: KvCache, layer: int, keys: Floats, values: Floats, attention: float) -> LayerErrors:
    stored_keys, stored_values = cache.read(layer, 0), cache.read(layer, 1)
    zeroed = float(((stored_keys == 0) & (keys != 0)).mean())
    return LayerErrors(_by_channel(stored_keys, keys), _by_channel(stored_values, values), attention, zeroed)


def _by_channel(stored: Floats, true: Floats) -> float:
    """Root mean square over channels of each one's relative error; (n, kv heads, D)."""
    size = (true**2).sum(axis=0)
    errors = ((stored - true) ** 2).sum(axis=0)[size > 0] / size[size > 0]
    return float(np.sqrt(errors.mean())) if errors.size else 0.0


def find_outlier(keys: Floats, layer: int) -> Outlier:
    """The group of channels where the largest key towers highest above the median channel; keys (n, kv heads, D)."""
    n, heads, dim = keys.shape
    group = int8_group(dim)
    grouped = np.abs(keys).reshape(n, heads, dim // group, group)
    largest = grouped.max(axis=(0, 3))
    median = np.median(np.sqrt((grouped**2).mean(axis=0)), axis=-1)
    head, part = np.unravel_index(np.argmax(largest / np.maximum(median, 1e-300)), largest.shape)
    members = grouped[:, head, part]
    position, channel = np.unravel_index(members.argmax(), members.shape)
    steps = members.max(axis=1, keepdims=True) / 127.0
    return Outlier(
        layer=layer,
        head=int(head),
        channel=int(part * group + channel),
        position=int(position),
        largest=float(largest[head, part]),
        median=float(median[head, part]),
        step=float(largest[head, part] / 127.0),
        zeroed=float(((members < steps / 2) & (members > 0)).mean()),
    )


def advice(reports: Sequence[TypeReport], outliers: Sequence[Outlier]) -> list[str]:
    """What to do, in sentences; one that says so if there is nothing to worry about."""
    lines = [f"{report.dtype} cannot be used: {report.problem}" for report in reports if report.problem]
    int8 = next((report.layers for report in reports if report.dtype == "int8" and report.layers), None)
    lines += [
        f"layer {o.layer}: channel {o.channel} of key head {o.head} reaches {o.largest:.3g}, the median channel of its "
        f"group {o.median:.2g}: int8 steps of {o.step:.3g} make {100 * o.zeroed:.0f} % of the group's keys 0"
        + (f" (attention there is off by {100 * int8[o.layer].attention:.2g} %)" if int8 else "")
        + "; use f16 or f32"
        for o in outliers
    ]
    for report in reports:
        if report.problem or not report.kl:
            continue
        mean = float(np.mean(report.kl))
        if mean > HARMLESS:
            lines.append(f"{report.dtype} costs {mean:.2g} nats of KL divergence at every position: use a wider type")
    good = [r.dtype for r in reports if not r.problem and r.kl and float(np.mean(r.kl)) <= HARMLESS]
    if good and not lines:
        lines.append(f"{', '.join(good)}: nothing to worry about (mean KL divergence at most {HARMLESS} nats)")
    return lines
