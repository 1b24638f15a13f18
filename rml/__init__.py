"""rml: decodes language models from Hugging Face directories and GGUF files, and proves the numbers right.

model = rml.load("SmolLM2.gguf", threads=2); cache = model.new_cache(2048); logits = model.forward(tokens, cache)
"""

from rml.build_info import BUILD
from rml.config import ModelConfig
from rml.decoder import DecoderLM
from rml.errors import (
    BadFile,
    CacheFull,
    ConfigError,
    EngineError,
    InvalidArgument,
    KernelsUnavailable,
    RmlError,
    Unsupported,
)
from rml.generate import Sampling
from rml.kv_cache import KvCache
from rml.model import LanguageModel, load

COMPILED = BUILD.mode != "interpreted"

__all__ = [
    "BUILD",
    "COMPILED",
    "BadFile",
    "CacheFull",
    "ConfigError",
    "DecoderLM",
    "EngineError",
    "InvalidArgument",
    "KernelsUnavailable",
    "KvCache",
    "LanguageModel",
    "ModelConfig",
    "RmlError",
    "Sampling",
    "Unsupported",
    "load",
]
