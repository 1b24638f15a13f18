"""Named activations in one layout, from engine runs and from dumps.

Names, in the order of the forward pass, each (n, width) for n positions:

    embed                                the embedding, scaled
    blk.N.attn_norm                      input of attention
    blk.N.q, .k, .v                      projections with their biases, before QK-norm and rotation
    blk.N.q_rope, .k_rope                after both
    blk.N.attn_out                       heads side by side, before the output projection
    blk.N.o_proj                         after it, before a post norm
    blk.N.residual                       the stream after attention
    blk.N.ffn_norm                       input of the FFN
    blk.N.router_probs, .router_choice   (n, experts) softmax; (n, top k) ids, the likeliest first
    blk.N.ffn_out                        output of the FFN, before a post norm
    blk.N.output                         the stream after the layer
    final_norm, logits

Rows of q and k are in Hugging Face's order, in which pair i of a head is (i, i + D/2). Files whose rows lie the other
way, pairs side by side, compute in that order, and are put into this one when their activations are looked at.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from rml.config import ModelConfig
from rml.decoder import CALL_TOKENS, LOGIT_ENTRIES, DecoderLM

Floats = npt.NDArray[np.float64]

MOST: Final = 32  # tokens whose activations are held at a time
PAIRED: Final = re.compile(r"blk\.\d+\.[qk](_rope)?")


def piece_tokens(model: DecoderLM) -> int:
    """Tokens of a call whose taps see it whole: a longer one is cut into pieces that are tapped one by one."""
    return max(1, min(MOST, CALL_TOKENS, LOGIT_ENTRIES // model.config.vocab_size))


def to_halves(config: ModelConfig, name: str, values: Floats) -> Floats:
    """An activation of an engine run in the order of this module; config: the run's."""
    if not config.rope_interleaved or PAIRED.fullmatch(name) is None:
        return values
    return deinterleave(values, config.head_dim)


def from_halves(config: ModelConfig, name: str, values: Floats) -> Floats:
    """The opposite of `to_halves`."""
    if not config.rope_interleaved or PAIRED.fullmatch(name) is None:
        return values
    return interleave(values, config.head_dim)


def deinterleave(values: Floats, head_dim: int) -> Floats:
    """(n, heads * D): channels (2i, 2i + 1) of every head go to (i, i + D/2)."""
    pairs = values.reshape(len(values), -1, head_dim // 2, 2)
    return np.ascontiguousarray(pairs.swapaxes(-1, -2)).reshape(values.shape)


def interleave(values: Floats, head_dim: int) -> Floats:
    """(n, heads * D): channels (i, i + D/2) of every head go to (2i, 2i + 1)."""
    halves = values.reshape(len(values), -1, 2, head_dim // 2)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).reshape(values.shape)
