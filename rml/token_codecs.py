"""Text to token ids and token ids to bytes, for the three places a vocabulary can come from.

A codec handles plain text only. It cannot produce a control token (BOS, turn markers ...) from text, whatever the text
says: control tokens are not in the vocabulary that it searches. `rml.tokenizer` puts them in where they are wanted.

- `BytePairCodec`: GGUF files of kind `gpt2` (Llama 3, Qwen, SmolLM, OLMoE ...): byte-level BPE with listed merges.
- `SentencePieceCodec`: GGUF files of kind `llama` (Gemma, TinyLlama, Mistral ...): BPE whose merges follow from scores.
- `LibraryCodec`: a Hugging Face directory's tokenizer.json, as the `tokenizers` library reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from rml.errors import BadFile, InvalidArgument, Unsupported
from rml.pre_tokenizers import PRE_TOKENIZERS

# Token types of GGUF (llama.h, llama_token_type).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SPACE: Final = "\u2581"  # how SentencePiece writes a space

SpacePrefix = Literal["never", "first", "always"]  # before which pieces of text a space is put: always = also after
# each control or user-defined token


@dataclass(frozen=True)
class Special:
    """A control token: its id, its text, and whether it swallows the spaces before and after it."""

    id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False


class Codec(Protocol):
    """What `rml.tokenizer.Tokenizer` needs from a vocabulary."""

    @property
    def size(self) -> int:
        """Ids run from 0 to size - 1."""

    @property
    def space_prefix(self) -> SpacePrefix:
        """Where `encode` puts a space that decoding takes away again."""

    def controls(self) -> list[Special]:
        """The control tokens."""

    def encode(self, text: str, first: bool) -> list[int]:
        """The ids of plain text; `first` says that nothing precedes it."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; for control tokens their text."""

    def is_added(self, token: int) -> bool:
        """Whether the token is a control or user-defined one, matched in the text as it stands."""


# ---- byte-level BPE ------------------------------------------------------------------------------------------------


