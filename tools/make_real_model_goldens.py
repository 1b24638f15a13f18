"""Writes fixtures/real/NAME.json: the float64 reference's word on a real checkpoint, made once, checked ever after.

    python -m tools.make_real_model_goldens                        every checkpoint that is present
    python -m tools.make_real_model_goldens NAME ...               only these
    python -m tools.make_real_model_goldens --check                write nothing, fail if anything would change

Token ids come from llama.cpp, so that they do not rest on the tokenizer under test; llama-cpp-python must be installed
(`pip install llama-cpp-python`). The chat prompt is rendered by Jinja here. Logits come from `reference`, one pass over
a prompt and its proposed continuation: the engine proposes the eight tokens, the reference confirms or corrects them.
llama.cpp's own distance from the reference on the same tokens is kept beside, to compare the engine's int8 path with.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
import rml
from rml.generate import argmax
from rml.scoring import reduce_row
from rml.tokenizer_files import open_tokenizer
from tools import llama_cpp_peer, real_goldens, report
from tools.checkpoints import Checkpoint, find, models_dir
from tools.comparison import Divergence
from tools.fetch_real_models import sha256_of
from tools.progress import Progress
from tools.real_goldens import AWKWARD, CONVERSATION, GREEDY, LONG, SHORT, SHORT_TOKENS, TOP, Prompt

Logits = npt.NDArray[np.float64]
HEAD_ROWS = 16  # positions whose logits are computed at once: bounds memory at a large vocabulary


def tokenizer_cases(model: Path) -> dict[str, Any]:
    """The ids of awkward texts, as llama.cpp has them, without BOS; control tokens parsed and not."""
    texts = list(AWKWARD)
    cases = [
        {"text": text, "special": special, "ids": ids}
        for special in (False, True)
        for text, ids in zip(texts, llama_cpp_peer.token_ids(model, texts, special), strict=True)
    ]
    return {"source": llama_cpp_peer.describe(), "cases": cases}


def chat_case(model: Path, template: str | None) -> dict[str, Any] | None:
    """A conversation's prompt. Its last message holds turn markers, which must come out as plain text."""
    if template is None:
        return None
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    marks = [f"\ue000{number}\ue001" for number in range(len(CONVERSATION))]
    marked = [{**turn, "content": mark} for turn, mark in zip(CONVERSATION, marks, strict=True)]
    text = environment.from_string(template).render(messages=marked, add_generation_prompt=True)
    return {
        "source": f"Jinja and {llama_cpp_peer.describe()}",
        "messages": CONVERSATION,
        "ids": chat_ids(model, text, marks),
    }


def chat_ids(model: Path, text: str, marks: Sequence[str]) -> list[int]:
    """The ids of a rendered conversation in which marks stand for the messages: control tokens are the template's only.

    Text is cut only at control tokens, so that words are cut as if the messages had stood there: between a control
    token and the next, template text and message text make one plain text.
    """
    for mark in marks:
        if text.count(mark) != 1:
            raise ValueError(f"the template writes a message {text.count(mark)} times; this case needs another prompt")
    for mark, turn in zip(marks, CONVERSATION, strict=True):
        text = text.replace(mark, turn["content"].replace("<", "\ue002"))
    parts = re.split(r"(<\|[a-z_]+\|>)", text)  # plain, control, plain, ...
    plain = llama_cpp_peer.token_ids(model, [part.replace("\ue002", "<") for part in parts[::2]], False)
    control = llama_cpp_peer.token_ids(model, parts[1::2], True)
    return [token for pair in zip(plain, [*control, []], strict=True) for ids in pair for token in ids]


class ReferenceRun:
    """The reference's states of a token sequence; logits are computed from them a few rows at a time."""

    def __init__(self, path: Path, tokens: Sequence[int], what: str) -> None:
        self.model = reference.load(path)
        layers = self.model.config.layers
        with Progress(f"reference, {what}", layers, "layers") as progress:

            def tap(name: str, _: Logits) -> None:
                if name.endswith(".output"):
                    progress.advance()

            self.states = self.model.states(tokens, tap)

    def rows(self, positions: Sequence[int]) -> Iterator[Logits]:
        """The logits (vocab,) of these positions, in turn."""
        for first in range(0, len(positions), HEAD_ROWS):
            yield from self.model.logits(self.states[list(positions[first : first + HEAD_ROWS])])


def continuation(
    engine: rml.DecoderLM, path: Path, ids: list[int], what: str
) -> tuple[ReferenceRun, list[int], list[float]]:
    """The reference over the prompt and its own greedy continuation; that continuation, and each step's margin.

    The engine proposes, the reference disposes: the proposal stands up to the first token that is not the reference's,
    which replaces it; then again. Usually one pass is enough.
    """
    added: list[int] = []
    while True:
        proposal = propose(engine, [*ids, *added], GREEDY - len(added))
        tokens = [*ids, *added, *proposal]
        run = ReferenceRun(path, tokens, what)
        steps = [reduce_row(0, row, 2) for row in run.rows(range(len(ids) - 1, len(tokens) - 1))]
        wanted = [step.ids[0] for step in steps]
        agreed = next((i for i, (a, b) in enumerate(zip(wanted, [*added, *proposal], strict=True)) if a != b), GREEDY)
        if agreed == GREEDY:
            return run, wanted, [step.values[0] - step.values[1] for step in steps]
        added = wanted[: agreed + 1]
        print(f"{what}: the reference takes another token at step {agreed}", file=sys.stderr)


