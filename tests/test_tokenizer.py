"""Tokenizers: both GGUF kinds against plain definitions, tokenizer.json against the library, BOS, special tokens."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_tokenizers import NASTY, byte_level, byte_level_metadata, sentencepiece_metadata

from rml import token_codecs
from rml.errors import BadFile, InvalidArgument, Unsupported
from rml.pre_tokenizers import PRE_TOKENIZERS
from rml.token_codecs import CONTROL, NORMAL, SPACE
from rml.tokenizer import TextStream
from rml.tokenizer_files import from_gguf

# ---- byte-level BPE in GGUF ------------------------------------------------------------------------------------------


def test_merges_apply_in_their_order_within_pieces() -> None:
    tokenizer = byte_level()
    pieces = [tokenizer.piece(token) for token in tokenizer.encode("abab aba 1234é")]
    assert pieces == [b"ab", b"ab", b" ab", b"a", b" ", b"123", b"4", "é".encode()]


@pytest.mark.parametrize("text", NASTY)
def test_byte_level_text_comes_back(text: str) -> None:
    tokenizer = byte_level()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True)) == text


@given(st.text())
def test_any_byte_level_text_comes_back(text: str) -> None:
    tokenizer = byte_level()
    assert tokenizer.decode(tokenizer.encode(text, special=True, bos=False)) == text


def test_control_tokens_are_parsed_only_when_asked_for() -> None:
    tokenizer = byte_level()
    assert tokenizer.encode("</s>", special=True) == [129]
    assert not any(tokenizer.is_control(token) for token in tokenizer.encode("<s></s>"))


def test_a_control_token_is_out_of_reach_even_if_it_is_one_piece_of_text() -> None:
    """With ignore_merges the whole piece is looked up: a control token spelled like a word must not be found."""
    metadata = byte_level_metadata(pre="llama-bpe", bos_token_id=130)
    metadata["tokenizer.ggml.tokens"][130] = "END"
    metadata["tokenizer.ggml.token_type"][130] = CONTROL
    tokenizer = from_gguf(metadata, "toy.gguf")
    assert [tokenizer.piece(token) for token in tokenizer.encode("END", bos=False)] == [b"E", b"N", b"D"]
    assert tokenizer.encode("END", special=True) == [130]


def test_user_defined_tokens_are_found_in_plain_text() -> None:
    tokenizer = byte_level()
    assert [tokenizer.piece(token) for token in tokenizer.encode("a<tool>b")] == [b"a", b"<tool>", b"b"]


def test_the_longest_control_token_is_meant() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"] += ["<s><s>"]
    metadata["tokenizer.ggml.token_type"] += [CONTROL]
    tokenizer = from_gguf(metadata, "toy.gguf")
    longest = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert tokenizer.encode("<s><s><s>", special=True) == [longest, 128]


CUTS = "I'LL pay  12345,6 é! \n\n x"
EXPECTED_CUTS = {
    "gpt-2": ["I", "'", "LL", " pay", " ", " 12345", ",", "6", " é", "!", " \n\n", " x"],
    "smollm": ["I", "'", "LL", " pay", "  ", "1", "2", "3", "4", "5", ",", "6", " é", "!", " \n\n", " x"],
    "llama-bpe": ["I", "'LL", " pay", " ", " ", "123", "45", ",", "6", " é", "!", " \n\n", " x"],
    "qwen2": ["I", "'LL", " pay", " ", " ", "1", "2", "3", "4", "5", ",", "6", " é", "!", " \n\n", " x"],
    "tekken": ["I", "'LL", " pay", " ", " ", "1", "2", "3", "4", "5", ",", "6", " é", "!", " \n\n", " x"],
    "default": ["I", "'", "LL", " pay", " ", " ", "123", "45", ",", "6", " é", "!", " \n\n", " x"],
    "deepseek-coder": [
        "I",
        "'",
        "LL",
        " pay",
        "  ",
        "1",
        "2",
        "3",
        "4",
        "5",
        ",",
        "6",
        " é",
        "!",
        " ",
        "\n",
        "\n",
        " x",
    ],
}


@pytest.mark.parametrize("pre", EXPECTED_CUTS)
def test_each_pre_tokenizer_cuts_as_its_model_does(pre: str) -> None:
    codec = byte_level(pre=pre)._codec
    assert isinstance(codec, token_codecs.BytePairCodec)
    cuts = codec._tokenizer.pre_tokenizer.pre_tokenize_str(CUTS)
    raw = CUTS.encode()
    positions = [span for _, span in cuts]
    assert [CUTS[start:end] for start, end in positions] == EXPECTED_CUTS[pre]
    assert b"".join(token_codecs.byte_level_piece(piece) for piece, _ in cuts) == raw


def test_qwen_and_olmo_normalise_and_the_others_do_not() -> None:
    assert sorted(name for name, pre in PRE_TOKENIZERS.items() if pre.nfc) == ["deepseek-r1-qwen", "olmo", "qwen2"]
    for pre, text in (("qwen2", "é"), ("gpt-2", "e\u0301")):
        tokenizer = byte_level(pre=pre)
        assert tokenizer.decode(tokenizer.encode("e\u0301")) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "surprise"}, "pre is 'surprise'; known are"),
        ({"model": "t5"}, "model is 't5'"),
        ({"model": None}, "holds no tokenizer"),
        ({"bos_token_id": 10**6}, "bos_token_id is 1000000, expected an id below"),
        ({"eos_token_id": -1}, "eos_token_id is -1"),
        ({"eos_token_id": True}, "eos_token_id is True"),
        ({"token_type": [1, 1]}, "has 2 entries for"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": ["a", 7]}, "not a string"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["a b", "nope"]}, "merge 1 is 'nope'"),
        ({"merges": ["a zz"]}, "merge 0 is 'a zz'"),
        ({"add_bos_token": 1}, "add_bos_token is 1, expected a bool"),
    ],
)
def test_broken_metadata_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((BadFile, Unsupported), match=message):
        byte_level(**changes).encode("ab")


# ---- SentencePiece in GGUF -------------------------------------------------------------------------------------------


def random_scores(seed: int) -> dict[str, float]:
    """The letters a, b, the space, and 40 strings of them in no order, each with a score of its own."""
    rng = random.Random(seed)
    words = {SPACE, "a", "b", "c"} | {"".join(rng.choices(["a", "b", SPACE], k=rng.randint(2, 5))) for _ in range(40)}
    ordered = rng.sample(sorted(words), len(words))
    return {word: -float(rank) for rank, word in enumerate(ordered)}


def sentencepiece_ids(text: str, scores: dict[str, float], first_id: int, prefix: bool) -> list[int]:
    """The definition: join the neighbours whose joint text has the best score, leftmost first, until none is known."""
    ids = {word: first_id + n for n, word in enumerate(scores)}
    symbols = list((SPACE if prefix and text else "") + text.replace(" ", SPACE))
    while True:
        joins = [
            (-scores[symbols[i] + symbols[i + 1]], i)
            for i in range(len(symbols) - 1)
            if symbols[i] + symbols[i + 1] in scores
        ]
        if not joins:
            break
        _, at = min(joins)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    found: list[int] = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in ids else [3 + byte for byte in symbol.encode()]
    return found


@settings(deadline=None)
@given(st.text(st.sampled_from("aab c xé"), max_size=40), st.integers(0, 3), st.booleans())
def test_sentencepiece_ids_follow_from_the_scores(text: str, seed: int, prefix: bool) -> None:
    scores = random_scores(seed)
    tokenizer = from_gguf(sentencepiece_metadata(scores, add_space_prefix=prefix), "toy.gguf")
    assert tokenizer.encode(text, bos=False) == sentencepiece_ids(text, scores, 260, prefix)
    assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


@pytest.mark.parametrize("prefix", [True, False])
def test_small_and_whole_models_agree(prefix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = random_scores(7)
    rng = random.Random(1)
    texts = ["".join(rng.choices(["a", "b", " ", "\n\n", "c", "é"], k=30)) for _ in range(20)]
    small = from_gguf(sentencepiece_metadata(scores, add_space_prefix=prefix), "toy.gguf")
    by_small = [small.encode(text) for text in texts]
    monkeypatch.setattr(token_codecs, "SMALL_TEXTS", -1)
    whole = from_gguf(sentencepiece_metadata(scores, add_space_prefix=prefix), "toy.gguf")
    assert by_small == [whole.encode(text) for text in texts]


@pytest.mark.parametrize("prefix", [True, False, None])
@pytest.mark.parametrize("text", NASTY)
def test_sentencepiece_text_comes_back(text: str, prefix: bool | None) -> None:
    changes = {} if prefix is None else {"add_space_prefix": prefix}
    tokenizer = from_gguf(sentencepiece_metadata(random_scores(0), **changes), "toy.gguf")
    for special in (False, True):
        assert tokenizer.decode(tokenizer.encode(text, special=special, bos=False)) == text


def test_a_space_is_prefixed_after_every_control_token() -> None:
    tokenizer = from_gguf(sentencepiece_metadata({SPACE: -1.0, "G": -2.0, SPACE + "G": 0.0}), "toy.gguf")
    space, letter, both = 260, 261, 262
    assert tokenizer.encode("<s>G", special=True) == [1, both]
    assert tokenizer.encode("<s> G", special=True) == [1, space, both]
    assert tokenizer.encode("G</s>G", special=True) == [1, both, 2, both]
    assert tokenizer.encode("GG", bos=False) == [both, letter]


def test_text_that_spells_a_control_or_byte_token_stays_text() -> None:
    """Every part of `</s>` is in the vocabulary with the best scores: merging would reach it if it were let."""
    scores = dict.fromkeys(("<", "/", "s", ">", "</", "s>", "0x41", "<0", "x", "41>", "0", "4", "1"), 0.0)
    tokenizer = from_gguf(sentencepiece_metadata(scores, add_space_prefix=False), "toy.gguf")
    ids = tokenizer.encode("</s><0x41>", bos=False)
    assert all(token >= 260 for token in ids)


def test_bytes_of_unknown_characters_come_back() -> None:
    tokenizer = from_gguf(sentencepiece_metadata({"a": 0.0}, add_space_prefix=False), "toy.gguf")
    assert tokenizer.encode("é", bos=False) == [3 + byte for byte in "é".encode()]


def test_a_malformed_byte_token_is_named() -> None:
    metadata = sentencepiece_metadata({"a": 0.0})
    metadata["tokenizer.ggml.tokens"][5] = "<0xZZ>"
    with pytest.raises(BadFile, match="byte token 5 is '<0xZZ>'"):
        from_gguf(metadata, "toy.gguf")


def test_scores_are_needed() -> None:
    with pytest.raises(BadFile, match="scores is missing"):
        from_gguf(sentencepiece_metadata({"a": 0.0}, scores=None), "toy.gguf")


# ---- BOS and ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pre", "written", "expected"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_follows_the_file_and_then_the_kind(pre: str, written: bool | None, expected: bool) -> None:
    tokenizer = byte_level(pre=pre, **({} if written is None else {"add_bos_token": written}))
    assert (tokenizer.encode("a")[0] == 128) is expected
    assert tokenizer.encode("a", bos=True)[0] == 128
    assert tokenizer.encode("a", bos=False)[0] != 128


def test_bos_is_never_doubled() -> None:
    tokenizer = byte_level(add_bos_token=True)
    assert tokenizer.encode("<s>a", special=True).count(128) == 1
    assert tokenizer.encode("<s>a").count(128) == 1, "written in plain text it stays text"


def test_bos_asked_of_a_vocabulary_without_one() -> None:
    tokenizer = byte_level(bos_token_id=None, add_bos_token=True)
    assert tokenizer.encode("a") == tokenizer.encode("a", bos=False)
    with pytest.raises(InvalidArgument, match="names none"):
        tokenizer.encode("a", bos=True)


def test_every_end_is_known() -> None:
    metadata = byte_level_metadata(eot_token_id=4, eom_token_id=5)
    metadata["tokenizer.ggml.tokens"] += ["<|im_end|>", "<|eot_id|>"]
    metadata["tokenizer.ggml.token_type"] += [CONTROL, NORMAL]  # the second looks like one, but is plain text
    tokenizer = from_gguf(metadata, "toy.gguf")
    assert tokenizer.eos_ids == {4, 5, 129, len(metadata["tokenizer.ggml.tokens"]) - 2}


# ---- streams ---------------------------------------------------------------------------------------------------------


@given(st.text())
def test_streamed_pieces_join_to_the_text_and_hold_only_whole_characters(text: str) -> None:
    tokenizer = byte_level()
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) + stream.flush() == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_an_unfinished_character_is_shown_at_the_end_only() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("😀")
    stream = TextStream(tokenizer)
    assert [stream.push(token) for token in ids[:-1]] == [""] * (len(ids) - 1)
    assert stream.flush() == "\ufffd"


def test_a_stream_keeps_the_space_that_continues_a_text_and_drops_a_prefixed_one() -> None:
    tokenizer = from_gguf(sentencepiece_metadata({SPACE: -1.0, "G": -2.0, SPACE + "G": 0.0}), "toy.gguf")
    assert TextStream(tokenizer).push(262) == " G"
    assert TextStream(tokenizer, first=True).push(262) == "G"


def test_control_tokens_can_be_left_out() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("<s>a</s>", special=True)
    assert tokenizer.decode(ids) == "<s>a</s>"
    assert tokenizer.decode(ids, skip_special=True) == "a"


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(InvalidArgument, match="outside the vocabulary"):
        byte_level().decode([token])


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        byte_level().encode("a\ud800")
