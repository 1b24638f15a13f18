"""How far apart two results may be, each with its reason. Limits belong to a path, not to a mood: add one here, with
its reason and the worst value seen, instead of writing a number into a test.

Unless a unit is given, a limit bounds the largest absolute difference between logits, which are of size 6 in the toys.
"""

from __future__ import annotations

from typing import Final

REFERENCE_TRANSFORMERS: Final = 1e-10
"""Reference against transformers with every float32 in it replaced by float64: what is left is the order of additions.
Seen: 2.2e-14. Anything above 1e-12 would already mean that a formula differs."""

REFERENCE_ORDERED: Final = 1e-12
"""The reference's two arithmetics (BLAS and numpy, or IEEE-exact steps in one order) on a toy. Seen: 2e-14."""

SAME_MODEL: Final = 1e-11
"""Reference logits of a toy's HF directory and GGUF file: GGUF keeps the norms' eps in float32. Seen: 2.5e-12."""

FLOAT32_DIVISORS: Final = 1e-5
"""The same where GGUF holds llama3 scaling as float32 divisors (rope_freqs.weight): a relative 4e-8 in two frequencies,
times positions up to 40. Seen: 1.8e-6."""

ENGINE_EXACT_F64: Final = 1e-9
"""Engine, exact products and float64 cache, against the reference: both compute in float64, in different orders."""

ENGINE_EXACT_F32: Final = 1e-5
"""The same with keys and values rounded to float32 (6e-8 of each) in the cache."""

LLAMA_CPP: Final = 1e-3
"""Against llama.cpp on a float32 copy of a toy: its activations and sums are float32. Seen: 9e-6."""

LLAMA_CPP_GEMMA: Final = 2e-2
"""The same for Gemma, whose GELU llama.cpp looks up in a table of float16. Seen: 3.1e-3."""

EXACT_WIDENING: Final = 2.0**-24
"""reference/quants.py against gguf's dequantiser, relative to the sum of the sizes of a weight's two terms. A float16
times the integers of these formats has at most 23 bits, so gguf's float32 holds it; their sum rounds, half a unit.
In the two real checkpoints not one weight does."""

EXP_ULP: Final = 0.9
"""rml/kernels/exp.py against the true exponential, in units of the result's last place. Seen: 0.86."""

SIGMOID_ULP: Final = 3.0
"""The same for sigmoid_into: exp, a sum and a division, half a unit each, and exp's share. Seen: 2.0."""

TANH: Final = 4e-16
"""tanh_into, absolute: 1 - 2 / (1 + exp(2x)) loses what 1 hides. Seen: 3.3e-16."""

ROPE_FREQUENCIES: Final = 1e-14
"""rml/rope.py against reference/rope.py, relative: two orders of the same few operations. Seen: 1e-15."""

ATTEND: Final = 1e-13
"""The attention kernels against attend_ref on what the cache holds, values of size 1: the order of additions and one
unit in each exp. Seen: 1.6e-15."""

ATTEND_HUGE_SCORES: Final = 1e-11
"""The same with scores of 1e4, each wrong by 1e-12 before exp sees it. Seen: 1.3e-12."""

CACHE_F32: Final = 1e-6
"""Attention over an f32 cache against exact keys and values, normal values of size 1 (6e-8 of each). Seen: 1e-7."""

CACHE_F16: Final = 5e-3
"""The same for f16 (5e-4 of each). Seen: 1e-3."""

CACHE_INT8: Final = 5e-2
"""The same for int8: half a step of max|x| / 127 in a group of 32, about 0.01. Seen: 1.8e-2."""

KERNEL_PRODUCT: Final = 1e-14
"""A product's kernel against numpy's float64 product, relative to the sum of the sizes of its terms: a few hundred
terms
added in another order. Seen: 6e-16."""
