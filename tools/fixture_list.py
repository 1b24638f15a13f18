"""All toys of fixtures/, in the order they are made."""

from __future__ import annotations

from tools.fixture_toys import Toy

TOYS: list[Toy] = [
    Toy(
        "llama",
        "llama",
        "the base recipe, llama3 scaling (in GGUF: rope_freqs.weight), interleaved rows in GGUF",
        quantised={"model-q8_0": {"": "Q8_0"}},
    ),
]
