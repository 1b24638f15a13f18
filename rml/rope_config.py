"""The rotary part of config.json, before and after transformers 5.

Before 5: `rope_theta` (Gemma: and `rope_local_base_freq`) beside `rope_scaling`, an object or null. From 5 on: one
object `rope_parameters` that holds the theta too; for Gemma two, `full_attention` and `sliding_attention`, inside it. A
file with both spellings is read if they agree; transformers lets one of them win, silently.
"""

import warnings
from collections.abc import Mapping

from rml.config import RopeConfig, RopeType
from rml.config_keys import Keys
from rml.errors import ConfigError, LoadWarning

_NESTED = ("full_attention", "sliding_attention")
_TYPES: dict[str, RopeType] = {"default": "default", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}


def rope_from_hf(keys: Keys, theta: float, context: int, local_theta: float | None) -> tuple[RopeConfig, float | None]:
    """The global RoPE, and the base of the local one.

    keys: of config.json. theta, local_theta: the family's defaults; local_theta is None where no layer has its own
    RoPE. context: max_position_embeddings. ConfigError for bad values, Unsupported for types without a fixed table.
    """
    parameters, local = _parameters(keys, nested=local_theta is not None)
    rope = _read(keys, parameters, theta, context)
    if local_theta is not None:
        local_theta = _local(keys, local, local_theta)
    return rope, local_theta


def _object(keys: Keys, key: str) -> dict[str, object]:
    """An object of the config; null, {} and absent are the same."""
    value = keys.value(key)
    if value is not None and not isinstance(value, dict):
        keys.fail(key, "an object or null")
    return {name: each for name, each in (value or {}).items() if each is not None or name == "factor"}


def _parameters(keys: Keys, *, nested: bool) -> tuple[Keys, Keys]:
    """The objects of the global and of the local RoPE, whichever way they are written."""
    scaling, parameters = _object(keys, "rope_scaling"), _object(keys, "rope_parameters")
    local: dict[str, object] = {}
    if any(name in parameters for name in _NESTED):
        if not nested:
            keys.refuse("rope_parameters", "all layers of this family share one RoPE")
        inner = Keys(f"{keys.where}: rope_parameters", "", parameters, {})
        parameters, local = _object(inner, "full_attention"), _object(inner, "sliding_attention")
        _warn_unused(inner)
    where, label = f"{keys.where}: rope_parameters", f"{keys.label}: rope_parameters"
    sliding = Keys(where, label, local, keys.sources)
    if not scaling:
        return Keys(where, label, parameters, keys.sources), sliding
    if parameters and _canonical(parameters) != _canonical(scaling):
        raise ConfigError(
            f"{keys.where}: keys 'rope_scaling' {scaling} and 'rope_parameters' {parameters} disagree; remove one"
        )
    return Keys(f"{keys.where}: rope_scaling", f"{keys.label}: rope_scaling", scaling, keys.sources), sliding


def _canonical(values: Mapping[str, object]) -> dict[str, object]:
    return {"rope_type" if key == "type" else key: value for key, value in values.items()}


def _warn_unused(keys: Keys) -> None:
    unused = [key for key, value in keys.values.items() if key not in keys.used and value is not None]
    if unused:
        warnings.warn(f"{keys.where}: keys that mean nothing here are ignored: {', '.join(unused)}", LoadWarning, 6)


def _agreeing(first: Keys, key: str, second: Keys, other: str, field: str) -> float | None:
    """A number that may be written in two places; ConfigError if it is, with different values."""
    beside = second.number(other, field)
    value = first.number(key, field)
    if value is not None and beside is not None and value != beside:
        raise ConfigError(f"{first.where}: {key!r} is {value}, but beside it {other!r} is {beside}; remove one of them")
    return beside if value is None else value


