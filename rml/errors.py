"""The exceptions that users catch.

Every message says where (file, tensor or key), what was expected, what was found, and what to do next where that is
known.
"""


class RmlError(Exception):
    """Base of everything this package raises on purpose."""


class BadFile(RmlError, ValueError):
    """The file is broken: it contradicts its own format, its own header, or the config beside it."""


class ConfigError(BadFile):
    """A value in config.json, generation_config.json or GGUF metadata is missing, of the wrong type or out of range."""


class Unsupported(RmlError, ValueError):
    """The file is fine, but says something the one recipe of this engine cannot express. Never skipped silently."""


class InvalidArgument(RmlError, ValueError):
    """The caller's mistake; nothing has changed."""


class CacheFull(RmlError, RuntimeError):
    """The KV cache has no room for the tokens of this call; nothing has changed."""


class KernelsUnavailable(ImportError):
    """The compiled kernels that were asked for are missing or do not follow the expected calling convention."""


class LoadWarning(UserWarning):
    """Something in a model's files is unusual or unknown, and loading goes on."""


class EngineError(RmlError, RuntimeError):
    """A running computation failed: a rank died, or a value left the range of its storage. The message says which."""
