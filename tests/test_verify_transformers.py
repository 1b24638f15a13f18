"""The script that dumps activations of transformers models: the engine agrees at every step, in the same names."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from golden_cases import case

import rml
from rml.verify_bisect import bisect
from rml.verify_sides import DumpSide, EngineSide
from rml.verify_text import random_ids

IDS = random_ids(64, 41)
MISSING = [name for name in ("torch", "transformers", "llama_cpp") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"needs the crosscheck session's packages: {', '.join(MISSING)}")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama-bias", "mixtral", "qwen2", "qwen3_moe", "gemma3-softcap", "olmoe"])
def test_transformers_is_the_same_at_every_step(name: str, tmp_path: Path) -> None:
    from tools import dump_transformers_taps

    model, out = case(f"{name}/hf").model, tmp_path / "x.npz"
    assert dump_transformers_taps.main([str(model), "--ids", ",".join(map(str, IDS)), "--out", str(out)]) == 0
    engine = EngineSide(rml.load(model, threads=1, dot="exact"), name)
    found = bisect(DumpSide(out), engine)
    assert not found.missing
    assert max(step.total for step in found.steps) < 1e-12