def propose(engine: rml.DecoderLM, ids: Sequence[int], count: int) -> list[int]:
    """The engine's greedy continuation."""
    cache = engine.new_cache(len(ids) + count, "f64")
    added: list[int] = []
    logits = engine.forward(ids, cache)
    for _ in range(count):
        added.append(argmax(logits))
        logits = engine.forward(added[-1:], cache)
    return added


def prompt_golden(engine: rml.DecoderLM, model: Path, prompt: Prompt, bos: bool) -> dict[str, Any]:
    """One prompt: ids, the reference's logits and continuation, and llama.cpp's distance from them."""
    text = real_goldens.prompt_text(prompt)
    ids = llama_cpp_peer.token_ids(model, [text], False)[0]
    if bos:
        ids = [*sorted(engine.config.bos_ids)[:1], *ids]
    if len(ids) < SHORT_TOKENS:
        raise ValueError(f"the prompt has {len(ids)} tokens, expected at least {SHORT_TOKENS}")
    run, greedy, margins = continuation(engine, model, ids, f"{prompt.name} prompt, {len(ids)} tokens")
    kept = real_goldens.kept_positions(prompt, len(ids), engine.config.sliding_window)
    positions = [reduce_row(at, row, TOP) for at, row in zip(kept, run.rows(kept), strict=True)]
    return {
        "name": prompt.name,
        "ids": ids,
        "greedy": greedy,
        "margins": margins,
        "peer": peer_distance(model, ids, kept, run),
        "positions": [position.as_dict() for position in positions],
    }


def peer_distance(model: Path, ids: Sequence[int], kept: Sequence[int], run: ReferenceRun) -> dict[str, Any]:
    """How far llama.cpp is from the reference on the same file, tokens and positions."""
    found = Divergence()
    wanted = run.rows(kept)
    chosen = set(kept)
    with Progress("llama.cpp", len(ids), "positions") as progress:
        for position, row in enumerate(llama_cpp_peer.logits(model, ids)):
            progress.advance()
            if position in chosen:
                found.add(position, next(wanted), row)
    return {"source": llama_cpp_peer.describe(), "mean_kl": found.mean_kl, "top1": found.top1, "worst": found.worst}


def make(checkpoint: Checkpoint, model: Path) -> dict[str, Any]:
    """The whole golden of a checkpoint."""
    tokenizer = open_tokenizer(model)
    engine = rml.load(model, dot="exact", deterministic=True)
    prompts = [SHORT, LONG] if engine.config.sliding_window else [SHORT]
    stamp = report.stamp(engine.threads)
    return {
        "checkpoint": checkpoint.name,
        "file": {"size": model.stat().st_size, "sha256": sha256_of(model)},
        "made": {"by": "tools/make_real_model_goldens.py", "commit": stamp["commit"], "numpy": np.__version__},
        "tokenizer": tokenizer_cases(model),
        "chat": chat_case(model, tokenizer.chat_template if checkpoint.chat else None),
        "prompts": [prompt_golden(engine, model, prompt, tokenizer.add_bos) for prompt in prompts],
    }


def unchanged(old: dict[str, Any] | None, new: dict[str, Any]) -> bool:
    """Whether two goldens say the same: ids equal, logits within 1e-9 (BLAS adds in an order of its own)."""
    if old is None:
        return False
    for a, b in zip(old["prompts"], new["prompts"], strict=False):
        for one, other in zip(a["positions"], b["positions"], strict=False):
            if one["ids"] != other["ids"] or not np.allclose(one["logits"], other["logits"], rtol=0, atol=1e-9):
                return False
    same = ("checkpoint", "file", "tokenizer", "chat")
    keys = ("name", "ids", "greedy")
    return all(old[key] == new[key] for key in same) and [[p[k] for k in keys] for p in old["prompts"]] == [
        [p[k] for k in keys] for p in new["prompts"]
    ]


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 0 when everything asked for was made, or is as it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoints; none = all that are present")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if anything would change")
    options = parser.parse_args(argv)
    if not llama_cpp_peer.is_installed():
        print("error: token ids come from llama.cpp: pip install llama-cpp-python", file=sys.stderr)
        return 1
    failed = 0
    for checkpoint in find(options.names):
        model = models_dir() / checkpoint.path
        if not model.is_file():
            print(f"{checkpoint.name}: skipped, {model} is missing ({checkpoint.origin})")
            continue
        golden = make(checkpoint, model)
        if options.check:
            same = unchanged(real_goldens.read_golden(checkpoint), golden)
            failed += not same
            print(f"{checkpoint.name}: {'unchanged' if same else 'differs'}")
        else:
            real_goldens.write_golden(checkpoint, golden)
            print(f"{checkpoint.name}: written to {real_goldens.golden_path(checkpoint).relative_to(report.ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
