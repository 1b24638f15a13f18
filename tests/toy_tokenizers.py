"""Toy vocabularies of both GGUF kinds, as the metadata of a file."""

from __future__ import annotations

from typing import Any

from rml.token_codecs import BYTE, BYTE_OF, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from rml.tokenizer import Tokenizer
from rml.tokenizer_files import from_gguf

NASTY = [
    "",
    " ",
    "a",
    " a ",
    "  two  spaces  ",
    "\n\n\t\r\n",
    "don't I'LL 12345",
    "émile e\u0301 ﬁ",
    "日本語 한국어 العربية",
    "😀👨‍👩‍👧🏳️‍🌈",
    "\x00\x7f\ufeff\u00a0",
    "<s>G",
    "<s> G",
    "x</s>y",
    "x</s> y </s>",
    "<0x41>",
    "ab\n\nba",
]

MERGES = ["a b", "Ġ ab", "ab a", "Ġ Ġ", "Ċ Ċ", "Ã ©", "1 2", "12 3"]


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """A vocabulary of all bytes, a few merges, two control tokens in the middle and one user-defined token."""
    letters = sorted(BYTE_OF, key=BYTE_OF.__getitem__)
    joined = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*letters[:128], "<s>", "</s>", *letters[128:], *joined, "<tool>"]
    kinds = [NORMAL] * len(tokens)
    kinds[128] = kinds[129] = CONTROL
    kinds[-1] = USER_DEFINED
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 128,
        "tokenizer.ggml.eos_token_id": 129,
    }
    return metadata | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


def byte_level(**changes: Any) -> Tokenizer:
    return from_gguf(byte_level_metadata(**changes), "toy.gguf")


def sentencepiece_metadata(tokens: dict[str, float], **changes: Any) -> dict[str, Any]:
    """<unk>, <s>, </s>, all bytes, a user-defined newline pair, then `tokens` with their scores."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\n\n", *tokens]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, USER_DEFINED, *[NORMAL] * len(tokens)]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * 260 + list(tokens.values()),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return metadata | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
