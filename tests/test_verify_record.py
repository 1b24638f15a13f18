"""Divergence of whole and recorded distributions: the bound holds whatever the tail hides; the file and lies in it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rml.errors import BadFile
from rml.verify_record import HALF_ULP, MAGIC, Floats, Full, Kept, NotFinite, Record, RecordWriter, divergence, keep
from rml.verify_record import log_softmax as in_place


def log_softmax(logits: Floats) -> Full:
    return in_place(logits.copy(), "here")


def direct(a: Full, b: Full) -> float:
    """The definition, term by term in extended precision."""
    p, q = np.exp(a.log_p.astype(np.longdouble)), np.exp(b.log_p.astype(np.longdouble))
    return float((p * (np.log(p) - np.log(q))).sum())


def as_recorded(kept: Kept) -> Kept:
    """What comes back from a file: logarithms rounded to float32."""
    rounded = kept.log_p.astype(np.float32).astype(np.float64)
    return Kept(kept.ids, rounded, kept.tail, kept.entropy, kept.floor, kept.next_log_p)


def test_log_softmax_and_divergence_are_the_definition() -> None:
    a, b = log_softmax(np.array([700.0, 702.0, -40.0])), log_softmax(np.array([700.0, 699.0, 3.0]))
    assert abs(np.exp(a.log_p).sum() - 1) < 1e-14
    assert (a.best, b.best) == (1, 0)
    value, bound = divergence(a, b)
    assert bound == 0
    assert abs(value - direct(a, b)) < 1e-12
    assert divergence(a, a) == (0.0, 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_named(bad: float) -> None:
    with pytest.raises(NotFinite, match="layer cake: 1 of 3 logits"):
        in_place(np.array([1.0, bad, 2.0]), "layer cake")


@given(seed=st.integers(0, 2**32 - 1), vocab=st.integers(2, 60), spread=st.floats(0.1, 30), tail=st.floats(0, 0.5))
@example(seed=0, vocab=2, spread=0.1, tail=0.0)
@example(seed=2, vocab=2, spread=1.0, tail=0.0)
def test_the_truth_is_within_the_bound(seed: int, vocab: int, spread: float, tail: float) -> None:
    """Also for tails that are as different as can be: B expects least what A hides."""
    random = np.random.default_rng(seed)
    a = log_softmax(random.normal(0, spread, vocab))
    near = log_softmax(a.log_p + random.normal(0, 0.3, vocab))
    opposite = log_softmax(np.where(a.log_p < np.median(a.log_p), -a.log_p - 20, a.log_p))
    top = int(random.integers(1, vocab + 1))
    for b in (near, opposite, log_softmax(random.normal(0, spread, vocab))):
        truth = direct(a, b)
        kept_a, kept_b = (
            as_recorded(keep(a, 0, tail, top)),
            as_recorded(keep(b, 0, tail, int(random.integers(1, vocab + 1)))),
        )
        for left, right in ((kept_a, b), (a, kept_b), (kept_a, kept_b)):
            value, bound = divergence(left, right)
            slack = 1e-9 + 1e-9 * abs(truth)
            assert abs(truth - value) <= bound + slack, (value, bound, truth)


def test_what_is_kept_is_the_fewest_that_reach_the_tail() -> None:
    full = Full(np.log(np.array([0.1, 0.4, 0.05, 0.4, 0.05])))
    kept = keep(full, 2, 0.15, 5)
    assert kept.ids.tolist() == [1, 3, 0], "equals by rising id"
    assert abs(kept.tail - 0.1) < 1e-15
    assert abs(kept.entropy - 0.1 * np.log(0.05)) < 1e-15
    assert (kept.floor, kept.next_log_p) == (full.log_p[2], full.log_p[2])
    assert keep(full, 2, 0.15, 2).ids.tolist() == [1, 3]
    assert len(keep(full, 2, 1.0, 5).ids) == 1, "at least one"


def test_everything_kept_leaves_only_rounding() -> None:
    random = np.random.default_rng(5)
    a, b = (log_softmax(random.normal(0, 4, 300)) for _ in range(2))
    value, bound = divergence(as_recorded(keep(a, 0, 0.0, 300)), b)
    assert abs(value - direct(a, b)) <= bound < 300 * HALF_ULP


# ---- the file --------------------------------------------------------------------------------------------------------

HEADER = {"vocab": 8, "positions": 2, "name": "toy"}


def write(path: Path, header: dict[str, object] | None = None) -> list[Full]:
    random = np.random.default_rng(1)
    rows = [log_softmax(random.normal(0, 2, 8)) for _ in range(2)]
    with RecordWriter(path, header or HEADER, 0.05, 6) as writer:
        for row in rows:
            writer.add(row, 3)
    return rows


def test_a_record_comes_back(tmp_path: Path) -> None:
    rows = write(tmp_path / "x.kld")
    record = Record(tmp_path / "x.kld")
    assert (record.vocab, record.count, record.header["name"]) == (8, 2, "toy")
    for full, got in zip(rows, record.positions(), strict=True):
        want = as_recorded(keep(full, 3, 0.05, 6))
        assert got.ids.tolist() == want.ids.tolist()
        assert got.log_p.tolist() == want.log_p.tolist()
        assert (got.tail, got.entropy, got.floor) == (want.tail, want.entropy, want.floor)
        assert got.next(0) == full.next(3)
        assert got.best == full.best
    assert [path.name for path in tmp_path.iterdir()] == ["x.kld"]


def test_a_failed_recording_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RecordWriter(tmp_path / "x.kld", HEADER, 0.05, 6):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_every_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.kld"
    write(path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(BadFile, match=r"x\.kld: "):
            list(Record(path).positions())


def replaced(path: Path, where: int, what: bytes) -> None:
    """Overwrites bytes of the first record, `where` counted from its start."""
    write(path)
    data = bytearray(path.read_bytes())
    start = len(MAGIC) + 8 + struct.unpack_from("<Q", data, len(MAGIC))[0] + where
    data[start : start + len(what)] = what
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("where", "what", "words"),
    [
        (32, struct.pack("<I", 0), "keeps 0 of 8"),
        (32, struct.pack("<I", 9), "keeps 9 of 8"),
        (32, struct.pack("<I", 2**32 - 1), "keeps 4294967295 of 8"),
        (0, struct.pack("<d", float("nan")), "a tail of nan"),
        (16, struct.pack("<d", float("-inf")), "position 0"),
        (36, struct.pack("<I", 8), "outside the vocabulary"),
        (36, struct.pack("<II", 1, 1), "or one twice"),
    ],
)
def test_lies_in_a_record(tmp_path: Path, where: int, what: bytes, words: str) -> None:
    replaced(tmp_path / "x.kld", where, what)
    with pytest.raises(BadFile, match=words):
        list(Record(tmp_path / "x.kld").positions())


@pytest.mark.parametrize("length", [0, 2**63, 10**9])
def test_lies_in_the_headers_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.kld"
    path.write_bytes(MAGIC + struct.pack("<Q", length) + b"{}")
    with pytest.raises(BadFile, match="header"):
        Record(path)


@pytest.mark.parametrize(
    "header", [[], {}, {"vocab": 8}, {"vocab": "many", "positions": 1}, {"vocab": None, "positions": 1}]
)
def test_headers_that_say_nothing(tmp_path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "x.kld").write_bytes(MAGIC + struct.pack("<Q", len(text)) + text)
    with pytest.raises(BadFile, match="header"):
        Record(tmp_path / "x.kld")
