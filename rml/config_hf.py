from pathlib import Path

from rml.config import ModelConfig


def from_hf(directory: Path) -> ModelConfig:
    raise NotImplementedError
