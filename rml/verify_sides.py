"""Where activations come from when two runs are compared: an engine run of a model, or a dump in an `.npz` file.

A dump holds `tokens` (n,), any of the activations of `rml.verify_taps` by name, each (n, width), and optionally
`about`, a JSON text: name, heads, kv_heads, head_dim.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.decoder import DecoderLM
from rml.errors import BadFile, InvalidArgument
from rml.kv_cache import CacheType
from rml.verify_taps import Floats, from_halves, piece_tokens, to_halves

Feed = Mapping[str, Floats]


class EngineSide:
    """An engine run. Runs with a feed and runs without have positions and caches of their own."""

    def __init__(self, model: DecoderLM, name: str, cache_dtype: CacheType = "f64") -> None:
        self.model, self.name, self.cache_dtype = model, name, cache_dtype
        self.config: ModelConfig | None = model.config
        self.tokens: list[int] | None = None  # any
        self.start(1)

    def names(self) -> list[str]:
        """The activations it has, in the order of the forward pass."""
        return self.model.tap_names()

    def piece(self) -> int:
        """The most tokens of one `run`."""
        return piece_tokens(self.model)

    def start(self, count: int) -> None:
        """Begins again at position 0; `count` tokens will be run."""
        self._caches = [self.model.new_cache(count, self.cache_dtype) for _ in range(2)]

    def run(self, tokens: Sequence[int], wanted: Collection[str], feed: Feed | None = None) -> dict[str, Floats]:
        """The activations of the next tokens; feed: values that take the place of its own once those have been noted.

        The router's choice is not replaced: the weights beside it would be those of other experts.
        """
        seen: dict[str, Floats] = {}
        config = self.model.config

        def tap(name: str, values: Floats) -> Floats | None:
            if name in wanted:
                seen[name] = to_halves(config, name, values)
            if feed is None or name not in feed or ".router_" in name:
                return None
            return from_halves(config, name, feed[name])

        self.model.forward(tokens, self._caches[feed is not None], taps=tap)
        return seen

    def is_single(self) -> bool:
        """Whether its numbers have 24 bits or fewer."""
        return self.cache_dtype != "f64"


class DumpSide:
    """Activations from a file."""

    def __init__(self, path: Path) -> None:
        """Raises BadFile for a file that is no dump, or whose arrays do not belong to its tokens."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: np.asarray(file[name]) for name in file.files}
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError, TypeError) as error:
            raise BadFile(f"{path}: not an .npz file of activations ({error})") from error
        about = arrays.pop("about", None)
        self.about = read_about(path, about) if about is not None else {}
        self.name = f"{self.about['name']}, dumped in {path.name}" if "name" in self.about else str(path)
        tokens = arrays.pop("tokens", None)
        if tokens is None or tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not tokens.size:
            raise BadFile(f"{path}: holds no array `tokens` of ids (n,)")
        self.tokens: list[int] | None = [int(token) for token in tokens]
        wrong = next(
            (n for n, v in arrays.items() if v.ndim != 2 or len(v) != len(tokens) or v.dtype.kind not in "iuf"), None
        )
        if wrong is not None:
            shape = arrays[wrong].shape
            raise BadFile(f"{path}: {wrong} is {arrays[wrong].dtype} {shape}, expected numbers ({len(tokens)}, width)")
        if not arrays:
            raise BadFile(f"{path}: holds no activations")
        self._single = any(values.dtype.kind == "f" and values.dtype.itemsize < 8 for values in arrays.values())
        self._arrays = {name: values.astype(np.float64) for name, values in arrays.items()}
        self.config: ModelConfig | None = None
        self._at = 0

    def names(self) -> list[str]:
        """The activations it has."""
        return list(self._arrays)

    def piece(self) -> int:
        """The most tokens of one `run`."""
        return len(self.tokens or ())

    def start(self, count: int) -> None:
        """Begins again at position 0."""
        self._at = 0

    def run(self, tokens: Sequence[int], wanted: Collection[str], feed: Feed | None = None) -> dict[str, Floats]:
        """The activations of the next tokens."""
        if feed is not None:
            raise InvalidArgument(f"{self.name}: a dump cannot be run on other inputs")
        first, self._at = self._at, self._at + len(tokens)
        return {name: values[first : self._at] for name, values in self._arrays.items() if name in wanted}

    def is_single(self) -> bool:
        """Whether its numbers have 24 bits or fewer."""
        return self._single


Side = EngineSide | DumpSide


def read_about(path: Path, text: npt.NDArray[Any]) -> dict[str, Any]:
    """What a dump says about itself."""
    try:
        about = json.loads(str(text))
    except ValueError as error:
        raise BadFile(f"{path}: `about` is not JSON ({error})") from error
    if not isinstance(about, dict):
        raise BadFile(f"{path}: `about` is {about!r}, expected an object")
    return about


def dump(side: Side, tokens: Sequence[int], path: Path) -> list[str]:
    """Writes all activations of a run to an .npz file; returns their names."""
    names = side.names()
    parts: dict[str, list[Floats]] = {name: [] for name in names}
    side.start(len(tokens))
    for first in range(0, len(tokens), side.piece()):
        for name, values in side.run(tokens[first : first + side.piece()], names).items():
            parts[name].append(values)
    arrays: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    c = side.config
    about = {"name": side.name}
    if c is not None:
        about |= {"heads": c.num_heads, "kv_heads": c.num_kv_heads, "head_dim": c.head_dim}  # type: ignore[dict-item]
    with path.open("wb") as file:
        np.savez(file, tokens=np.array(tokens), about=np.array(json.dumps(about)), **arrays)
    return names
