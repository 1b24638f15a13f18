"""gguf's reader without its slowest part.

`gguf.GGUFReader` makes several numpy objects for every element of a metadata array: 14.5 s for the 262,144 tokens
of a Gemma file. This one keeps an array of numbers as one part and walks over an array of strings without keeping
them; the decoder needs no more of a vocabulary than its length.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, GGUFValueType

Parts = tuple[int, list[npt.NDArray[Any]], list[int], list[GGUFValueType]]


class HeaderReader(GGUFReader):  # type: ignore[misc]  # mypy does not follow gguf
    """Fields and tensors of a GGUF file. Strings inside arrays are left out; `length` counts them."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Parts:
        if raw_type != GGUFValueType.ARRAY:
            parts: Parts = super()._get_field_parts(orig_offs, raw_type)
            return parts
        kind = GGUFValueType(int(self._get(orig_offs, np.uint32)[0]))
        count = int(self._get(orig_offs + 4, np.uint64)[0])
        start, types = orig_offs + 12, [GGUFValueType.ARRAY, kind]
        head = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
        if kind != GGUFValueType.STRING:
            values = self._get(start, self.gguf_scalar_to_np[kind], count)
            return 12 + values.nbytes, [*head, values], [2], types
        at, buffer, length = start, memoryview(self.data), struct.Struct("<Q")
        for _ in range(count):
            at += 8 + length.unpack_from(buffer, at)[0]
        return at - orig_offs, head, [], types

    def value(self, key: str) -> Any:
        """A metadata value: a number, a string, a list of numbers, or None where the key is missing."""
        field = self.get_field(key)
        return None if field is None else field.contents()

    def length(self, key: str) -> int:
        """Elements of an array value, 0 where the key is missing."""
        field = self.get_field(key)
        return 0 if field is None else int(field.parts[4][0])  # after key length, key, type and element type
