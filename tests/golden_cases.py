"""The committed toy models and their golden logits, as fixtures/MANIFEST.json lists them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MANIFEST = json.loads((FIXTURES / "MANIFEST.json").read_text())


@dataclass(frozen=True)
class Case:
    """One loadable file or directory and the reference's logits for it."""

    model: Path
    logits_file: Path
    family: str

    def __str__(self) -> str:
        return str(self.model.relative_to(FIXTURES))

    def golden(self) -> tuple[list[int], npt.NDArray[np.float64]]:
        """The prompt's token ids, and the logits (n, vocab) at each of its positions."""
        data = json.loads(self.logits_file.read_text())
        return data["tokens"], np.array(data["logits"])


CASES = [Case(FIXTURES / c["model"], FIXTURES / c["logits"], c["family"]) for c in MANIFEST["cases"]]


def case(name: str) -> Case:
    """The case whose model is fixtures/`name`."""
    return next(c for c in CASES if str(c) == name)
