"""Typed reading of the keys of config.json and of GGUF metadata: types and ranges checked, sources remembered."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NoReturn, TypeVar

from rml.errors import ConfigError, Unsupported

T = TypeVar("T")

MAX_SIZE = 2**31 - 1  # of any size or count; far above every model, and low enough that products stay in 64 bits


def describe(value: object) -> str:
    """A value and its type for an error message, cut short."""
    kinds = {bool: "bool", int: "integer", float: "float", str: "string", dict: "object", type(None): "null"}
    kind = kinds.get(type(value), "array" if isinstance(value, Sequence) else type(value).__name__)
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({kind})"


class Keys:
    """A flat mapping of keys to values of any type.

    A key whose value is null counts as absent. Every getter names the config field that the value is for, and
    `sources[field]` then says where it came from. `used` collects the keys that somebody has read.
    """

    def __init__(self, where: str, label: str, values: Mapping[str, object], sources: dict[str, str]) -> None:
        self.where = where  # for errors: the file, and the object inside it
        self.label = label  # for sources
        self.values = values
        self.sources = sources
        self.used: set[str] = set()

    def value(self, key: str) -> object | None:
        """The raw value; None if absent or null."""
        self.used.add(key)
        return self.values.get(key)

    def fail(self, key: str, expected: str) -> NoReturn:
        """ConfigError about this key's value."""
        if self.values.get(key) is None:
            found = "null" if key in self.values else "missing"
            raise ConfigError(f"{self.where}: key {key!r} is {found}, expected {expected}")
        raise ConfigError(f"{self.where}: key {key!r}: expected {expected}, found {describe(self.values[key])}")

    def refuse(self, key: str, why: str) -> NoReturn:
        """Unsupported because of this key's value."""
        raise Unsupported(f"{self.where}: key {key!r} is {describe(self.values[key])}: {why}")

    def note(self, field: str, key: str) -> None:
        """Remember that the field's value came from this key."""
        if field:
            self.sources[field] = f"{self.label}: {key}"

    def default(self, field: str, value: T, why: str) -> T:
        """`value`, remembered as a default."""
        self.sources[field] = f"default: {why}"
        return value

    def integer(self, key: str, field: str = "", *, minimum: int = 1) -> int | None:
        """An integer from `minimum` to MAX_SIZE; None if absent."""
        value = self.value(key)
        if value is None:
            return None
        if type(value) is not int or not minimum <= value <= MAX_SIZE:
            self.fail(key, f"an integer from {minimum} to {MAX_SIZE}")
        self.note(field, key)
        return value

    def need_integer(self, key: str, field: str, *, minimum: int = 1) -> int:
        """The same, ConfigError if absent."""
        value = self.integer(key, field, minimum=minimum)
        return self.fail(key, "an integer") if value is None else value

    def number(self, key: str, field: str = "", *, positive: bool = True) -> float | None:
        """A finite number, an integer being one too; None if absent."""
        value = self.value(key)
        if value is None:
            return None
        expected = "a positive number" if positive else "a finite number"
        if not (type(value) is float or (type(value) is int and abs(value) < 2**1000)) or not isfinite(value):
            self.fail(key, expected)
        if positive and value <= 0:
            self.fail(key, expected)
        self.note(field, key)
        return float(value)

    def boolean(self, key: str, field: str = "") -> bool | None:
        """true or false; None if absent."""
        value = self.value(key)
        if value is None:
            return None
        if type(value) is not bool:
            self.fail(key, "true or false")
        self.note(field, key)
        return value

    def string(self, key: str, field: str = "") -> str | None:
        """A string; None if absent."""
        value = self.value(key)
        if value is None:
            return None
        if type(value) is not str:
            self.fail(key, "a string")
        self.note(field, key)
        return value

    def ids(self, key: str, field: str) -> frozenset[int] | None:
        """A token id or a list of them; None if absent."""
        value = self.value(key)
        if value is None:
            return None
        values = value if isinstance(value, list) else [value]
        if not all(type(each) is int and 0 <= each <= MAX_SIZE for each in values):
            self.fail(key, "a token id or a list of token ids")
        self.note(field, key)
        return frozenset(values)
