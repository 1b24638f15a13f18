"""One builder for each lie that a GGUF file can tell."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from toy_files import (
    HIDDEN,
    WIDTH,
    Gguf,
    Lie,
    Tensor,
    array,
    boolean,
    f32,
    i32,
    numbers,
    raw_string,
    string,
    toy_gguf,
    u32,
)

from rml.errors import BadFile, ConfigError, Unsupported


def _write(change: Callable[[Gguf], None], **keys: bytes) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        toy = toy_gguf(**keys)
        change(toy)
        return toy.write(directory / "toy.gguf")

    return build


def _with_keys(**keys: bytes) -> Callable[[Path], Path]:
    return _write(lambda toy: None, **keys)


def _without_key(name: str) -> Callable[[Path], Path]:
    return _write(lambda toy: toy.keys.__delitem__(name))


def _field(**fields: Any) -> Callable[[Path], Path]:
    def change(toy: Gguf) -> None:
        for name, value in fields.items():
            setattr(toy, name, value)

    return _write(change)


def _tensor_field(name: str, **fields: Any) -> Callable[[Path], Path]:
    def change(toy: Gguf) -> None:
        toy.tensors[name] = replace(toy.tensors[name], **fields)

    return _write(change)


def _key_bytes(raw: bytes) -> Callable[[Path], Path]:
    """A 24-byte header that promises one key, and these bytes."""

    def build(directory: Path) -> Path:
        path = directory / "toy.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw)
        return path

    return build


def _cut(where: Callable[[Gguf], int]) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        toy = toy_gguf()
        path = directory / "toy.gguf"
        path.write_bytes(toy.encode()[: where(toy)])
        return path

    return build


def _bytes(data: bytes, name: str = "toy.gguf") -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        path = directory / name
        path.write_bytes(data)
        return path

    return build


def _swapped(directory: Path) -> Path:
    """A big-endian file: the magic stays, every number is turned around."""
    path = directory / "toy.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(100))
    return path


def _key(name: str) -> bytes:
    return raw_string(name.encode())


def _typed(number: int) -> Callable[[Path], Path]:
    return _tensor_field("blk.0.ffn_up.weight", type=number)


def _add(**tensors: tuple[int, ...]) -> Callable[[Path], Path]:
    def change(toy: Gguf) -> None:
        for name, shape in tensors.items():
            name = name.replace("__", ".")
            toy.tensors[name] = Tensor(shape, numbers(name, shape).tobytes())

    return _write(change)


def _add_data(name: str, data: bytes) -> Callable[[Path], Path]:
    return _write(lambda toy: toy.tensors.update({name: Tensor((len(data) // 4,), data)}))


def _drop(name: str) -> Callable[[Path], Path]:
    return _write(lambda toy: toy.tensors.__delitem__(name))


LONG = 1 << 63

GGUF_LIES = [
    Lie("empty file", _bytes(b""), BadFile, ("empty",)),
    Lie(
        "key name of 2^63 bytes",
        _key_bytes(struct.pack("<Q", LONG) + bytes(11)),
        BadFile,
        (str(LONG), "key 1 of 1", "truncated"),
    ),
    Lie("string of 2^63 bytes", _key_bytes(_key("k") + struct.pack("<IQ", 8, LONG)), BadFile, ("'k'", str(LONG))),
    Lie("2^63 numbers", _key_bytes(_key("k") + struct.pack("<IIQ", 9, 0, LONG)), BadFile, ("'k'", str(LONG))),
    Lie("2^63 strings", _key_bytes(_key("k") + struct.pack("<IIQ", 9, 8, LONG)), BadFile, ("'k'", str(8 * LONG))),
    Lie("2^63 keys", _field(key_count=LONG), BadFile, (f"{LONG} keys",)),
    Lie("2^63 tensors", _field(tensor_count=LONG), BadFile, (f"{LONG} tensors",)),
    Lie("one key too many", _field(key_count=11), BadFile, ("toy.gguf",)),
    Lie(
        "arrays 64 deep",
        _key_bytes(_key("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 64 + struct.pack("<IQB", 0, 1, 0)),
        Unsupported,
        ("'k'", "array of arrays"),
    ),
    Lie(
        "strings that lead out of the file",
        _key_bytes(_key("k") + struct.pack("<IIQ", 9, 8, 3) + raw_string(b"a") + struct.pack("<Q", 1000) + bytes(99)),
        BadFile,
        ("'k'", "3 strings", "past the end"),
    ),
    Lie(
        "strings that lead to 2^64",
        _key_bytes(_key("m") + struct.pack("<IIQ", 9, 8, 3) + struct.pack("<Q", 2**64 - 1) + bytes(99)),
        BadFile,
        ("'m'", "past the end"),
    ),
    Lie("value type 13", _key_bytes(_key("k") + struct.pack("<IQ", 13, 0)), BadFile, ("'k'", "value type 13")),
    Lie("element type 77", _key_bytes(_key("k") + struct.pack("<IIQ", 9, 77, 0)), BadFile, ("'k'", "element type 77")),
    Lie("a bool of 2", _with_keys(some__flag=boolean(2)), BadFile, ("'some.flag'", "bool", "2")),
    Lie("key that is not text", _key_bytes(raw_string(b"\xff\xfe") + u32(1)), BadFile, ("UTF-8",)),
    Lie("key twice", _field(extra_keys=_key("llama.block_count") + u32(1)), BadFile, ("'llama.block_count'", "twice")),
    Lie("alignment 0", _with_keys(general__alignment=u32(0)), BadFile, ("general.alignment", "power of two")),
    Lie("alignment 24", _with_keys(general__alignment=u32(24)), BadFile, ("general.alignment", "24")),
    Lie("alignment 2^31", _with_keys(general__alignment=u32(1 << 31)), BadFile, ("general.alignment",)),
    Lie("alignment of text", _with_keys(general__alignment=string("32")), BadFile, ("general.alignment", "'32'")),
    Lie(
        "shape that wraps to 0",
        _tensor_field("output.weight", dimensions=(1 << 32, 1 << 32)),
        BadFile,
        ("'output.weight'", "overflows", "4294967296"),
    ),
    Lie(
        "shape that wraps to 4",
        _tensor_field("output.weight", dimensions=((1 << 63) + 2, 2)),
        BadFile,
        ("'output.weight'", "overflows"),
    ),
    Lie(
        "shape larger than the file", _tensor_field("output.weight", dimensions=(1 << 20, 1 << 20)), BadFile, ("bytes",)
    ),
    Lie(
        "5 dimensions",
        _tensor_field("output.weight", dimensions=(2,) * 5),
        BadFile,
        ("'output.weight'", "5 dimensions"),
    ),
    Lie("0 dimensions", _tensor_field("output.weight", dimensions=()), BadFile, ("'output.weight'", "0 dimensions")),
    Lie("2^31 dimensions", _field(extra_tensors=_key("t") + struct.pack("<I", 1 << 31) + bytes(64)), BadFile, ("'t'",)),
    Lie(
        "dimension of 0",
        _tensor_field("output.weight", dimensions=(32, 0)),
        BadFile,
        ("'output.weight'", "no elements"),
    ),
    Lie(
        "tensor twice",
        _field(extra_tensors=_key("output.weight") + struct.pack("<IQIQ", 1, 8, 0, 0)),
        BadFile,
        ("twice",),
    ),
    Lie(
        "offset past the end",
        _tensor_field("output.weight", offset=1 << 40),
        BadFile,
        ("'output.weight'", str(1 << 40)),
    ),
    Lie(
        "offset off the alignment",
        _tensor_field("output.weight", offset=4),
        BadFile,
        ("'output.weight'", "alignment 32"),
    ),
    Lie("two tensors in one place", _tensor_field("output.weight", offset=0), BadFile, ("token_embd", "overlap")),
    Lie("cut after the magic", _cut(lambda toy: 4), BadFile, ("version", "truncated")),
    Lie("cut in the counts", _cut(lambda toy: 15), BadFile, ("number of tensors", "truncated")),
    Lie("cut in a key", _cut(lambda toy: 61), BadFile, ("key", "truncated")),
    Lie("cut in the tensor table", _cut(lambda toy: len(toy.header()) - 60), BadFile, ("tensor", "truncated")),
    Lie("cut at the data", _cut(lambda toy: len(toy.header())), BadFile, ("'token_embd.weight'", "fetch it again")),
    Lie("cut by a byte", _cut(lambda toy: len(toy.encode()) - 1), BadFile, ("'output.weight'", "fetch it again")),
    Lie("big-endian", _swapped, Unsupported, ("big-endian",)),
    Lie("version 0", _field(version=0), Unsupported, ("unsupported version 0",)),
    Lie("version 1", _field(version=1), Unsupported, ("unsupported version 1",)),
    Lie("version 4", _field(version=4), Unsupported, ("unsupported version 4",)),
    Lie("magic FUGG", _field(magic=b"FUGG"), BadFile, ("not a GGUF file", "FUGG")),
    Lie("a Git LFS pointer", _bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), BadFile, ("LFS",)),
    Lie("a zip", _bytes(b"PK\x03\x04" + bytes(60)), BadFile, ("zip",)),
    Lie("a web page", _bytes(b"<!DOCTYPE html><html></html>" + bytes(60)), BadFile, ("HTML",)),
    Lie("a safetensors file", _bytes(struct.pack("<Q", 40) + b'{"a":0}' + bytes(60)), BadFile, ("safetensors",)),
    Lie("GGJT", _bytes(b"tjgg" + bytes(60)), BadFile, ("predecessor",)),
    *(
        Lie(f"weights of type {number}", _typed(number), Unsupported, (f"{name} ({number})", "ffn_up", "not supported"))
        for number, name in [(24, "I8"), (25, "I16"), (26, "I32"), (4, "Q4_2"), (5, "Q4_3"), (250, "unknown")]
    ),
    Lie(
        "Q4_K rows of 48",
        _tensor_field("blk.0.ffn_down.weight", type=12),
        BadFile,
        ("row length 48", "multiple of 256"),
    ),
    Lie(
        "Q8_0 rows of 33", _tensor_field("output.weight", type=8, dimensions=(33, 9)), BadFile, ("33", "multiple of 32")
    ),
    Lie("no architecture", _without_key("general.architecture"), ConfigError, ("general.architecture",)),
    Lie("architecture 7", _with_keys(general__architecture=u32(7)), ConfigError, ("general.architecture", "7")),
    Lie("mistral3", _with_keys(general__architecture=string("mistral3")), Unsupported, ("'mistral3'", "gemma3")),
    Lie("a LoRA", _with_keys(general__type=string("adapter")), Unsupported, ("general.type", "adapter")),
    Lie("no block count", _without_key("llama.block_count"), ConfigError, ("llama.block_count", "missing")),
    Lie("no epsilon", _without_key("llama.attention.layer_norm_rms_epsilon"), ConfigError, ("epsilon", "missing")),
    Lie("no context length", _without_key("llama.context_length"), ConfigError, ("context_length", "missing")),
    Lie("no heads", _without_key("llama.attention.head_count"), ConfigError, ("head_count", "missing")),
    Lie("no FFN width", _without_key("llama.feed_forward_length"), ConfigError, ("feed_forward_length", "missing")),
    Lie("2^31 layers", _with_keys(llama__block_count=u32(1 << 31)), ConfigError, ("block_count",)),
    Lie("2 000 000 layers", _with_keys(llama__block_count=u32(2_000_000)), ConfigError, ("block_count", "at most")),
    Lie("0 layers", _with_keys(llama__block_count=u32(0)), ConfigError, ("block_count", "0 (integer)")),
    Lie("array of layers", _with_keys(llama__block_count=array(4, "I", [1])), ConfigError, ("block_count", "array")),
    Lie("-2 key heads", _with_keys(llama__attention__head_count_kv=i32(-2)), ConfigError, ("head_count_kv", "-2")),
    Lie("'2' key heads", _with_keys(llama__attention__head_count_kv=string("2")), ConfigError, ("'2' (string)",)),
    Lie("2.0 key heads", _with_keys(llama__attention__head_count_kv=f32(2)), ConfigError, ("2.0 (float)",)),
    Lie("true key heads", _with_keys(llama__attention__head_count_kv=boolean(1)), ConfigError, ("True (bool)",)),
    Lie("3 key heads", _with_keys(llama__attention__head_count_kv=u32(3)), ConfigError, ("num_kv_heads", "multiple")),
    Lie(
        "key heads that differ",
        _with_keys(llama__attention__head_count_kv=array(4, "I", [2, 1])),
        Unsupported,
        ("head_count_kv", "[2, 1]"),
    ),
    Lie("no key heads at all", _with_keys(llama__attention__head_count_kv=array(4, "I", [])), ConfigError, ("array",)),
    Lie(
        "float key heads", _with_keys(llama__attention__head_count_kv=array(6, "f", [2, 2])), ConfigError, ("integers",)
    ),
    Lie(
        "an integer epsilon",
        _with_keys(llama__attention__layer_norm_rms_epsilon=string("1e-5")),
        ConfigError,
        ("1e-5",),
    ),
    Lie("NaN epsilon", _with_keys(llama__attention__layer_norm_rms_epsilon=f32(np.nan)), ConfigError, ("nan",)),
    Lie("head of 7", _with_keys(llama__attention__key_length=u32(7)), ConfigError, ("head_dim", "even")),
    Lie("values of 16", _with_keys(llama__attention__value_length=u32(16)), Unsupported, ("value_length", "16")),
    Lie("half the head rotated", _with_keys(llama__rope__dimension_count=u32(4)), Unsupported, ("partial",)),
    Lie("theta 0", _with_keys(llama__rope__freq_base=f32(0)), ConfigError, ("freq_base",)),
    Lie("longrope", _with_keys(llama__rope__scaling__type=string("longrope")), Unsupported, ("'longrope'",)),
    Lie("factor -1", _with_keys(llama__rope__scaling__factor=f32(-1)), ConfigError, ("factor",)),
    Lie("a logit scale", _with_keys(llama__logit_scale=f32(2)), Unsupported, ("llama.logit_scale", "2.0")),
    Lie("clamped q, k, v", _with_keys(llama__attention__clamp_kqv=f32(8)), Unsupported, ("clamp_kqv",)),
    Lie("not causal", _with_keys(llama__attention__causal=boolean(0)), Unsupported, ("attention.causal",)),
    Lie("softcapped llama", _with_keys(llama__final_logit_softcapping=f32(30)), Unsupported, ("softcapping",)),
    Lie("sigmoid router", _with_keys(llama__expert_gating_func=u32(2)), Unsupported, ("expert_gating_func",)),
    Lie(
        "a window pattern of text",
        _with_keys(llama__attention__sliding_window=u32(8), llama__attention__sliding_window_pattern=string("6")),
        ConfigError,
        ("sliding_window_pattern", "'6'"),
    ),
    Lie(
        "a window pattern of 2 layers",
        _with_keys(
            llama__attention__sliding_window=u32(8), llama__attention__sliding_window_pattern=array(7, "B", [1, 0])
        ),
        ConfigError,
        ("sliding_window_pattern", "1 booleans"),
    ),
    Lie("experts without a choice", _with_keys(llama__expert_count=u32(4)), ConfigError, ("expert_used_count",)),
    Lie(
        "5 of 4 experts",
        _with_keys(llama__expert_count=u32(4), llama__expert_used_count=u32(5)),
        ConfigError,
        ("5", "4"),
    ),
    Lie(
        "2^31 experts",
        _with_keys(llama__expert_count=u32(2**31 - 1), llama__expert_used_count=u32(2)),
        BadFile,
        ("ffn_gate_inp.weight", "2147483647"),
    ),
    Lie("more tokens than rows", _with_keys(llama__vocab_size=u32(63)), ConfigError, ("tokens", "64", "63")),
    Lie("a larger vocabulary", _with_keys(llama__vocab_size=u32(65)), BadFile, ("'token_embd.weight'", "[65, 32]")),
    Lie("a tensor too many", _add(blk__0__attn_q_norm__bias=(8,)), BadFile, ("blk.0.attn_q_norm.bias", "1 of 13")),
    Lie("a layer too many", _add(blk__1__attn_norm__weight=(32,)), BadFile, ("blk.1.attn_norm.weight",)),
    Lie("rope_freqs too long", _add(rope_freqs__weight=(8,)), BadFile, ("rope_freqs.weight", "[8]", "[4]")),
    Lie("rope_freqs of 0", _add_data("rope_freqs.weight", bytes(16)), BadFile, ("rope_freqs.weight", "divides", "0.0")),
    Lie("an FFN bias", _add(blk__0__ffn_up__bias=(WIDTH,)), BadFile, ("ffn_up.bias",)),
    Lie("fused experts", _add(blk__0__ffn_gate_up_exps__weight=(2, 96, 32)), Unsupported, ("ffn_gate_up_exps",)),
    Lie(
        "experts of 2024", _add(blk__0__ffn_gate__3__weight=(WIDTH, HIDDEN)), Unsupported, ("ffn_gate.3", "early 2024")
    ),
    Lie("longrope factors", _add(rope_factors_long__weight=(4,)), Unsupported, ("rope_factors_long",)),
    Lie("a tensor missing", _drop("blk.0.attn_k.weight"), BadFile, ("'blk.0.attn_k.weight'", "[16, 32]", "missing")),
    Lie("no embedding", _drop("token_embd.weight"), BadFile, ("token_embd.weight",)),
    Lie(
        "a narrower matrix", _tensor_field("blk.0.attn_k.weight", dimensions=(32, 8)), BadFile, ("[8, 32]", "[16, 32]")
    ),
    Lie(
        "a transposed matrix",
        _tensor_field("blk.0.ffn_up.weight", dimensions=(48, 32)),
        BadFile,
        ("[32, 48]", "[48, 32]"),
    ),
]
