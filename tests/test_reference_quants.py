"""reference/quants.py: exact values, worked out three other ways."""

from __future__ import annotations

from fractions import Fraction

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tolerances import EXACT_WIDENING

from reference import quants
from tools.fixture_quants import K_FORMATS

SCALES_AT = {"Q8_0": (0, None), "Q4_0": (0, None), "Q4_1": (0, 2), "Q5_0": (0, None), "Q5_1": (0, 2)}
SCALES_AT |= {name: (at, minimum) for name, (at, minimum, _, _) in K_FORMATS.items()}
"""Byte offsets of the two float16 scales; the second is subtracted in the K formats and added in Q4_1 and Q5_1."""


def random_blocks(name: str, count: int = 400) -> npt.NDArray[np.uint8]:
    """Random bytes, with finite scales of every size: subnormal, huge, negative, zero."""
    rng = np.random.default_rng(len(name) * 1000 + ord(name[1]))
    blocks = rng.integers(0, 256, (count, quants.FORMATS[name].nbytes), dtype=np.uint8)
    bits = rng.integers(0, 0x7C00, (count, 2), dtype=np.uint16) | rng.integers(0, 2, (count, 2), dtype=np.uint16) << 15
    bits[:8, :] = np.array([0, 1, 0x8000, 0x8001, 0x7BFF, 0xFBFF, 0x0400, 0x3C00])[:, None]
    for column, at in enumerate(SCALES_AT[name]):
        if at is not None:
            blocks[:, at : at + 2] = bits[:, column : column + 1].view(np.uint8)
    return blocks


def with_scales(blocks: npt.NDArray[np.uint8], name: str, d: float, m: float) -> npt.NDArray[np.float64]:
    """The blocks' weights if their scales were d and m."""
    blocks = blocks.copy()
    for value, at in zip((d, m), SCALES_AT[name], strict=True):
        if at is not None:
            blocks[:, at : at + 2] = np.array([value], "<f2").view(np.uint8)
    return quants.widen(blocks, name).reshape(len(blocks), -1)


@pytest.mark.parametrize("name", list(SCALES_AT))
def test_equals_gguf_up_to_its_rounding(name: str) -> None:
    blocks = random_blocks(name)
    exact = quants.widen(blocks, name).reshape(len(blocks), -1)
    rounded = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float64).reshape(exact.shape)
    d = np.abs(quants.half(blocks, SCALES_AT[name][0]))
    at = SCALES_AT[name][1]
    m = 0.0 if at is None else np.abs(quants.half(blocks, at))
    size = d * np.abs(with_scales(blocks, name, 1.0, 0.0)) + m * np.abs(with_scales(blocks, name, 0.0, 1.0))
    assert np.all(np.abs(exact - rounded) <= EXACT_WIDENING * size)
    assert np.count_nonzero(exact) > exact.size // 2


@pytest.mark.parametrize("name", list(SCALES_AT))
def test_no_bit_is_lost(name: str) -> None:
    """A weight is d A + m B with integers A, B: the same sum in rational numbers is the same double."""
    blocks = random_blocks(name, 24)
    exact = quants.widen(blocks, name).reshape(len(blocks), -1)
    a, b = with_scales(blocks, name, 1.0, 0.0), with_scales(blocks, name, 0.0, 1.0)
    assert np.array_equal(a, np.rint(a))
    at, at_minimum = SCALES_AT[name]
    for i, block in enumerate(blocks):
        d = Fraction(float(quants.half(block[None], at)[0, 0]))
        m = Fraction(0) if at_minimum is None else Fraction(float(quants.half(block[None], at_minimum)[0, 0]))
        for j in range(0, exact.shape[1], 7):
            assert d * Fraction(a[i, j]) + m * Fraction(b[i, j]) == Fraction(exact[i, j])


def one_block(name: str, **pieces: bytes | list[int]) -> npt.NDArray[np.float64]:
    """The weights of a block given piece by piece, in the order of its struct."""
    raw = b"".join(bytes(piece) for piece in pieces.values())
    assert len(raw) == quants.FORMATS[name].nbytes
    return quants.widen(np.frombuffer(raw, np.uint8)[None], name).reshape(-1)


ONE, TWO, HALF = (np.array([v], "<f2").tobytes() for v in (1.0, 2.0, 0.5))


def test_q8_0_by_hand() -> None:
    w = one_block("Q8_0", d=HALF, q=[3, 0xFF, 0x80, 127] + [0] * 28)
    assert w[:5].tolist() == [1.5, -0.5, -64.0, 63.5, 0.0]


def test_q4_0_low_nibbles_are_the_first_half() -> None:
    w = one_block("Q4_0", d=TWO, q=[0xF0] + [0x88] * 15)
    assert (w[0], w[16], w[1], w[17]) == (-16.0, 14.0, 0.0, 0.0)


