"""exp, sigmoid and tanh as typed loops: vectorised by the compiler, the same bits on every machine and in every mode.

exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2: Cody and Waite's reduction with ln 2 in two parts,
then the Taylor polynomial of degree 13 (its remainder is below 5e-18), in Estrin's order: short chains of operations.
Only +, -, *, fused multiply-add and comparisons of doubles and a few integer operations on their bits: no library call,
no table. Error below 1 ulp.

`f`, `fi` and `fb` are one memory seen three ways (float64, int64, bytes): a float's bits are read through `fb`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_f64_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i64

from rml.kernels.fma import fma

EXP_SCRATCH: Final = 768  # float64 of scratch that every *_into needs: three blocks of the 256 values taken at once


def reduced(f: vec[float], x: i64, count: i64, p: i64, z: i64) -> None:
    """p = exp(r) and z = n + 1.5 * 2^52 for x = n ln 2 + r.

    Adding 1.5 * 2^52 rounds to the nearest integer and leaves it in the low bits. The larger part of ln 2 has 33 bits,
    so n times it is exact. Outside [-708, 710] the ends are taken, so that n stays in the range of an exponent.
    """
    for t in range(count):
        v: float = f[x + t]
        if v < -708.0:
            v = -708.0
        if v > 710.0:
            v = 710.0
        rounded: float = fma(v, 1.4426950408889634, 6755399441055744.0)
        n: float = rounded - 6755399441055744.0
        most: float = fma(n, -6.93147180369123816490e-01, v)
        r: float = fma(n, -1.90821492927058770002e-10, most)
        r2: float = r * r
        r4: float = r2 * r2
        low: float = fma(r, 0.16666666666666666, 0.5)
        low = fma(fma(r, 0.008333333333333333, 0.041666666666666664), r2, low)
        middle: float = fma(r, 0.0001984126984126984, 0.001388888888888889)
        middle = fma(fma(r, 2.7557319223985893e-06, 2.48015873015873e-05), r2, middle)
        high: float = fma(r, 2.505210838544172e-08, 2.755731922398589e-07)
        high = fma(fma(r, 1.6059043836821613e-10, 2.08767569878681e-09), r2, high)
        q: float = fma(fma(high, r4, middle), r4, low)
        lost: float = fma(n, -1.90821492927058770002e-10, most - r)  # by the rounding of r
        if f[x + t] < -708.0:
            rounded = 6755399441054722.0  # n = -1022: the exponent field becomes 0, and so the power
        f[z + t] = rounded
        f[p + t] = (fma(q, r2, lost) + r) + 1.0


def power_bits(fi: vec[i64], fb: bytes, z: i64, count: i64, s: i64) -> None:
    """s = the bits of 2^(n - 1), n from the low bits of z: the exponent field is n - 1 + 1023."""
    for t in range(count):
        fi[s + t] = ((read_i64_le(fb, (z + t) * 8) + 1022) & 2047) << 52


def scaled(f: vec[float], fb: bytes, out: i64, count: i64, p: i64, s: i64) -> None:
    """out = 2 p * 2^(n - 1): in this order neither end of the range is lost to overflow or to a subnormal."""
    for t in range(count):
        f[out + t] = f[p + t] * 2.0 * read_f64_le(fb, (s + t) * 8)


def exp_into(f: vec[float], fb: bytes, fi: vec[i64], x: i64, out: i64, count: i64, scratch: i64) -> None:
    """out[j] = exp(x[j]) for j < count; out may be x. NaN stays NaN; below -708 the result is 0, above 709.78 infinity.

    scratch: offset of EXP_SCRATCH float64 that are overwritten.
    """
    done: i64 = 0
    while done < count:
        size: i64 = count - done
        if size > 256:
            size = 256
        reduced(f, x + done, size, scratch, scratch + 256)
        power_bits(fi, fb, scratch + 256, size, scratch + 512)
        scaled(f, fb, out + done, size, scratch, scratch + 512)
        done += size


def sigmoid_into(f: vec[float], fb: bytes, fi: vec[i64], x: i64, out: i64, count: i64, scratch: i64) -> None:
    """out[j] = 1 / (1 + exp(-x[j])); out may be x. SiLU is x times this, GELU-tanh x times this of 2u.

    Scratch as exp_into. The relative error is below 2 ulp down to x = -708; below, the result is 0.
    """
    for j in range(count):
        f[out + j] = -f[x + j]
    exp_into(f, fb, fi, out, out, count, scratch)
    for j in range(count):
        f[out + j] = 1.0 / (1.0 + f[out + j])


def tanh_into(f: vec[float], fb: bytes, fi: vec[i64], x: i64, out: i64, count: i64, scratch: i64) -> None:
    """out[j] = tanh(x[j]) = 1 - 2 / (1 + exp(2 x[j])), to 1e-16 of 1 (not relative to small x); out may be x."""
    for j in range(count):
        f[out + j] = f[x + j] * 2.0
    exp_into(f, fb, fi, out, out, count, scratch)
    for j in range(count):
        f[out + j] = 1.0 - 2.0 / (1.0 + f[out + j])
