"""What the benchmark measures: models, engines for each, prompts and contexts. Data, and the look-ups on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tools.bench_engines import KINDS
from tools.bench_models import RECIPES, Recipe
from tools.checkpoints import CHECKPOINTS, models_dir
from tools.real_goldens import LONG, prompt_text

ENGINES = ("rml", "llama.cpp", "transformers f32", "transformers bf16")
BASE = "llama.cpp"  # ratios are to this one
GREEDY = 8  # tokens fed after a prompt that no decode row starts from


@dataclass(frozen=True)
class Case:
    """One model and what is measured on it.

    recipe: how a random model is made; None for a checkpoint, which must be there. prompts: tokens of the prefill rows.
    contexts: tokens before the decode rows. steps: tokens that one decode sample times. left_out: engine -> the reason.
    """

    name: str
    path: Path
    recipe: Recipe | None = None
    prompts: tuple[int, ...] = (16, 128, 512)
    contexts: tuple[int, ...] = (0, 512, 2048)
    steps: int = 32
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        """Tokens that a cache must hold; a multiple of 256, as llama.cpp wants it."""
        return -(-(max(*self.prompts, *self.contexts) + self.steps + GREEDY) // 256) * 256

    @property
    def is_directory(self) -> bool:
        """Whether the model is a Hugging Face directory and no GGUF file."""
        return not self.path.name.endswith(".gguf")

    def cells(self) -> Iterator[tuple[str, int]]:
        """What is measured: prefills from short to long, then decoding in rising contexts."""
        yield from (("prefill", n) for n in self.prompts)
        yield from (("decode", n) for n in self.contexts)

    def probes(self) -> dict[int, int]:
        """Prompt length -> tokens of the yardstick's continuation, in rising order."""
        counts = dict.fromkeys(self.prompts, GREEDY) | {max(n, 1): self.steps for n in self.contexts}
        return dict(sorted(counts.items()))


NO_BF16 = {"transformers bf16": "the float32 row stands for it"}
NO_TRANSFORMERS = {name: "in float32 the same model is that of the Q8_0 row" for name in ENGINES if "trans" in name}
TOO_LARGE = {name: "4.4 GB in float32; the row with two layers stands for it" for name in ENGINES if "trans" in name}


def all_cases() -> list[Case]:
    """Every model of the full run, small ones first."""
    recipes = {recipe.name: recipe for recipe in RECIPES}

    def random(name: str, **changes: object) -> Case:
        case = Case(name, recipes[name].path, recipes[name])
        return replace(case, **changes)  # type: ignore[arg-type]  # mypy does not know which field each is for

    large = {"prompts": (16, 128), "contexts": (0,), "steps": 16, "left_out": TOO_LARGE}
    real = [Case(c.name, models_dir() / c.path) for c in CHECKPOINTS if c.wheels]
    return [
        *real,
        random("random-smollm2-bf16", prompts=(16, 128, 512), contexts=(0, 512)),
        random("random-tinyllama-2-layers-q8_0", left_out=NO_BF16),
        random("random-tinyllama-2-layers-q4_0", left_out=NO_TRANSFORMERS),
        random("random-tinyllama-q8_0", **large),
        random("random-tinyllama-q4_0", **large),
    ]


def quick(case: Case) -> Case:
    """The same model in seconds: shows that everything works, and no figure that means anything."""
    return replace(case, prompts=case.prompts[:2], contexts=(*case.contexts[:1], 64), steps=4)


QUICK_ENGINES = ENGINES[:3]
QUICK_MODELS = ("smollm2-135m-instruct-q4_1", "random-tinyllama-2-layers-q8_0")


def find_cases(names: Sequence[str], is_quick: bool) -> list[Case]:
    """The models of these names; without names all, or the quick ones. Raises ValueError for an unknown name."""
    known = {case.name: case for case in all_cases()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown model {unknown[0]!r}; known are {', '.join(known)}")
    chosen = [known[name] for name in names or (QUICK_MODELS if is_quick else known)]
    return [quick(case) for case in chosen] if is_quick else chosen


def reason_to_skip(case: Case, engine: str) -> str:
    """Why this engine is not measured on this model; empty if it is."""
    if engine in case.left_out:
        return case.left_out[engine]
    kind = KINDS[engine]
    missing = [package for package in kind.packages if find_spec(package) is None]
    if missing:
        return f"{', '.join(missing)} is not installed: `nox -s bench` installs it"
    if case.is_directory and "directory" not in kind.opens:
        return f"{engine} does not read Hugging Face directories"
    return ""


def text_ids(case: Case, vocab: int) -> list[int]:
    """Tokens for the longest context; for a random model random ids.

    The goldens' text, then its words in one random order after another: a text that only came again would be known, and
    a model that is certain hides its errors.
    """
    count = max(*case.prompts, *case.contexts)
    if case.recipe is not None:
        return [int(token) for token in np.random.default_rng(7).integers(3, vocab, count)]
    from rml.tokenizer_files import open_tokenizer

    tokenizer = open_tokenizer(case.path)
    text = prompt_text(LONG)
    ids = tokenizer.encode(text)
    shuffle = np.random.default_rng(7)
    while len(ids) < count:
        words = shuffle.permutation(text.split())
        ids += tokenizer.encode(" " + " ".join(str(word) for word in words), bos=False)
    return ids[:count]
