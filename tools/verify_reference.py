"""Runs of the float64 reference for `rml verify`: compared directly, recorded, or as a dump of its activations.

    python -m tools.verify_reference kld MODEL                 # KL divergence from the reference, streamed
    python -m tools.verify_reference record MODEL --out X.kld  # a small file: rml verify kld X.kld MODEL
    python -m tools.verify_reference taps MODEL --out X.npz    # every named activation: rml verify bisect X.npz MODEL

rml never imports the reference; this program holds both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
import rml
from rml import verify_kld, verify_tables
from rml.verify_kld import EngineSource, Scoring
from rml.verify_record import Full, log_softmax
from rml.verify_text import Scored, parse_ids, scored_ids
from tools.progress import Progress

LOGIT_ENTRIES = 1 << 20  # of the reference's logits held at a time: 8 MB


class ReferenceSource:
    """The reference's distributions: all states of a window at once, their logits a few positions at a time."""

    def __init__(self, path: Path) -> None:
        self.model = reference.load(path)
        self.name = f"reference of {path} (float64)"
        self.vocab = self.model.config.vocab

    def distributions(self, window: Sequence[int], skip: int) -> Iterator[Full]:
        """See rml.verify_kld.Source."""
        states = self.model.states(window)[skip:-1]
        rows = max(8, LOGIT_ENTRIES // self.vocab)
        for first in range(0, len(states), rows):
            part = self.model.logits(states[first : first + rows])
            self.model.weights.release()
            for offset, logits in enumerate(part):
                yield log_softmax(logits, f"{self.name}, position {skip + first + offset}")


def chosen(options: argparse.Namespace, vocab: int, count: int) -> Scored:
    """The token ids of the command line."""
    if options.ids is not None:
        return Scored(parse_ids(options.ids), "ids of the command line", None, None)
    return scored_ids(options.model, vocab, options.tokens or count, options.text)


def scoring_of(options: argparse.Namespace, vocab: int) -> tuple[Scoring, Scored]:
    """The protocol of the command line."""
    scored = chosen(options, vocab, 2000)
    return Scoring(tuple(scored.ids), options.window, options.skip, scored.bos, scored.source), scored


def kld(options: argparse.Namespace) -> int:
    """The engine's distributions against the reference's."""
    source = ReferenceSource(options.model)
    model = rml.load(options.model, dot=options.dot)
    engine = EngineSource(model, f"{options.model} ({model.dot} products, cache {options.cache})", options.cache)
    scoring, scored = scoring_of(options, source.vocab)
    with Progress("comparing", scoring.positions, "positions") as progress:
        found = verify_kld.compare(source, engine, scoring, progress.advance)
    print(
        verify_tables.kld_text(verify_kld.report(source, engine, scoring, found, 5, scored.tokenizer), scored.tokenizer)
    )
    return 0


def record(options: argparse.Namespace) -> int:
    """A `.kld` file of the reference."""
    source = ReferenceSource(options.model)
    scoring, _ = scoring_of(options, source.vocab)
    with Progress("recording", scoring.positions, "positions") as progress:
        kept = verify_kld.record(source, scoring, options.out, options.tail, options.top, progress.advance)
    size = options.out.stat().st_size
    print(f"{options.out}: {scoring.positions} positions, {kept / scoring.positions:.0f} tokens of each, {size} bytes")
    return 0


def taps(options: argparse.Namespace) -> int:
    """A dump of the reference's activations."""
    model = reference.load(options.model)
    scored = chosen(options, model.config.vocab, 64)
    tokens = scored.ids if scored.bos is None else [scored.bos, *scored.ids]
    seen: dict[str, npt.NDArray[np.float64]] = {}
    model.forward(tokens, seen)
    print(f"{options.out}: {len(seen)} activations of {len(tokens)} tokens")
    arrays: dict[str, Any] = {"tokens": np.array(tokens), **seen}
    np.savez(options.out, **arrays)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(prog="python -m tools.verify_reference", description=__doc__.split(":")[0])
    commands = main.add_subparsers(required=True)
    for run in (kld, record, taps):
        one = commands.add_parser(run.__name__, help=run.__doc__)
        one.set_defaults(run=run)
        one.add_argument("model", type=Path)
        one.add_argument("--text", type=Path, help="UTF-8 text; a built-in one if not given")
        one.add_argument("--ids", help="token ids instead, like 1,15,7")
        one.add_argument("--tokens", type=int, help="how many tokens of the text (2000; for taps 64)")
        if run is not taps:
            one.add_argument("--window", type=int, default=verify_kld.WINDOW)
            one.add_argument("--skip", type=int, default=0, help="positions of each window not to score")
        if run is kld:
            one.add_argument("--dot", choices=["int8", "exact"])
            one.add_argument("--cache", default="f32")
        else:
            one.add_argument("--out", type=Path, required=True)
        if run is record:
            one.add_argument("--tail", type=float, default=verify_kld.TAIL)
            one.add_argument("--top", type=int, default=verify_kld.TOP)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    options = parser().parse_args(arguments)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
