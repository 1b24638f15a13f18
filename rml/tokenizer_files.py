"""Where tokenizers come from: the metadata of GGUF files, and the files of Hugging Face directories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as LibraryTokenizer

from rml import chat
from rml.errors import BadFile, Unsupported
from rml.gguf_file import open_gguf
from rml.pre_tokenizers import PRE_TOKENIZERS
from rml.token_codecs import CONTROL, NORMAL, BytePairCodec, Codec, LibraryCodec, SentencePieceCodec, Vocabulary
from rml.tokenizer import SpecialIds, Tokenizer

# Control tokens that end a turn or a text in the models at hand: GGUF files name only some of them by key.
END_TEXTS: Final = frozenset(
    ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "</s>")
)

MAX_JSON: Final = 1 << 28  # bytes of a tokenizer.json; Gemma's has 33 MB


def open_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a model: a GGUF file, any file of a split set, or a Hugging Face directory.

    Raises:
        BadFile, Unsupported: it is broken, missing, or of a kind that is not known here; the message says which.
    """
    place = Path(path)
    return from_directory(place) if place.is_dir() else from_gguf(open_gguf(place).metadata, str(place))


def from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer in the metadata of a GGUF file (`tokenizer.ggml.*`); `where` names the file in messages.

    Raises:
        BadFile: keys that contradict each other.
        Unsupported: no tokenizer, or one of another kind than `gpt2` and `llama`.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None or model == "none":
        raise Unsupported(f"{where}: holds no tokenizer (no tokenizer.ggml.model); give token ids instead of text")
    if model not in ("gpt2", "llama"):
        raise Unsupported(f"{where}: tokenizer.ggml.model is {model!r}; 'gpt2' and 'llama' are known")
    vocabulary = Vocabulary(where, _strings(metadata, "tokenizer.ggml.tokens", where), [])
    ids = _gguf_ids(metadata, where, len(vocabulary.texts))
    vocabulary.kinds = _kinds(metadata, where, vocabulary.texts, ids)
    ends = {token for token in vocabulary.of_kind(CONTROL) if vocabulary.texts[token] in END_TEXTS} - {ids.get("bos")}
    ends |= {ids[key] for key in ("eos", "eot", "eom") if key in ids}
    codec: Codec
    if model == "gpt2":
        pre = str(metadata.get("tokenizer.ggml.pre", "default"))
        codec = BytePairCodec(vocabulary, _strings(metadata, "tokenizer.ggml.merges", where), pre)
        add_bos = PRE_TOKENIZERS[pre].add_bos
    else:
        scores = _numbers(metadata, "tokenizer.ggml.scores", where, len(vocabulary.texts))
        codec = SentencePieceCodec(vocabulary, scores, _flag(metadata, "add_space_prefix", True, where))
        add_bos = True
    special = SpecialIds(
        bos=ids.get("bos"),
        eos=frozenset(ends),
        add_bos=_flag(metadata, "add_bos_token", add_bos, where) and "bos" in ids,
        unknown=ids.get("unknown"),
        padding=ids.get("padding"),
        chat_template=chat.pick_template(metadata.get("tokenizer.chat_template"), where),
    )
    return Tokenizer(codec, special)


def _gguf_ids(metadata: Mapping[str, Any], where: str, size: int) -> dict[str, int]:
    ids: dict[str, int] = {}
    for name in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < size:
            raise BadFile(f"{where}: {key} is {value!r}, expected an id below {size}")
        ids[name] = value
    return ids


def _kinds(metadata: Mapping[str, Any], where: str, texts: list[str], ids: Mapping[str, int]) -> list[int]:
    """Each token's type; a file without types has normal tokens only, and the control tokens its keys name."""
    key = "tokenizer.ggml.token_type"
    if key in metadata:
        return [int(kind) for kind in _numbers(metadata, key, where, len(texts))]
    kinds = [NORMAL] * len(texts)
    for name in ("bos", "eos", "eot", "eom"):
        if name in ids:
            kinds[ids[name]] = CONTROL
    return kinds


def _array(metadata: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = metadata.get(key)
    if value is None:
        raise BadFile(f"{where}: {key} is missing")
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadFile(f"{where}: {key} is {value!r}, expected an array")
    return list(value)


def _strings(metadata: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = _array(metadata, key, where)
    if not all(isinstance(value, str) for value in values):
        raise BadFile(f"{where}: {key} holds something that is not a string")
    return values


def _numbers(metadata: Mapping[str, Any], key: str, where: str, count: int) -> list[float]:
    values = _array(metadata, key, where)
    if len(values) != count:
        raise BadFile(f"{where}: {key} has {len(values)} entries for {count} tokens")
    if not all(isinstance(value, int | float) for value in values):
        raise BadFile(f"{where}: {key} holds something that is not a number")
    return values


def _flag(metadata: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise BadFile(f"{where}: tokenizer.ggml.{name} is {value!r}, expected a bool")
    return value


def from_directory(directory: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face directory: tokenizer.json, tokenizer_config.json, chat_template.jinja.

    Raises:
        Unsupported: there is no tokenizer.json, or a kind of vocabulary that is not known here.
        BadFile: a file that does not parse, or a special token that is not in the vocabulary.
    """
    folder = Path(directory)
    library = _load_library(folder)
    codec = LibraryCodec(str(folder / "tokenizer.json"), library)
    config = _read_json(folder / "tokenizer_config.json")
    names = {key: _token_id(config, f"{key}_token", library, folder) for key in ("bos", "eos", "unk", "pad")}
    bos = names["bos"]
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        # what the file's own post-processor puts around nothing
        around = list(library.encode("", add_special_tokens=True).ids)
        bos = around[0] if bos is None and around else bos
        add_bos = around[:1] == [bos]
    template = folder / "chat_template.jinja"
    written = template.read_text(encoding="utf-8") if template.is_file() else config.get("chat_template")
    ends = {control.id for control in codec.controls() if control.text in END_TEXTS} - {bos}
    special = SpecialIds(
        bos=bos,
        eos=frozenset(ends if names["eos"] is None else ends | {names["eos"]}),
        add_bos=add_bos and bos is not None,
        unknown=names["unk"],
        padding=names["pad"],
        chat_template=chat.pick_template(written, str(folder)),
    )
    return Tokenizer(codec, special)


def _load_library(folder: Path) -> Any:
    path = folder / "tokenizer.json"
    if not path.is_file():
        hint = (
            "; the tokenizer.model there must be converted: transformers' AutoTokenizer.from_pretrained(...) writes one"
            if (folder / "tokenizer.model").is_file()
            else "; give token ids instead of text"
        )
        raise Unsupported(f"{folder}: there is no tokenizer.json{hint}")
    if path.stat().st_size > MAX_JSON:
        raise Unsupported(f"{path}: {path.stat().st_size} bytes, at most {MAX_JSON} are accepted")
    try:
        return LibraryTokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise BadFile(f"{path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadFile(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise BadFile(f"{path}: expected an object, found {type(value).__name__}")
    return value


def _token_id(config: Mapping[str, Any], key: str, library: Any, folder: Path) -> int | None:
    """The id of a special token, which the config gives as a text or as {"content": text}."""
    value = config.get(key)
    text = value.get("content") if isinstance(value, dict) else value
    if text is None:
        return None
    token = library.token_to_id(text) if isinstance(text, str) else None
    if token is None:
        raise BadFile(f"{folder / 'tokenizer_config.json'}: {key} is {value!r}, which is not in the vocabulary")
    return int(token)
