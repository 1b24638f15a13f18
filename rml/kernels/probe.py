"""One argument of every kind, echoed: `rml.native` calls it once to prove the calling convention of this build."""

from __future__ import annotations

from librt.strings import read_f32_le, read_f64_le, read_i16_le, read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i16, i32, i64, u8


def echo(a: vec[u8], b: vec[i16], c: vec[i32], d: vec[i64], e: vec[float], g: bytes, k: i64, x: float) -> float:
    """Writes d = (a[1], b[1], c[1], k, then g at 0 as i16, i32, i64) and e[:3] = (x, g at 8 as f32, f64); returns
    e[0] + e[3].
    """
    d[0] = i64(a[1])
    d[1] = i64(b[1])
    d[2] = i64(c[1])
    d[3] = k
    d[4] = i64(read_i16_le(g, 0))
    d[5] = i64(read_i32_le(g, 0))
    d[6] = read_i64_le(g, 0)
    e[0] = x
    e[1] = read_f32_le(g, 8)
    e[2] = read_f64_le(g, 8)
    return e[0] + e[3]


def count(k: i64) -> i64:
    """Returns k: the magic -113 of mypyc's own convention included."""
    return k
