"""The `rml` command. Results go to stdout, plain or as JSON; progress, speeds and warnings go to stderr.

Exit codes: 0 all is well; 1 the model, the file or the arguments' values are wrong (one line on stderr says what);
2 the command line does not parse.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import click

import rml
from rml import cli_tables
from rml.errors import InvalidArgument, RmlError
from rml.generate import Generation, Sampling
from rml.inspection import inspect as inspect_model
from rml.kv_cache import DTYPES, CacheType
from rml.scoring import LogitsFile, score
from rml.tokenizer import Tokenizer
from rml.tokenizer_files import open_tokenizer

# `rml verify NAME`: the command object, as module:attribute. Modules are imported when their command is used.
VERIFY_COMMANDS: Final[dict[str, str]] = {
    "bisect": "rml.verify_bisect_commands:bisect_command",
    "determinism": "rml.verify_commands:determinism",
    "kld": "rml.verify_commands:kld",
    "kv": "rml.verify_commands:kv",
    "record": "rml.verify_commands:record",
    "taps": "rml.verify_bisect_commands:taps",
}


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use, so that `rml` starts fast."""

    def __init__(self, *args: Any, table: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the table."""
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now."""
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), attribute))


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns what goes wrong into one line on stderr and exit code 1."""
    try:
        yield
    except (RmlError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(str(error) or type(error).__name__) from error


class SafeCommand(click.Command):
    """A command whose errors are readable."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        with readable_errors():
            return super().invoke(ctx)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {message}", err=True)


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"rml {version('rml')}: {rml.BUILD}")
        ctx.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show version and kernels.",
)
def main() -> None:
    """Decode language models from GGUF files and Hugging Face directories, and prove the numbers right."""
    warnings.showwarning = _show_warning


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that runs a model."""
    options = (
        click.argument("model", type=click.Path(exists=True, path_type=Path)),
        click.option("--threads", type=int, help="Threads; every available core if not given."),
        click.option(
            "--dot", type=click.Choice(["int8", "exact"]), help="Product of quantised weights: int8 (default) or exact."
        ),
        click.option(
            "--cache",
            "cache_dtype",
            type=click.Choice(DTYPES),
            default="f32",
            show_default=True,
            help="Type of keys and values in the cache.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class Prompt:
    """A prompt's token ids; the tokenizer, if the model has one and it was needed."""

    ids: list[int]
    tokenizer: Tokenizer | None


def read_prompt(model: Path, text: str | None, ids: str | None, special: bool) -> Prompt:
    """The prompt of the command line: a text, `-` for stdin, or `--ids 1,2,3`."""
    if (text is None) == (ids is None):
        raise click.UsageError("give either PROMPT or --ids")
    if ids is not None:
        try:
            return Prompt([int(part) for part in ids.replace(",", " ").split()], None)
        except ValueError as error:
            raise click.UsageError(f"--ids takes numbers like 1,15,7: {error}") from error
    tokenizer = open_tokenizer(model)
    written = sys.stdin.read() if text == "-" else text or ""
    return Prompt(tokenizer.encode(written, special=special), tokenizer)


@main.command(cls=SafeCommand)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--tensors", "all_tensors", is_flag=True, help="List every tensor, not one line per kind.")
@click.option(
    "--context", type=click.IntRange(1), help="Positions to size the cache for; the model's own if not given."
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads to size the workspace for."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def inspect(model: Path, all_tensors: bool, context: int | None, threads: int, as_json: bool) -> None:
    """Show a model's config with the source of each value, its tensors, and the memory it needs."""
    report = inspect_model(model, threads, context)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    click.echo(cli_tables.inspection_text(report, all_tensors), nl=False)


@main.command(cls=SafeCommand)
@model_options
@click.argument("prompt", required=False)
@click.option("--ids", help="The prompt as token ids, like 1,15,7.")
@click.option(
    "-n", "--max-tokens", type=click.IntRange(0), default=128, show_default=True, help="The most tokens to add."
)
@click.option(
    "--temperature", type=float, default=0.0, show_default=True, help="0 takes the likeliest token every time."
)
@click.option("--top-k", type=int, default=0, help="Draw among the k likeliest tokens only; 0 = all.")
@click.option("--top-p", type=float, default=1.0, help="Draw among the likeliest tokens that make up this probability.")
@click.option("--seed", type=int, help="Makes drawing repeatable.")
@click.option("--chat", is_flag=True, help="PROMPT is a user's message: apply the model's chat template.")
@click.option("--system", help="With --chat: the system message.")
@click.option("--special", is_flag=True, help="Control tokens written in PROMPT count as such.")
@click.option("--ignore-eos", is_flag=True, help="Go on past end tokens.")
@click.option("--quiet", is_flag=True, help="No speeds on stderr.")
def generate(
    model: Path,
    prompt: str | None,
    ids: str | None,
    threads: int | None,
    dot: str | None,
    cache_dtype: CacheType,
    as_json: bool,
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
    chat: bool,
    system: str | None,
    special: bool,
    ignore_eos: bool,
    quiet: bool,
) -> None:
    """Continue PROMPT with MODEL's words. PROMPT may be - for stdin."""
    sampling = Sampling(temperature, top_k, top_p, seed)
    tokenizer = open_tokenizer(model)
    if chat:
        tokens = chat_ids(tokenizer, prompt, system)
    else:
        tokens = read_prompt(model, prompt, ids, special).ids
    loaded = rml.load(model, threads=threads, dot=dot)
    with progress("prompt", len(tokens)) as advance:
        generation = Generation(
            loaded,
            tokenizer,
            tokens,
            max_tokens=max_tokens,
            sampling=sampling,
            cache_dtype=cache_dtype,
            ignore_eos=ignore_eos,
            on_prefill=advance,
        )
        first = next(generation, "")
    stream(generation, first, as_json)
    if not quiet:
        click.echo(speeds(generation), err=True)


def chat_ids(tokenizer: Tokenizer, prompt: str | None, system: str | None) -> list[int]:
    """The prompt of one user message, and a system message before it."""
    if prompt is None:
        raise click.UsageError("--chat needs PROMPT")
    content = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "user", "content": content}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return tokenizer.encode_chat(messages)


