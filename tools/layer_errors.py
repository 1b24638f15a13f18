"""How far each named activation of the engine is from the reference's: where along the layers an error begins.

Both sides name their activations alike (`blk.3.attn_out`, see reference/decoder.py). Rows of q and k of a GGUF file of
the llama architecture lie in another order in the engine, which computes in the file's; they are put back here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import rml
from rml.kv_cache import CacheType
from tools.comparison import kl_divergence

Array = npt.NDArray[np.float64]
LOWEST, HIGHEST, PER_DECADE = -18, 2, 2  # of the histogram: decades of the absolute error, and bins in each


@dataclass
class TapError:
    """One activation. relative: root mean square of the difference over that of the reference. worst: the largest
    absolute difference. Of the router's choice both are the share of chosen experts that differ."""

    name: str
    relative: float
    worst: float


@dataclass
class _Sums:
    """What is added up while the engine hands out an activation a few positions at a time."""

    rows: int = 0
    values: int = 0
    square: float = 0.0
    reference: float = 0.0
    worst: float = 0.0
    differs: int = 0


def in_hf_order(config: rml.ModelConfig, name: str, values: Array) -> Array:
    """Rows of q and k as Hugging Face has them: pair i of a head is (i, i + D/2), not (2i, 2i + 1)."""
    if not config.rope_interleaved or re.fullmatch(r"blk\.\d+\.[qk](_rope)?", name) is None:
        return values
    pairs = values.reshape(len(values), -1, config.head_dim // 2, 2)
    return np.ascontiguousarray(pairs.swapaxes(-1, -2)).reshape(values.shape)


@dataclass
class Watch:
    """A `taps` callback that compares what it sees with the reference's activations."""

    config: rml.ModelConfig
    wanted: Mapping[str, Array]
    sums: dict[str, _Sums] = field(default_factory=dict)

    def __call__(self, name: str, values: Array) -> None:
        """Compares the next rows of one activation."""
        sums = self.sums.setdefault(name, _Sums())
        got = in_hf_order(self.config, name, values)
        want = self.wanted[name][sums.rows : sums.rows + len(got)]
        if name.endswith("router_choice"):  # the reference lists the likeliest first, the engine by number
            got, want = np.sort(got, axis=-1), np.sort(want, axis=-1)
        sums.rows += len(got)
        sums.values += got.size
        gap = np.abs(got - want)
        sums.square += float((gap * gap).sum())
        sums.reference += float((want * want).sum())
        worst = float(gap.max())
        sums.worst = max(sums.worst, math.inf if math.isnan(worst) else worst)
        sums.differs += int((gap != 0.0).sum())

    def errors(self) -> list[TapError]:
        """What was found, in the order of the forward pass."""
        return [error_of(name, sums) for name, sums in self.sums.items()]


def error_of(name: str, sums: _Sums) -> TapError:
    """The figures of one activation."""
    if name.endswith("router_choice"):
        share = sums.differs / sums.values
        return TapError(name, share, share)
    return TapError(name, math.sqrt(sums.square / sums.reference) if sums.reference else math.inf, sums.worst)


def tap_errors(model: rml.DecoderLM, tokens: Sequence[int], cache: CacheType, wanted: Mapping[str, Array]) -> Watch:
    """Runs the prompt through the engine, every activation against the reference's (`wanted`, by name)."""
    watch = Watch(model.config, wanted)
    model.forward(tokens, model.new_cache(len(tokens), cache), all_logits=True, taps=watch)
    missing = [name for name in wanted if name not in watch.sums]
    if missing:
        raise ValueError(f"the engine has no activation {missing[0]!r}")
    return watch


def short(value: float) -> float:
    """Three digits: a picture shows no more."""
    return float(f"{value:.2e}")


def layers_row(errors: Sequence[TapError], **about: Any) -> dict[str, Any]:
    """One row of a report: names and figures side by side, short enough to be kept."""
    return {
        "kind": "layers",
        **about,
        "taps": [error.name for error in errors],
        "relative": [short(error.relative) for error in errors],
        "worst": [short(error.worst) for error in errors],
    }


def positions_row(got: Array, want: Array, **about: Any) -> dict[str, Any]:
    """One row of a report: by position, the largest error of a logit and the divergence in nats."""
    return {
        "kind": "positions",
        **about,
        "worst": [short(value) for value in np.abs(got - want).max(axis=1)],
        "kl": [short(max(kl_divergence(w, g), 0.0)) for w, g in zip(want, got, strict=True)],
    }


def histogram(got: Array, want: Array) -> npt.NDArray[np.int64]:
    """How many logits err by how much: counts per half decade of the absolute error; the ends take the rest."""
    bins = (HIGHEST - LOWEST) * PER_DECADE
    with np.errstate(divide="ignore"):
        place = np.floor((np.log10(np.abs(got - want)) - LOWEST) * PER_DECADE)
    return np.bincount(np.clip(place, 0, bins - 1).astype(np.int64).ravel(), minlength=bins)


def histogram_row(counts: npt.NDArray[np.int64], **about: Any) -> dict[str, Any]:
    """One row of a report: the histogram, with what its bins are."""
    return {"kind": "histogram", **about, "lowest": LOWEST, "per_decade": PER_DECADE, "counts": counts.tolist()}
