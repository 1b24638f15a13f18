"""Text to token ids and back, for every kind of model file.

    tokenizer = open_tokenizer("model.gguf")          # or a Hugging Face directory; see rml.tokenizer_files
    ids = tokenizer.encode("Hello")                   # BOS first when the model wants one
    ids = tokenizer.encode_chat([{"role": "user", "content": "Hello"}])
    text = tokenizer.decode(ids)

Text is only ever text: control tokens in it are recognised when `special=True` says so, and in a chat prompt only those
that the template wrote.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rml import chat
from rml.chat import Message
from rml.errors import InvalidArgument, Unsupported
from rml.token_codecs import Codec, Special


@dataclass(frozen=True)
class SpecialIds:
    """Which tokens mean what, and the text form of a conversation."""

    bos: int | None = None
    eos: frozenset[int] = frozenset()
    add_bos: bool = False
    unknown: int | None = None
    padding: int | None = None
    chat_template: str | None = None


class Tokenizer:
    """The vocabulary of one model. Thread-safe; the costly parts are built when first used."""

    def __init__(self, codec: Codec, ids: SpecialIds) -> None:
        self._codec = codec
        self.bos_id = ids.bos
        self.eos_ids = ids.eos  # any of these ends a generation
        self.add_bos = ids.add_bos
        self.chat_template = ids.chat_template
        self._ids = ids
        self._controls = {control.text: control for control in codec.controls()}
        self._lengths = sorted({len(text) for text in self._controls}, reverse=True)
        self._control_ids = frozenset(control.id for control in self._controls.values())
        self._first_characters = frozenset(text[0] for text in self._controls)

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to vocab_size - 1. A model may have more rows than that, never used."""
        return self._codec.size

    def encode(self, text: str, *, special: bool = False, bos: bool | None = None) -> list[int]:
        """The ids of `text`.

        Args:
            text: any text.
            special: whether control tokens written out in the text (`<|im_end|>`) become control ids.
            bos: whether BOS goes first; None = as the model's file says. It is never put before another BOS.

        Raises:
            InvalidArgument: BOS asked of a vocabulary that has none; text with lone surrogates.
        """
        ids = self._encode(text, special, str)
        return self._with_bos(ids, self.add_bos if bos is None else bos)

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        template: str | None = None,
        trust_content: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt of a conversation, with exactly one BOS if the model wants one.

        Args:
            messages: `{"role": ..., "content": ...}` each, more keys if the template knows them.
            add_generation_prompt: whether the prompt ends where the assistant's next message begins.
            template: a Jinja template to use instead of the model's own.
            trust_content: whether turn markers inside messages become control ids. They stay text otherwise.
            variables: further names for the template, such as `tools` or `enable_thinking`.

        Raises:
            Unsupported: the model has no template and none was given.
            TemplateFailed: the template refused the messages or broke a limit.
            InvalidArgument: messages are not as described.
        """
        chosen = template if template is not None else self.chat_template
        if chosen is None:
            raise Unsupported("the model has no chat template: give one, or encode a prompt as plain text")
        chat.check_messages(messages)
        hidden_from = [] if trust_content else list(self._controls)
        shield = chat.Shield(hidden_from, [chosen, *chat.strings_of(list(messages))])
        names = {**self._template_names(add_generation_prompt), **(variables or {})}
        text = chat.render(chosen, shield.hide_messages(messages), names)
        return self._with_bos(self._encode(text, True, shield.reveal), self.add_bos)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of `ids`: what was given to `encode(..., special=True, bos=False)`.

        Bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: token ids.
            skip_special: leave control tokens out instead of writing them as text.
        """
        stream = TextStream(self, skip_special=skip_special, first=True)
        return "".join(stream.push(token) for token in ids) + stream.flush()

    def stream(self) -> TextStream:
        """For ids that come one after another and continue a text; control tokens leave none."""
        return TextStream(self, skip_special=True)

    def piece(self, token: int) -> bytes:
        """The bytes one token stands for; often not whole characters.

        Raises:
            InvalidArgument: the id is not in the vocabulary.
        """
        if not 0 <= token < self._codec.size:
            raise InvalidArgument(f"token id {token} is outside the vocabulary (0 to {self._codec.size - 1})")
        return self._codec.piece(token)

    def is_control(self, token: int) -> bool:
        """Whether the token is one that no plain text becomes: BOS, EOS, turn markers."""
        return token in self._control_ids

    def _with_bos(self, ids: list[int], wanted: bool) -> list[int]:
        if not wanted:
            return ids
        if self.bos_id is None:
            raise InvalidArgument("BOS was asked for, but the vocabulary names none")
        return ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def _encode(self, text: str, special: bool, reveal: Callable[[str], str]) -> list[int]:
        ids: list[int] = []
        for part in self._split(text) if special else [text]:
            if isinstance(part, Special):
                ids.append(part.id)
            elif part:
                ids += self._codec.encode(reveal(part), first=not ids)
        return ids

    def _split(self, text: str) -> Iterator[str | Special]:
        """Plain text and control tokens in turn; where several begin at one place, the longest is meant."""
        start = position = 0
        while position < len(text):
            control = self._control_at(text, position)
            if control is None:
                position += 1
                continue
            before = text[start:position]
            yield before.rstrip() if control.lstrip else before
            yield control
            position += len(control.text)
            while control.rstrip and position < len(text) and text[position].isspace():
                position += 1
            start = position
        yield text[start:]

    def _control_at(self, text: str, position: int) -> Special | None:
        if text[position] not in self._first_characters:
            return None
        for length in self._lengths:
            found = self._controls.get(text[position : position + length])
            if found is not None:
                return found
        return None

    def _template_names(self, add_generation_prompt: bool) -> dict[str, Any]:
        def text(token: int | None) -> str:
            return "" if token is None else self._codec.piece(token).decode(errors="replace")

        names = {"bos_token": self.bos_id, "unk_token": self._ids.unknown, "pad_token": self._ids.padding}
        first_eos = min(self.eos_ids, default=None)
        return {name: text(token) for name, token in names.items()} | {
            "eos_token": text(first_eos),
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
        }


class TextStream:
    """Token ids in, text out as soon as it is certain: the bytes of an unfinished character wait for the rest.

    `first` says that nothing precedes: the space which some vocabularies put before a text is then taken away again.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = False, first: bool = False) -> None:
        self._tokenizer = tokenizer
        self._codec = tokenizer._codec
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = first and self._codec.space_prefix != "never"

    def push(self, token: int) -> str:
        """What the token adds to the text; empty while a character is unfinished."""
        piece = self._tokenizer.piece(token)
        if self._codec.is_added(token):
            self._drop_space = self._codec.space_prefix == "always"
            if self._skip_special and self._tokenizer.is_control(token):
                piece = b""
            return self._utf8.decode(piece)
        if self._drop_space and piece:
            piece = piece.removeprefix(b" ")
            self._drop_space = False
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that never was finished."""
        return self._utf8.decode(b"", final=True)
