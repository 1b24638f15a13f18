"""Dumps the named activations of a transformers model, for `rml verify bisect`.

    python -m tools.dump_transformers_taps MODEL_DIR --ids 1,15,7 --out X.npz
    rml verify bisect X.npz MODEL.gguf

Names are those of rml/verify_taps.py. Everything is computed in float64 unless --float32 is given, which dumps what
people usually run. Needs torch, transformers and llama-cpp-python (the crosscheck session's packages).

A module of a layer gives its output or, as a hook before it, its input:

    embed        input of layer 0                attn_out    input of self_attn.o_proj
    attn_norm    output of input_layernorm       o_proj      its output
    q, k, v      outputs of the projections      residual    input of the norm before the FFN
    q_rope ...   what apply_rotary_pos_emb gave  ffn_norm    its output
    router_*     from mlp.gate                   ffn_out     output of mlp
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: it must not look for a hub

import numpy as np
import torch
import transformers

from tools.crosscheck_peers import doubled, state

Array = np.ndarray[Any, np.dtype[Any]]


def array(value: Any) -> Array:
    """A tensor (1, n, ...) or (n, ...), or a tuple that begins with one, as (n, width)."""
    tensor = value[0] if isinstance(value, tuple) else value
    return np.asarray(tensor.detach().reshape(-1, tensor.shape[-1]).numpy()).copy()


class Taps:
    """Hooks on a model; `seen` fills as it runs."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.seen: dict[str, Array] = {}
        self._layer = 0
        for index, layer in enumerate(model.model.layers):
            self._watch_layer(f"blk.{index}.", layer)
        self._before(model.model.layers[0], "embed")
        self._after(model.model.norm, "final_norm")

    def _after(self, module: Any, name: str) -> None:
        module.register_forward_hook(lambda _module, _inputs, output: self.seen.__setitem__(name, array(output)))

    def _before(self, module: Any, name: str) -> None:
        def hook(_module: Any, inputs: Any, named: Any) -> None:
            self.seen[name] = array(inputs[0] if inputs else named["hidden_states"])

        module.register_forward_pre_hook(hook, with_kwargs=True)

    def _watch_layer(self, prefix: str, layer: Any) -> None:
        attention = layer.self_attn
        norm = getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)
        self._after(layer.input_layernorm, prefix + "attn_norm")
        for name in "qkv":
            self._after(getattr(attention, f"{name}_proj"), prefix + name)
        self._before(attention.o_proj, prefix + "attn_out")
        self._after(attention.o_proj, prefix + "o_proj")
        self._before(norm, prefix + "residual")
        self._after(norm, prefix + "ffn_norm")
        self._after(layer.mlp, prefix + "ffn_out")
        self._after(layer, prefix + "output")
        if hasattr(layer.mlp, "gate") and hasattr(layer.mlp, "experts"):
            layer.mlp.gate.register_forward_hook(lambda _module, _inputs, output: self._router(prefix, output))

    def _router(self, prefix: str, output: Any) -> None:
        """output: logits (n, experts), weights, ids (n, k)."""
        self.seen[prefix + "router_probs"] = array(torch.softmax(output[0], dim=-1))
        self.seen[prefix + "router_choice"] = array(output[2])

    @contextlib.contextmanager
    def rotations(self) -> Iterator[None]:
        """Watches apply_rotary_pos_emb of the model's module, which the layers call in order."""
        module = sys.modules[type(self.model.model.layers[0].self_attn).__module__]
        original: Callable[..., Any] = module.apply_rotary_pos_emb

        def watched(*arguments: Any, **named: Any) -> Any:
            rotated = original(*arguments, **named)
            for name, value in zip(("q_rope", "k_rope"), rotated, strict=True):  # (1, heads, n, D)
                self.seen[f"blk.{self._layer}.{name}"] = array(value[0].transpose(0, 1).flatten(1))
            self._layer += 1
            return rotated

        module.apply_rotary_pos_emb = watched  # type: ignore[attr-defined]
        try:
            yield
        finally:
            module.apply_rotary_pos_emb = original  # type: ignore[attr-defined]


def build(directory: Path, dtype: torch.dtype) -> Any:
    """The model of a directory, eager attention and experts, which follow the modeling code line by line."""
    config = transformers.AutoConfig.from_pretrained(directory)
    name = json.loads((directory / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    options = {"attn_implementation": "eager", "experts_implementation": "eager", "dtype": dtype}
    return (
        getattr(transformers, name).from_pretrained(None, config=config, state_dict=state(directory), **options).eval()
    )


def dump(directory: Path, tokens: Sequence[int], single: bool = False) -> dict[str, Array]:
    """Every activation by name, and `tokens`."""
    with contextlib.nullcontext() if single else doubled(), torch.no_grad():
        taps = Taps(build(directory, torch.float32 if single else torch.float64))
        with taps.rotations():
            logits = taps.model(torch.tensor([list(tokens)]), use_cache=False).logits
    return {"tokens": np.array(list(tokens)), **taps.seen, "logits": array(logits)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.dump_transformers_taps", description="Dumps activations.")
    parser.add_argument("model", type=Path, help="a Hugging Face directory")
    parser.add_argument("--ids", required=True, help="token ids, like 1,15,7")
    parser.add_argument("--out", type=Path, required=True, help="the .npz file to write")
    parser.add_argument("--float32", action="store_true", help="compute in float32, as people usually do")
    options = parser.parse_args(arguments)
    arrays: dict[str, Any] = dump(options.model, [int(i) for i in options.ids.split(",")], options.float32)
    config = transformers.AutoConfig.from_pretrained(options.model)
    heads = config.num_attention_heads
    about = {"name": f"transformers {transformers.__version__}, {'float32' if options.float32 else 'float64'}"}
    size = {"heads": heads, "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads}
    np.savez(options.out, about=np.array(json.dumps(about | size)), **arrays)
    print(f"{options.out}: {len(arrays) - 1} activations of {len(arrays['tokens'])} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
