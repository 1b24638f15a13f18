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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rml
from rml.generate import argmax
from rml.scoring import reduce_row
from rml.tokenizer_files import open_tokenizer
from tools import llama_cpp_peer, real_goldens, report, resumable
from tools.checkpoints import Checkpoint, find, models_dir
from tools.comparison import Divergence
from tools.fetch_real_models import sha256_of
from tools.progress import Progress
from tools.real_goldens import AWKWARD, CONVERSATION, GREEDY, LONG, SHORT, SHORT_TOKENS, TOP, Prompt
from tools.resumable import ReferenceRun

Logits = npt.NDArray[np.float64]


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


def continuation(
    engine: rml.DecoderLM, path: Path, ids: list[int], what: str
) -> tuple[ReferenceRun, list[int], list[float]]:
    """The reference over the prompt and its own greedy continuation; that continuation, and each step's margin.

    The engine proposes, the reference confirms or corrects; a run that was stopped goes on where it was.
    """
    keep = models_dir() / "reference"
    return resumable.continuation(partial(propose, engine), path, ids, GREEDY, what, keep)


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
    peer = peer_distance(model, ids, kept, run)
    run.forget()
    return {
        "name": prompt.name,
        "ids": ids,
        "greedy": greedy,
        "margins": margins,
        "peer": peer,
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
    engine = rml.load(model, dot="exact")
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
