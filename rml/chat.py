"""Chat templates: from a list of messages to the prompt a model was tuned on.

Two dangers are kept out. The template comes from a model file and is a program: it is rendered in a process with limits
(`rml.chat_worker`), only when a prompt is asked for, never on loading. And the messages come from users: text in them
that looks like a turn marker must stay text. `Shield` hides such text while the template runs, and brings it back after
the template's own markers have been turned into control tokens.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rml.errors import BadFile, InvalidArgument, RmlError, Unsupported

Message = Mapping[str, Any]

MAX_TEMPLATE: Final = 1 << 18  # characters; the longest in use have 20,000
MAX_MEMORY: Final = 1 << 29  # bytes of address space
MAX_SECONDS: Final = 5  # of processor time
MAX_WAIT: Final = 60  # seconds by the clock: a busy machine gives a process little of its time
MAX_GROWTH: Final = 1 << 22  # characters a prompt may be longer than four times its messages

_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class TemplateFailed(RmlError, ValueError):
    """A chat template refused the messages, broke a limit, or is no template."""


class Shield:
    """Hides what could become part of a control token: the characters it may begin with are replaced by private ones.

    Only where two characters agree with a control token, or where the text ends inside of one or begins with the end of
    one, so that templates still find what they look for in a message (`</think>` and the like).
    """

    def __init__(self, controls: Iterable[str], texts: Iterable[str]) -> None:
        self._controls = [control for control in controls if control]
        self._starts = {control[:2] for control in self._controls}
        used = set("".join(texts))
        self._free = (chr(point) for point in range(0x10FFFD, 0x10F000, -1) if chr(point) not in used)
        self._hidden: dict[str, str] = {}

    def hide(self, text: str) -> str:
        """`text` with nothing in it that could make a control token, alone or with what stands before or after it."""
        for start in self._starts:
            text = text.replace(start, self._private(start[0]) + start[1:])
        body = text.strip()
        if not body:
            return text
        first = text.index(body)
        last = first + len(body) - 1
        if any(start[0] == text[last] for start in self._starts):
            text = text[:last] + self._private(text[last]) + text[last + 1 :]
        if any(body.startswith(control[cut:]) for control in self._controls for cut in range(1, len(control))):
            text = text[:first] + self._private(text[first]) + text[first + 1 :]
        return text

    def reveal(self, text: str) -> str:
        """The text as it was."""
        for character, private in self._hidden.items():
            text = text.replace(private, character)
        return text

    def _private(self, character: str) -> str:
        if character not in self._hidden:
            self._hidden[character] = next(self._free)
        return self._hidden[character]

    def hide_messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages with every text hidden except roles, which a template may build markers from.

        Raises:
            InvalidArgument: a role is missing, or more than a word.
        """
        return [
            {key: _role(value) if key == "role" else self._hide_value(value) for key, value in message.items()}
            for message in messages
        ]

    def _hide_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {self._hide_value(key): self._hide_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide_value(item) for item in value]
        return value


def _role(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidArgument(f"a message's role is {value!r}, expected a word such as 'user'")
    return value


def strings_of(value: Any) -> Iterable[str]:
    """Every text inside nested messages."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings_of(key)
            yield from strings_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings_of(item)


def check_messages(messages: Sequence[Message]) -> None:
    """InvalidArgument unless `messages` is a list of mappings with a role each, of JSON values."""
    if not messages:
        raise InvalidArgument("no messages: expected a list like [{'role': 'user', 'content': 'Hello'}]")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message:
            raise InvalidArgument(f"message {number} is {message!r}, expected a mapping with 'role' and 'content'")


def render(template: str, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    """The text that `template` makes of the messages.

    Raises:
        TemplateFailed: the template raised an error or broke a limit; the message says which.
        Unsupported: it is longer than any known template.
        InvalidArgument: messages or variables hold something that JSON cannot.
    """
    if len(template) > MAX_TEMPLATE:
        raise Unsupported(f"a chat template of {len(template)} characters; at most {MAX_TEMPLATE} are accepted")
    try:
        request = json.dumps(
            {
                "paths": _paths("jinja2", "markupsafe"),
                "template": template,
                "messages": messages,
                "variables": variables,
                "memory": MAX_MEMORY,
                "seconds": MAX_SECONDS,
                "characters": MAX_GROWTH + 4 * sum(map(len, strings_of(messages))),
            }
        )
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"messages and template variables must be JSON values: {error}") from error
    answer = _ask(request)
    if "error" in answer:
        raise TemplateFailed(f"the chat template failed: {answer['error']}")
    return str(answer["text"])


def _paths(*modules: str) -> list[str]:
    """Where these packages are, for a process that starts without site-packages (which takes half the time)."""
    specs = [importlib.util.find_spec(module) for module in modules]
    return [str(Path(spec.origin).parent.parent) for spec in specs if spec is not None and spec.origin is not None]


def _ask(request: str) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("chat_worker.py"))]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=MAX_WAIT, check=False)
    except subprocess.TimeoutExpired as error:
        raise TemplateFailed(f"the chat template failed: no answer within {MAX_WAIT} seconds") from error
    if done.returncode < 0:
        raise TemplateFailed(f"the chat template failed: it runs longer than {MAX_SECONDS} seconds of processor time")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise TemplateFailed(f"the chat template failed: {done.stderr.strip()[-500:]}") from error
    return answer


def pick_template(value: Any, where: str) -> str | None:
    """The template of a tokenizer_config.json: one text, or the one named `default` of a list of named ones."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(
        isinstance(item, dict) and {"name", "template"} <= item.keys() for item in value
    ):
        named = {item["name"]: item["template"] for item in value}
        default = named.get("default", next(iter(named.values()), None))
        if default is None or isinstance(default, str):
            return default
    raise BadFile(f"{where}: chat_template is neither a text nor a list of named templates")