def _type(keys: Keys) -> RopeType:
    old, new = keys.string("type", "rope.type"), keys.string("rope_type", "rope.type")
    if old is not None and new is not None and old != new:
        raise ConfigError(f"{keys.where}: 'rope_type' is {new!r}, but 'type' is {old!r}; remove one of them")
    name = new or old
    if name is None and keys.values.get("factor") is not None:
        raise ConfigError(f"{keys.where}: has a 'factor' but no 'rope_type'")
    if name is None:
        return keys.default("rope.type", "default", "no scaling")
    if name not in _TYPES:
        keys.refuse("type" if new is None else "rope_type", f"supported are {', '.join(_TYPES)}")
    return _TYPES[name]


def _read(top: Keys, keys: Keys, default_theta: float, context: int) -> RopeConfig:
    kind = _type(keys)
    theta = _agreeing(keys, "rope_theta", top, "rope_theta", "rope.theta")
    if theta is None:
        theta = top.default("rope.theta", default_theta, "family")
    if keys.number("partial_rotary_factor") not in (None, 1.0):
        keys.refuse("partial_rotary_factor", "partial rotary embeddings are not supported")
    if keys.value("mrope_section") is not None:
        keys.refuse("mrope_section", "multimodal RoPE is not supported")
    if kind == "default":
        rope = RopeConfig(theta)
        if keys.number("factor") == 1.0:  # says nothing; any other is warned about below
            keys.used.add("factor")
        else:
            keys.used.discard("factor")
    elif kind == "linear":
        rope = RopeConfig(theta, "linear", _need(keys, "factor", kind))
    elif kind == "llama3":
        rope = RopeConfig(
            theta,
            "llama3",
            _need(keys, "factor", kind),
            low_freq_factor=_need(keys, "low_freq_factor", kind),
            high_freq_factor=_need(keys, "high_freq_factor", kind),
            original_max_position=_original(top, keys, None),
        )
    else:
        rope = _yarn(top, keys, theta, context)
    _warn_unused(keys)
    return rope


def _need(keys: Keys, key: str, kind: str) -> float:
    value = keys.number(key, f"rope.{key}")
    return keys.fail(key, f"a positive number, which {kind} needs") if value is None else value


def _original(top: Keys, keys: Keys, default: int | None) -> int:
    """The context before stretching; beside rope_parameters it wins over inside, as in transformers."""
    key, field = "original_max_position_embeddings", "rope.original_max_position"
    inside = keys.integer(key, field)
    value = top.integer(key, field) or inside
    if value is None and default is not None:
        return keys.default(field, default, "max_position_embeddings")
    return keys.fail(key, "an integer") if value is None else value


def _yarn(top: Keys, keys: Keys, theta: float, context: int) -> RopeConfig:
    original = _original(top, keys, context)
    if "factor" in keys.values and keys.value("factor") is None:  # an explicit null
        factor = keys.default("rope.factor", context / original, "max_position_embeddings / original")
    else:
        factor = _need(keys, "factor", "yarn")
    truncate = keys.boolean("truncate", "rope.truncate")

    def optional(key: str, default: float) -> float:
        return keys.number(key, f"rope.{key}", positive=False) or default  # 0 means the default, as in transformers

    return RopeConfig(
        theta,
        "yarn",
        factor,
        original_max_position=original,
        attention_factor=keys.number("attention_factor", "rope.attention_factor"),
        beta_fast=optional("beta_fast", 32.0),
        beta_slow=optional("beta_slow", 1.0),
        mscale=optional("mscale", 0.0),
        mscale_all_dim=optional("mscale_all_dim", 0.0),
        truncate=True if truncate is None else truncate,
    )


def _local(top: Keys, keys: Keys, default_theta: float) -> float:
    """The sliding layers' own base; they are never scaled."""
    if _type(keys) != "default":
        keys.refuse("rope_type" if keys.values.get("rope_type") else "type", "local layers are never scaled")
    theta = _agreeing(keys, "rope_theta", top, "rope_local_base_freq", "rope_local_theta")
    _warn_unused(keys)
    return top.default("rope_local_theta", default_theta, "family") if theta is None else theta