def stream(generation: Generation, first: str, as_json: bool) -> None:
    """Prints pieces as they come, or everything at the end as JSON."""
    if not as_json:
        click.echo(first, nl=False)
        for piece in generation:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()
        return
    text = first + "".join(generation)
    result = {
        "text": text,
        "prompt_tokens": generation.prompt,
        "tokens": generation.tokens,
        "stopped_by": generation.stopped_by,
        "prefill_seconds": generation.prefill_seconds,
        "decode_seconds": generation.decode_seconds,
        "kernels": str(rml.BUILD),
    }
    click.echo(json.dumps(result, ensure_ascii=False, indent=1))


def speeds(generation: Generation) -> str:
    """One line: how many tokens, how fast, and why it stopped."""
    steps = max(len(generation.tokens) - 1, 0)
    return (
        f"{len(generation.prompt)} prompt tokens, {rate(len(generation.prompt), generation.prefill_seconds)}; "
        f"{len(generation.tokens)} new, {rate(steps, generation.decode_seconds)}; stopped by {generation.stopped_by}"
    )


def rate(count: int, seconds: float) -> str:
    """Tokens per second; a dash where nothing was timed."""
    return f"{count / seconds:.1f} tokens/s" if seconds > 0 and count else "- tokens/s"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs, when stderr is a terminal and there is something to wait for."""
    if not sys.stderr.isatty() or total < 256:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@main.command(cls=SafeCommand)
@model_options
@click.argument("prompt", required=False)
@click.option("--ids", help="The prompt as token ids, like 1,15,7.")
@click.option("--special", is_flag=True, help="Control tokens written in PROMPT count as such.")
@click.option("--all", "all_positions", is_flag=True, help="Every position, not only the last.")
@click.option(
    "--top", type=click.IntRange(1), default=8, show_default=True, help="The largest logits of each position to show."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write all logits: .npy, (positions, vocabulary) float64.",
)
def logits(
    model: Path,
    prompt: str | None,
    ids: str | None,
    threads: int | None,
    dot: str | None,
    cache_dtype: CacheType,
    as_json: bool,
    special: bool,
    all_positions: bool,
    top: int,
    out: Path | None,
) -> None:
    """Show what MODEL expects after PROMPT: the largest logits, of the last position or of all."""
    asked = read_prompt(model, prompt, ids, special)
    if not asked.ids:
        raise InvalidArgument("the prompt is empty: there is no token to continue from")
    loaded = rml.load(model, threads=threads, dot=dot)
    with (
        progress("positions", len(asked.ids)) as advance,
        LogitsFile(out, len(asked.ids) if all_positions else 1, loaded.config.vocab_size) as file,
    ):
        rows = score(
            loaded,
            asked.ids,
            top=top,
            cache_dtype=cache_dtype,
            all_positions=all_positions,
            on_rows=file.write,
            on_tokens=advance,
        )
    pieces = asked.tokenizer or tokenizer_or_none(model)
    if as_json:
        click.echo(
            json.dumps(
                {"tokens": asked.ids, "positions": [row.as_dict() for row in rows], "kernels": str(rml.BUILD)}, indent=1
            )
        )
        return
    click.echo(cli_tables.logits_text(asked.ids, rows, pieces), nl=False)


def tokenizer_or_none(model: Path) -> Tokenizer | None:
    """The model's tokenizer; None for a model that has none, since ids can be shown without."""
    try:
        return open_tokenizer(model)
    except RmlError:
        return None


@main.group(cls=LazyGroup, table=VERIFY_COMMANDS)
def verify() -> None:
    """Compare runs, files and implementations, and find where they part."""
