"""Next-token distributions, whole or recorded, their KL divergence, and the file that records a run of them.

A recorded distribution keeps its likeliest tokens and some numbers about the rest (its tail), which is enough to
compare against it later with an error that is bounded and said. A `.kld` file, little-endian throughout:

    10 bytes  "rml kld 1\\n"
    u64       length of the header
    header    JSON: vocab, positions, protocol {tokens, window, skip, bos, source}, name
    records   one per scored position, in order:
        f64 tail       probability of the tokens that are not kept
        f64 entropy    sum of p log p over them
        f64 floor      log p of the least likely token of all
        f64 next       log p of the token that follows in the text
        u32 k          how many tokens are kept
        u32 ids[k]     those, the likeliest first, equals by rising id
        f32 log_p[k]   their natural logarithms of probability
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import numpy as np
import numpy.typing as npt

from rml.errors import BadFile, RmlError

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

MAGIC: Final = b"rml kld 1\n"
HEAD: Final = struct.Struct("<ddddI")
HALF_ULP: Final = 2.0**-24  # relative error of a log p that was rounded to float32
MAX_HEADER: Final = 1 << 28


class NotFinite(RmlError, ArithmeticError):
    """Logits that hold NaN or infinity give no probabilities: the model, the file or the engine is broken."""


@dataclass(frozen=True, slots=True)
class Full:
    """A whole distribution: log_p (vocab,), natural logarithms of probabilities."""

    log_p: Floats

    @property
    def best(self) -> int:
        """The likeliest token, the lowest id of equals."""
        return int(self.log_p.argmax())

    def next(self, token: int) -> float:
        """log p of a token."""
        return float(self.log_p[token])


@dataclass(frozen=True, slots=True)
class Kept:
    """A recorded distribution; fields as in the file. log_p (k,) as float64."""

    ids: Ids
    log_p: Floats
    tail: float
    entropy: float
    floor: float
    next_log_p: float

    @property
    def best(self) -> int:
        """The likeliest token."""
        return int(self.ids[0])

    def next(self, token: int) -> float:
        """log p of the token that follows in the text that was recorded."""
        return self.next_log_p


Distribution = Full | Kept


def log_softmax(logits: Floats, where: str) -> Full:
    """The distribution of logits (vocab,), in place: log p = x - max - log(sum(exp(x - max))).

    Raises NotFinite, which names `where`.
    """
    peak = logits.max()
    if not np.isfinite(peak) or not np.isfinite(logits.min()):
        count = int(np.count_nonzero(~np.isfinite(logits)))
        raise NotFinite(f"{where}: {count} of {logits.size} logits are not finite")
    logits -= peak
    logits -= np.log(np.exp(logits).sum())
    return Full(logits)


def keep(full: Full, next_token: int, tail: float, top: int) -> Kept:
    """The fewest likeliest tokens that leave at most `tail` of the probability, at most `top` of them, at least one."""
    log_p = full.log_p
    top = min(top, log_p.size)
    edge = np.partition(log_p, -top)[-top]
    ids = np.flatnonzero(log_p >= edge)
    ids = ids[np.argsort(-log_p[ids], kind="stable")][:top]
    enough = int(np.searchsorted(np.cumsum(np.exp(log_p[ids])), 1.0 - tail)) + 1
    ids = ids[:enough]
    rest = np.delete(log_p, ids)
    p = np.exp(rest)
    floor = float(log_p.min())
    return Kept(ids, log_p[ids], float(p.sum()), float((p * rest).sum()), floor, float(log_p[next_token]))


# ------------------------------------------------------------------------------------------------------ divergence


def divergence(a: Distribution, b: Distribution) -> tuple[float, float]:
    """KL(a || b) = sum of p_a (log p_a - log p_b) in nats, and how far from the truth that may be.

    The second number is 0 for two whole distributions. Otherwise the tokens that are not kept count as one, whose
    divergence is never more than theirs together (the log sum inequality), so that the truth lies above; the second
    number bounds how much, with the rounding of recorded logarithms.
    """
    if isinstance(a, Full) and isinstance(b, Full):
        return float((np.exp(a.log_p) * (a.log_p - b.log_p)).sum()), 0.0
    rest = _Rest(a, b)
    least = rest.known
    if rest.mass_a > 0.0:
        least += rest.mass_a * (np.log(rest.mass_a) - np.log(max(rest.mass_b, 1e-300)))
    most = rest.known + rest.entropy_a + rest.worst_cross
    return float(least), float(max(most - least, 0.0) + rest.rounding)


class _Rest:
    """Two distributions split into the tokens known in both and the rest.

    known: sum of p_a (log p_a - log p_b) over the tokens known in both. mass_a, mass_b: probability of the rest.
    entropy_a: sum of p_a log p_a over the rest. worst_cross: the most that -sum of p_a log p_b can be there.
    rounding: what the float32 logarithms of a record can change in `known`.
    """

    def __init__(self, a: Distribution, b: Distribution) -> None:
        if isinstance(a, Kept) and isinstance(b, Kept):
            _, in_a, in_b = np.intersect1d(a.ids, b.ids, assume_unique=True, return_indices=True)
            self._known(a.log_p[in_a], b.log_p[in_b], 2)
            lost_a, lost_b = np.delete(a.log_p, in_a), np.delete(b.log_p, in_b)
            self.mass_a = a.tail + float(np.exp(lost_a).sum())
            self.mass_b = b.tail + float(np.exp(lost_b).sum())
            self.entropy_a = a.entropy + float((np.exp(lost_a) * lost_a).sum())
            self.worst_cross = -self.mass_a * b.floor
            shift_a = HALF_ULP * float((np.exp(lost_a) * np.abs(lost_a)).sum())  # of mass_a
            shift_b = HALF_ULP * float((np.exp(lost_b) * np.abs(lost_b)).sum())
            steepness = 1.0 + max(0.0, -a.floor, -b.floor)  # bounds |d(mass log(mass / other)) / d mass|
            self.rounding += shift_a * steepness + (self.mass_a * shift_b / self.mass_b if shift_b else 0.0)
        elif isinstance(a, Kept):
            assert isinstance(b, Full)
            self._known(a.log_p, b.log_p[a.ids], 1)
            rest = np.delete(b.log_p, a.ids)
            self.mass_a, self.mass_b, self.entropy_a = a.tail, float(np.exp(rest).sum()), a.entropy
            self.worst_cross = _unlikely(rest, a.tail, float(np.exp(a.log_p[-1])))
        else:
            assert isinstance(b, Kept)
            self._known(a.log_p[b.ids], b.log_p, 1)
            rest = np.delete(a.log_p, b.ids)
            p = np.exp(rest)
            self.mass_a, self.mass_b, self.entropy_a = float(p.sum()), b.tail, float((p * rest).sum())
            self.worst_cross = -self.mass_a * b.floor

    def _known(self, a: Floats, b: Floats, recorded: int) -> None:
        p = np.exp(a)
        self.known = float((p * (a - b)).sum())
        sizes = np.maximum(np.abs(a), np.abs(b))
        self.rounding = recorded * HALF_ULP * float((p * sizes * (np.abs(a - b) + 1.0)).sum())


def _unlikely(log_p: Floats, mass: float, most: float) -> float:
    """The largest -sum of p log_p for any p on these tokens with sum `mass`, none above `most`: least likely first."""
    if mass <= 0.0 or not log_p.size:
        return 0.0
    count = min(int(mass / most) + 1, log_p.size)
    lowest = np.sort(np.partition(log_p, count - 1)[:count])
    shares = np.full(count, most)
    shares[-1] = max(mass - most * (count - 1), 0.0)
    return float(-(shares * lowest).sum())


# ------------------------------------------------------------------------------------------------------------ file


class RecordWriter:
    """Writes a `.kld` file as its positions come; nothing is left behind when the run fails."""

    def __init__(self, path: Path, header: Mapping[str, Any], tail: float, top: int) -> None:
        """header: as in the module's docstring. tail, top: see `keep`."""
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._header, self._tail, self._top = dict(header), tail, top
        self._file: BinaryIO | None = None
        self.kept = 0  # tokens, over all positions

    def __enter__(self) -> Self:
        self._file = self._part.open("wb")
        text = json.dumps(self._header).encode()
        self._file.write(MAGIC + struct.pack("<Q", len(text)) + text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()
        if error is None:
            os.replace(self._part, self._path)
        else:
            self._part.unlink(missing_ok=True)

    def add(self, full: Full, next_token: int) -> None:
        """The next scored position."""
        assert self._file is not None
        kept = keep(full, next_token, self._tail, self._top)
        self._file.write(HEAD.pack(kept.tail, kept.entropy, kept.floor, kept.next_log_p, len(kept.ids)))
        self._file.write(kept.ids.astype("<u4").tobytes() + kept.log_p.astype("<f4").tobytes())
        self.kept += len(kept.ids)


class Record:
    """A `.kld` file: `header`, and `positions()` in order. Raises BadFile for what is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BadFile(f"{path}: not a recorded run (it does not begin with {MAGIC!r})")
            raw = file.read(8)
            length = struct.unpack("<Q", raw)[0] if len(raw) == 8 else 0
            if not 0 < length <= min(MAX_HEADER, path.stat().st_size):
                raise BadFile(f"{path}: a header of {length} bytes in a file of {path.stat().st_size}")
            try:
                self.header: dict[str, Any] = json.loads(file.read(length))
                self.vocab, self.count = int(self.header["vocab"]), int(self.header["positions"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadFile(f"{path}: the header is not what this program writes ({error!r})") from error
            self._start = file.tell()

    def positions(self) -> Iterator[Kept]:
        """Every recorded distribution."""
        with self.path.open("rb") as file:
            file.seek(self._start)
            for index in range(self.count):
                yield self._read(file, index)

    def _read(self, file: BinaryIO, index: int) -> Kept:
        head = file.read(HEAD.size)
        if len(head) == HEAD.size:
            tail, entropy, floor, next_log_p, k = HEAD.unpack(head)
            if not 0 < k <= self.vocab or not np.isfinite([tail, entropy, floor, next_log_p]).all():
                raise BadFile(f"{self.path}: position {index} keeps {k} of {self.vocab} tokens, a tail of {tail}")
            data = file.read(8 * k)
            if len(data) == 8 * k:
                ids = np.frombuffer(data, "<u4", k).astype(np.int64)
                if ids.max() >= self.vocab or len(np.unique(ids)) != k:
                    raise BadFile(f"{self.path}: position {index} holds a token outside the vocabulary, or one twice")
                log_p = np.frombuffer(data, "<f4", k, 4 * k).astype(np.float64)
                return Kept(ids, log_p, tail, entropy, floor, next_log_p)
        raise BadFile(f"{self.path}: ends in position {index} of {self.count}: the recording is cut off, make it again")
