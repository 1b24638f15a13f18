"""How byte-level vocabularies want text cut before their merges apply: one row per name in `tokenizer.ggml.pre`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PreTokenizer:
    """How a byte-level vocabulary wants text cut before merging: `patterns` are applied one after the other."""

    patterns: tuple[str, ...]
    nfc: bool = False  # text is normalised first, as these models' tokenizer.json says (llama.cpp does not)
    ignore_merges: bool = False  # a whole piece found in the vocabulary is one token, whatever the merges say
    add_bos: bool = False  # when the file does not say


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _WORDS % r"\p{N}{1,3}"
_QWEN2 = _WORDS % r"\p{N}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")

_llama3 = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_llama3_like = PreTokenizer((_LLAMA3,))
_qwen2 = PreTokenizer((_QWEN2,), nfc=True)
_digits = PreTokenizer((r"\p{N}", _GPT2))
_gpt2 = PreTokenizer((_GPT2,))

# tokenizer.ggml.pre -> pre-tokenizer. The patterns are those of the models' own tokenizer.json; which name means which
# pattern is llama.cpp's choice (src/llama-vocab.cpp).
PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3"), _llama3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _llama3_like),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _qwen2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b"), _digits),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "jais"), _gpt2),
    "olmo": PreTokenizer((_GPT2,), nfc=True),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
}
