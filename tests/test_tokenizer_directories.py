"""Tokenizers of Hugging Face directories: the library's own ids, BOS, templates, broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as LibraryTokenizer
from toy_tokenizers import NASTY

from rml.errors import BadFile, Unsupported
from rml.token_codecs import BYTE_OF, SPACE
from rml.tokenizer_files import from_directory, open_tokenizer


def library_tokenizer(kind: str) -> LibraryTokenizer:
    """A tokenizer.json of each kind in use: byte-level, SentencePiece with the old prefix, and with the new one."""
    if kind == "byte-level":
        letters = sorted(BYTE_OF, key=BYTE_OF.__getitem__)
        merges = [("a", "b"), ("Ġ", "ab")]
        vocab = {text: n for n, text in enumerate([*letters, "ab", "Ġab"])}
        library = LibraryTokenizer(models.BPE(vocab=vocab, merges=merges))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
    else:
        texts = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, "a", "b", "G", SPACE + "a", SPACE + "G"]
        vocab = {text: n for n, text in enumerate(texts)}
        merges = [(SPACE, "a"), (SPACE, "G")]
        model = models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
        library = LibraryTokenizer(model)
        if kind == "prepend":
            library.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
        else:
            library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        library.decoder = decoders.Sequence(steps)
    library.add_special_tokens(
        [AddedToken("<s>", special=True, normalized=False), AddedToken("</s>", special=True, normalized=False)]
    )
    library.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return library


KINDS = ["byte-level", "prepend", "metaspace"]


def write_directory(folder: Path, library: LibraryTokenizer, **config: Any) -> Path:
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*NASTY, "a<tool>a", "<s><tool>G", "</s>", "G </s>G <tool> a"])
def test_directories_give_the_librarys_own_ids(kind: str, text: str, tmp_path: Path) -> None:
    library = library_tokenizer(kind)
    tokenizer = from_directory(write_directory(tmp_path, library, bos_token="<s>", eos_token="</s>"))
    ids = tokenizer.encode(text, special=True, bos=False)
    assert ids == library.encode(text, add_special_tokens=False).ids
    plain = tokenizer.encode(text, bos=False)
    assert not any(tokenizer.is_control(token) for token in plain)
    if kind == "metaspace" and text.startswith(" "):
        return  # this kind gives "a" and " a" the same ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(plain) == text


@pytest.mark.parametrize(
    ("written", "processor", "expected"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_bos_of_a_directory(written: bool | None, processor: bool, expected: bool, tmp_path: Path) -> None:
    library = library_tokenizer("byte-level")
    bos = library.token_to_id("<s>")
    if processor:
        library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    config = {} if written is None else {"add_bos_token": written}
    tokenizer = from_directory(write_directory(tmp_path, library, bos_token={"content": "<s>"}, **config))
    assert (tokenizer.encode("a")[0] == bos) is expected


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    library = library_tokenizer("byte-level")
    library.enable_truncation(4)
    library.enable_padding(length=8)
    tokenizer = from_directory(write_directory(tmp_path, library))
    assert len(tokenizer.encode("b" * 20)) == 20
    assert len(tokenizer.encode("b")) == 1


def test_templates_of_a_directory(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    write_directory(tmp_path, library_tokenizer("byte-level"), chat_template=named)
    assert open_tokenizer(tmp_path).chat_template == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert open_tokenizer(tmp_path).chat_template == "J"


def test_an_empty_directory_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="give token ids"):
        open_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(Unsupported, match="must be converted"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json"),
        ("tokenizer_config.json", "[]", "expected an object"),
        ("tokenizer_config.json", '{"bos_token": "<nope>"}', "bos_token is '<nope>'"),
        ("tokenizer_config.json", '{"chat_template": 7}', "chat_template is neither"),
    ],
)
def test_broken_files_of_a_directory_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    write_directory(tmp_path, library_tokenizer("byte-level"))
    (tmp_path / name).write_text(content)
    with pytest.raises(BadFile, match=message):
        open_tokenizer(tmp_path)
