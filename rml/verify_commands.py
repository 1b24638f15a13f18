"""The commands behind `rml verify`: options, progress on stderr, results as tables or JSON on stdout.

Exit codes as for every command of rml; 1 also means that a verification failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import rml
from rml import verify_determinism, verify_tables
from rml.cli import SafeCommand, progress
from rml.kv_cache import DTYPES, CacheType
from rml.verify_text import Scored, parse_ids, scored_ids
from rml.weight_source import open_weights

Command = TypeVar("Command", bound=Callable[..., Any])


def stacked(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


model_argument = click.argument("model", type=click.Path(exists=True, path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
threads_option = click.option("--threads", type=click.IntRange(1), help="Threads; every available core if not given.")
cache_option = click.option(
    "--cache", "cache_dtype", type=click.Choice(DTYPES), default="f32", show_default=True, help="Type of the KV cache."
)
dot_choice = click.Choice(["int8", "exact"])
text_options = stacked(
    click.option(
        "--text",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="UTF-8 text; a built-in one if not given.",
    ),
    click.option("--ids", help="Token ids instead of a text, like 1,15,7."),
    click.option("--tokens", "count", type=click.IntRange(1), help="How many tokens of the text."),
    click.option("--bos/--no-bos", default=None, help="Begin with BOS or not; as the model's file says if not given."),
)


def chosen_ids(model: Path, vocab: int, text: Path | None, ids: str | None, count: int, bos: bool | None) -> Scored:
    """The token ids that the options ask for."""
    if ids is None:
        return scored_ids(model, vocab, count, text, bos)
    if text is not None:
        raise click.UsageError("give either --text or --ids")
    return Scored(parse_ids(ids), "ids of the command line", None, None)


def prompt_of(scored: Scored) -> list[int]:
    """The ids as one prompt, BOS in front where it is wanted."""
    return scored.ids if scored.bos is None or scored.ids[:1] == [scored.bos] else [scored.bos, *scored.ids]


def show(report: dict[str, Any], text: str, as_json: bool) -> None:
    """Prints a result in the form that was asked for."""
    click.echo(json.dumps(report, indent=1, ensure_ascii=False) if as_json else text, nl=as_json)


@click.command(cls=SafeCommand)
@model_argument
@text_options
@cache_option
@click.option("--threads", default="1,2,3,4", show_default=True, help="The numbers of threads to try.")
@click.option("--dot", type=dot_choice, help="Only this product; both if not given.")
@json_option
@click.pass_context
def determinism(
    ctx: click.Context,
    model: Path,
    text: Path | None,
    ids: str | None,
    count: int | None,
    bos: bool | None,
    cache_dtype: CacheType,
    threads: str,
    dot: verify_determinism.Dot | None,
    as_json: bool,
) -> None:
    """Run one prompt in every way and hash the logits: threads, ways of cutting it into calls, new and used caches.

    Prints a matrix of hashes for int8 and for exact products. Exit code 1 if a matrix holds two different ones.
    """
    vocab = open_weights(model).config.vocab_size
    scored = chosen_ids(model, vocab, text, ids, count or verify_determinism.prompt_length(vocab), bos)
    tokens, ranks = prompt_of(scored), parse_ids(threads)
    dots = (dot,) if dot else verify_determinism.useful_dots(model)
    runs = len(dots) * len(ranks) * len(verify_determinism.FEEDINGS) * len(verify_determinism.CACHES)
    with progress("runs", runs * len(tokens)) as advance:
        found = verify_determinism.determinism(
            model, tokens, ranks, dots, cache_dtype, on_cell=lambda _: advance(len(tokens))
        )
    good = all(len(matrix.hashes) == 1 for matrix in found)
    report = {
        "model": str(model),
        "tokens": tokens,
        "source": scored.source,
        "cache": cache_dtype,
        "kernels": str(rml.BUILD),
        "deterministic": good,
        "products": [matrix.as_dict() for matrix in found],
    }
    show(report, verify_tables.determinism_text(report, found), as_json)
    ctx.exit(0 if good else 1)