def _byte_alphabet() -> dict[str, int]:
    """The printable character that GPT-2 writes for each byte, and back: a byte that prints stands for itself."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF: Final = _byte_alphabet()


def byte_level_piece(text: str) -> bytes:
    """The bytes of a byte-level token; a character outside the alphabet stands for its own UTF-8."""
    if all(character in BYTE_OF for character in text):
        return bytes(BYTE_OF[character] for character in text)
    return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in text)


def library_encode(tokenizer: Any, text: str) -> list[int]:
    """The library's ids of plain text; lone surrogates are the caller's mistake."""
    try:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    except (UnicodeEncodeError, TypeError) as error:  # what the library makes of them
        raise InvalidArgument(f"text is not valid Unicode, it holds half a surrogate pair: {text[:40]!r}") from error


@dataclass
class Vocabulary:
    """Token texts and types, by id, as a GGUF file lists them."""

    where: str  # the file, for messages
    texts: list[str]
    kinds: list[int]

    def searchable(self) -> dict[str, int]:
        """What text can become: every token that is neither a control token nor the unknown one. The first id wins."""
        found: dict[str, int] = {}
        for token, (text, kind) in enumerate(zip(self.texts, self.kinds, strict=True)):
            if kind not in (CONTROL, UNKNOWN):
                found.setdefault(text, token)
        return found

    def controls(self) -> list[Special]:
        """The control tokens that have a text."""
        return [Special(token, self.texts[token]) for token in self.of_kind(CONTROL, UNKNOWN) if self.texts[token]]

    def of_kind(self, *kinds: int) -> list[int]:
        """The ids of these types."""
        return [token for token, kind in enumerate(self.kinds) if kind in kinds]

    def added_tokens(self) -> list[Any]:
        """The user-defined tokens, which are found in text before anything else is done to it."""
        texts = (self.texts[token] for token in self.of_kind(USER_DEFINED))
        return [AddedToken(text, special=False, normalized=False) for text in texts if text]

    def is_added(self, token: int) -> bool:
        """Whether a token is matched in the text as it stands."""
        return self.kinds[token] in (CONTROL, UNKNOWN, USER_DEFINED)


class BytePairCodec:
    """Byte-level BPE with the merges of the file."""

    space_prefix: SpacePrefix = "never"

    def __init__(self, vocabulary: Vocabulary, merges: list[str], pre: str) -> None:
        if pre not in PRE_TOKENIZERS:
            raise Unsupported(
                f"{vocabulary.where}: tokenizer.ggml.pre is {pre!r}; known are {', '.join(sorted(PRE_TOKENIZERS))}"
            )
        self._vocabulary = vocabulary
        self._merges = merges
        self._pre = PRE_TOKENIZERS[pre]

    @property
    def size(self) -> int:
        return len(self._vocabulary.texts)

    def controls(self) -> list[Special]:
        return self._vocabulary.controls()

    def is_added(self, token: int) -> bool:
        return self._vocabulary.is_added(token)

    def piece(self, token: int) -> bytes:
        text = self._vocabulary.texts[token]
        return text.encode() if self.is_added(token) else byte_level_piece(text)

    def encode(self, text: str, first: bool) -> list[int]:
        return library_encode(self._tokenizer, text)

    @cached_property
    def _tokenizer(self) -> Any:
        vocab = self._vocabulary.searchable()
        try:
            model = models.BPE(vocab=vocab, merges=self._pairs(vocab), ignore_merges=self._pre.ignore_merges)
        except Exception as error:  # the library raises plain Exception
            raise BadFile(f"{self._vocabulary.where}: tokenizer.ggml.merges: {error}") from error
        tokenizer = LibraryTokenizer(model)
        if self._pre.nfc:
            tokenizer.normalizer = normalizers.NFC()
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._pre.patterns]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, byte_level])
        tokenizer.add_tokens(self._vocabulary.added_tokens())
        return tokenizer

    def _pairs(self, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
        """The merges whose parts and result text may become; others could only be reached through control tokens."""
        known = set(self._vocabulary.texts)
        pairs: list[tuple[str, str]] = []
        for number, merge in enumerate(self._merges):
            cut = merge.find(" ", 1)  # a token may begin with a space, none is empty
            left, right = merge[:cut], merge[cut + 1 :]
            if left in vocab and right in vocab and left + right in vocab:
                pairs.append((left, right))
            elif cut < 0 or not {left, right, left + right} <= known:
                raise BadFile(
                    f"{self._vocabulary.where}: tokenizer.ggml.merges: merge {number} is {merge!r}, "
                    "expected two tokens of the vocabulary that join to a third"
                )
        return pairs


# ---- SentencePiece -------------------------------------------------------------------------------------------------

# This many characters are encoded with models of just the tokens that occur in them; then the whole vocabulary's model
# is built, once. For Gemma's 262,144 tokens that takes a second, which a prompt of a few lines need not wait for.
SMALL_TEXTS: Final = 4_000


class SentencePieceCodec:
    """BPE in which the pair with the highest score of its result is merged first (SentencePiece, `bpe` model type)."""

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], space_prefix: bool) -> None:
        self._vocabulary = vocabulary
        self._scores = scores
        self._encoded = 0  # characters so far
        self.space_prefix: SpacePrefix = "always" if space_prefix else "never"
        self._bytes = {token: self._byte(token) for token in vocabulary.of_kind(BYTE)}

    def _byte(self, token: int) -> bytes:
        match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", self._vocabulary.texts[token])
        if not match:
            raise BadFile(
                f"{self._vocabulary.where}: byte token {token} is {self._vocabulary.texts[token]!r}, not <0xHH>"
            )
        return bytes([int(match[1], 16)])

    @property
    def size(self) -> int:
        return len(self._vocabulary.texts)

    def controls(self) -> list[Special]:
        return self._vocabulary.controls()

    def is_added(self, token: int) -> bool:
        return self._vocabulary.is_added(token)

    def piece(self, token: int) -> bytes:
        if token in self._bytes:
            return self._bytes[token]
        text = self._vocabulary.texts[token]
        return text.encode() if self.is_added(token) else text.replace(SPACE, " ").encode()

    def encode(self, text: str, first: bool) -> list[int]:
        self._encoded += len(text)
        if self._encoded <= SMALL_TEXTS:
            return library_encode(self._build(self._occurring(text)), text)
        return library_encode(self._whole, text)

    @cached_property
    def _whole(self) -> Any:
        return self._build(self._mergeable)

    @cached_property
    def _mergeable(self) -> dict[str, int]:
        """What merging can reach. Byte tokens and user-defined ones are not found by merging characters."""
        never = {self._vocabulary.texts[token] for token in self._vocabulary.of_kind(BYTE, USER_DEFINED)}
        return {text: token for text, token in self._vocabulary.searchable().items() if text not in never}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._mergeable), default=0)

    def _occurring(self, text: str) -> dict[str, int]:
        """The tokens that are part of `text`: a model of these encodes it as the whole vocabulary's does."""
        written = text.replace(" ", SPACE)
        vocab = self._mergeable
        found: dict[str, int] = {}
        # a prefixed space may come before any character: at the start, or after a user-defined token
        befores = ("", SPACE) if self.space_prefix == "always" else ("",)
        for start in range(len(written)):
            for length in range(1, self._longest + 1):
                for before in befores:
                    span = before + written[start : start + length]
                    if span in vocab:
                        found[span] = vocab[span]
        if SPACE in vocab:
            found[SPACE] = vocab[SPACE]
        return found

    def _build(self, vocab: Mapping[str, int]) -> Any:
        tokens = self._vocabulary.texts
        fixed = {tokens[token]: token for token in self._vocabulary.of_kind(UNKNOWN, BYTE, USER_DEFINED)}
        unknown = self._vocabulary.of_kind(UNKNOWN)
        model = models.BPE(
            vocab={**vocab, **fixed},
            merges=self._merges(vocab),
            byte_fallback=bool(self._bytes),
            unk_token=tokens[unknown[0]] if unknown else None,
            fuse_unk=True,
        )
        tokenizer = LibraryTokenizer(model)
        prefix = [normalizers.Prepend(SPACE)] if self.space_prefix == "always" else []
        tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
        tokenizer.add_tokens(self._vocabulary.added_tokens())
        return tokenizer

    def _merges(self, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
        """Every way to make a token from two, best score of the result first; among equals the lower id."""
        scores = self._scores
        found: list[tuple[float, int, str, str]] = []
        for text, token in vocab.items():
            for cut in range(1, len(text)):
                left = text[:cut]
                if left in vocab and (right := text[cut:]) in vocab:
                    found.append((-scores[token], token, left, right))
        found.sort(key=lambda merge: merge[:2])
        return [(left, right) for _, _, left, right in found]


# ---- tokenizer.json ------------------------------------------------------------------------------------------------


@dataclass
class LibraryCodec:
    """A tokenizer.json. The library finds user-defined tokens itself; control tokens it is told to leave alone."""

    where: str
    tokenizer: Any
    _added: dict[int, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self._added = self.tokenizer.get_added_tokens_decoder()
        self.space_prefix = self._find_space_prefix()
        self.tokenizer.encode_special_tokens = True  # text that looks like a control token is text
        if not self._byte_level and not any(SPACE in text for text in self.tokenizer.get_vocab()):
            raise Unsupported(f"{self.where}: neither a byte-level nor a SentencePiece vocabulary")

    @cached_property
    def _byte_level(self) -> bool:
        return "ByteLevel(" in repr(self.tokenizer.decoder)

    @cached_property
    def size(self) -> int:
        return max(self.tokenizer.get_vocab().values(), default=-1) + 1

    def controls(self) -> list[Special]:
        specials = ((token, added) for token, added in self._added.items() if added.special)
        return [Special(token, added.content, added.lstrip, added.rstrip) for token, added in specials]

    def is_added(self, token: int) -> bool:
        return token in self._added

    def piece(self, token: int) -> bytes:
        if token in self._added:
            return str(self._added[token].content).encode()
        text = self.tokenizer.id_to_token(token)
        if text is None:
            return b""  # a hole in the numbering
        if self._byte_level:
            return byte_level_piece(text)
        match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", text)
        return bytes([int(match[1], 16)]) if match else text.replace(SPACE, " ").encode()

    def encode(self, text: str, first: bool) -> list[int]:
        if self.space_prefix == "first" and not first:
            return library_encode(self._without_prefix, text)
        return library_encode(self.tokenizer, text)

    def _find_space_prefix(self) -> SpacePrefix:
        """Seen by trying: does a space appear before text, and does it after a control token?"""
        if not self._starts_with_space("a", 0):
            return "never"
        control = next((added.content for added in self._added.values() if added.special), None)
        return "always" if control is None or self._starts_with_space(control + "a", 1) else "first"

    def _starts_with_space(self, text: str, position: int) -> bool:
        tokens = self.tokenizer.encode(text, add_special_tokens=False).tokens
        return len(tokens) > position and tokens[position].startswith(
            (SPACE, "\u0120")
        )  # \u0120 is the byte alphabet's space

    @cached_property
    def _without_prefix(self) -> Any:
        """The same tokenizer for text that follows a control token, where a `first` prefix is not wanted."""
        other = LibraryTokenizer.from_str(self.tokenizer.to_str())
        split = self.tokenizer.pre_tokenizer.split
        other.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never", split=split)
        other.encode_special_tokens = True
        return other