def test_q4_1_adds_its_minimum() -> None:
    w = one_block("Q4_1", d=TWO, m=HALF, q=[0x31] + [0] * 15)
    assert (w[0], w[16], w[1]) == (2.5, 6.5, 0.5)


def test_q5_0_fifth_bits() -> None:
    w = one_block("Q5_0", d=ONE, high=[0b10, 0, 1, 0], q=[0x21, 0x43] + [0] * 14)
    assert (w[0], w[1], w[16], w[17], w[2]) == (1 - 16.0, 16 + 3 - 16.0, 16 + 2 - 16.0, 4 - 16.0, -16.0)


def test_q5_1_fifth_bits() -> None:
    w = one_block("Q5_1", d=TWO, m=ONE, high=[0, 0, 0, 0x80], q=[0x01] + [0] * 14 + [0xF0])
    assert (w[0], w[15], w[31], w[30]) == (3.0, 1.0, 2 * 31 + 1.0, 1.0)


def test_q2_k_by_hand() -> None:
    """Byte 0 of the codes holds weights 0, 32, 64, 96; scale and minimum of weight 32 are those of group 2."""
    scales = [0x12, 0x00, 0x35] + [0] * 13
    w = one_block("Q2_K", scales=scales, q=[0b00_00_10_11] + [0] * 63, d=TWO, dmin=HALF)
    assert (w[0], w[1], w[32], w[33]) == (2 * 2 * 3 - 0.5, -0.5, 2 * 5 * 2 - 1.5, -1.5)


def test_q3_k_by_hand() -> None:
    """Group 0's scale: low nibble 5 of byte 0, upper bits 2 of byte 8: 37 - 32 = 5. A clear third bit subtracts 4."""
    w = one_block("Q3_K", high=[1] + [0] * 31, q=[3] + [1] + [0] * 62, scales=[5] + [0] * 7 + [2, 0, 0, 0], d=TWO)
    assert (w[0], w[1], w[2]) == (2 * 5 * 3.0, 2 * 5 * (1 - 4.0), 2 * 5 * -4.0)
    assert w[16] == 2 * -32 * -4.0


def test_q4_k_by_hand() -> None:
    """Group 4: scale low nibble in byte 8, upper bits in the top of byte 0; minimum likewise from byte 8 and byte 4."""
    packed = [0b10_000001, 0, 0, 0, 0b01_000010, 0, 0, 0, 0x73, 0, 0, 0]
    w = one_block("Q4_K", d=TWO, dmin=HALF, packed=packed, q=[0xA9] + [0] * 63 + [0x0C] + [0] * 63)
    assert (w[0], w[1]) == (2 * 1 * 9 - 0.5 * 2, -1.0)
    assert w[32] == 0.0  # group 1 has scale 0 and minimum 0
    assert (w[128], w[129]) == (2 * 35 * 12 - 0.5 * 23, -11.5)


def test_q5_k_by_hand() -> None:
    """Bit p of byte 0 of the fifth bits belongs to weight 32 p."""
    packed = [1, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]
    w = one_block("Q5_K", d=ONE, dmin=ONE, packed=packed, high=[0b10] + [0] * 31, q=[0x53] + [0] * 127)
    assert (w[0], w[32], w[33]) == (3.0, 16 + 5 - 4.0, -4.0)


def test_q6_k_by_hand() -> None:
    """Byte 0 of the nibbles: weight 0 below, weight 64 above; byte 0 of the bit pairs: weights 0, 32, 64, 96."""
    scales = [2, 0, 0xFF] + [0, 3] + [0] * 11
    w = one_block("Q6_K", low=[0x4F] + [0] * 127, high=[0b01_10_00_11] + [0] * 63, scales=scales, d=HALF)
    assert (w[0], w[32], w[64]) == (63 - 32.0, 0.5 * -1 * -32.0, 0.5 * 3 * (32 + 4 - 32.0))


def test_plain_floats() -> None:
    values = np.array([1.5, -0.0, 65504.0, 2.0**-24], np.float32)
    assert quants.widen(values.view(np.uint8)[None], "F32")[0].tolist() == values.tolist()
    assert quants.widen(values.astype(np.float16).view(np.uint8)[None], "F16")[0].tolist() == values.tolist()
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    assert quants.widen(upper.view(np.uint8)[None], "BF16")[0].tolist() == [1.5, -0.0, 65280.0, 2.0**-24]


def test_unknown_type() -> None:
    with pytest.raises(KeyError, match="IQ2_XS"):
        quants.widen(np.zeros((1, 74), np.uint8), "IQ2_XS")
