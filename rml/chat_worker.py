"""Renders one chat template, in a process of its own. Run by `rml.chat`; imports nothing of rml.

A template is a program out of a model file. Jinja's immutable sandbox keeps it from reaching Python's objects; the
limits of this process keep it from using up time and memory, which no sandbox inside a process can do: one expression
is enough to build a string of a gigabyte or to compare lists nested a hundred deep.

Reads a JSON object on stdin (paths, template, messages, variables, limits), writes {"text": ...} or {"error": ...}.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


def limit_process(memory: int, seconds: int) -> None:
    """No more than `memory` bytes of address space and `seconds` of processor time, where the system can do that."""
    try:
        import resource
    except ImportError:  # not on Windows; the parent's time limit still holds
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def environment() -> Any:
    """The environment that Hugging Face's templates are written for (transformers, utils/chat_template_utils.py)."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what an assistant wrote, for training; here its content is simply rendered."""

        tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

        def parse(self, parser: Parser) -> nodes.Scope:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, loopcontrols],
        optimized=False,  # nothing is computed while compiling
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


def render(request: dict[str, Any]) -> str:
    """The rendered text.

    Raises:
        ValueError: it is longer than the limit.
    """
    template = environment().from_string(request["template"])
    parts: list[str] = []
    length = 0
    for part in template.generate(messages=request["messages"], **request["variables"]):
        length += len(part)
        if length > request["characters"]:
            raise ValueError(f"it writes more than {request['characters']} characters")
        parts.append(part)
    return "".join(parts)


def main() -> None:
    """Answers the one request on stdin."""
    request = json.load(sys.stdin)
    sys.path.extend(request["paths"])
    limit_process(request["memory"], request["seconds"])
    try:
        answer = {"text": render(request)}
    except MemoryError:
        answer = {"error": f"it needs more than {request['memory'] >> 20} MB of memory"}
    except Exception as error:  # whatever a template provokes is the template's error
        answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
