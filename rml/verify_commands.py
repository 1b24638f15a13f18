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
from rml import verify_determinism, verify_kld, verify_kv, verify_tables
from rml.cli import SafeCommand, progress, tokenizer_or_none
from rml.errors import InvalidArgument
from rml.kv_cache import DTYPES, CacheType
from rml.verify_kld import EngineSource, RecordedSource, Scoring, Source
from rml.verify_record import MAGIC
from rml.verify_text import Scored, parse_ids, scored_ids
from rml.weight_source import WeightSource, open_weights

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


class Models:
    """Opens the runs of one command; two runs of the same file share its mapping."""

    def __init__(self, threads: int | None) -> None:
        self.threads = threads
        self.opened: dict[Path, WeightSource] = {}

    def source(self, path: Path, dot: str | None, cache_dtype: CacheType) -> Source:
        """A recorded run, or an engine run of a model."""
        if is_record(path):
            return RecordedSource(path)
        place = path.resolve()
        if place not in self.opened:
            self.opened[place] = open_weights(path)
        model = rml.DecoderLM(self.opened[place], self.threads, dot)
        return EngineSource(model, f"{path} ({model.dot} products, cache {cache_dtype})", cache_dtype)


def is_record(path: Path) -> bool:
    """Whether a file is a recorded run."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


scoring_options = stacked(
    text_options,
    click.option(
        "--window", type=click.IntRange(2), default=verify_kld.WINDOW, show_default=True, help="Tokens of one run."
    ),
    click.option(
        "--skip", type=click.IntRange(0), default=0, show_default=True, help="Positions of each window not to score."
    ),
)
TOKENS = 2000
KV_TOKENS = 128


def scoring_of(model: Path, vocab: int, options: dict[str, Any]) -> tuple[Scoring, Scored]:
    """The protocol that the options of `scoring_options` ask for."""
    count = options["count"] or TOKENS
    scored = chosen_ids(model, vocab, options["text"], options["ids"], count, options["bos"])
    tokens = tuple(scored.ids)
    wrong = next((token for token in tokens if not 0 <= token < vocab), None)
    if wrong is not None:
        raise InvalidArgument(f"token id {wrong} is outside the vocabulary of {vocab}")
    return Scoring(tokens, options["window"], options["skip"], scored.bos, scored.source), scored


@click.command(cls=SafeCommand)
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@scoring_options
@click.option("--dot-a", type=dot_choice, help="Product of A's quantised weights; int8 if not given.")
@click.option("--dot-b", type=dot_choice, help="Product of B's quantised weights; int8 if not given.")
@click.option("--cache-a", type=click.Choice(DTYPES), default="f32", show_default=True, help="Type of A's KV cache.")
@click.option("--cache-b", type=click.Choice(DTYPES), default="f32", show_default=True, help="Type of B's KV cache.")
@click.option("--worst", type=click.IntRange(0), default=5, show_default=True, help="How many of the worst to show.")
@threads_option
@json_option
def kld(
    a: Path,
    b: Path,
    dot_a: str | None,
    dot_b: str | None,
    cache_a: CacheType,
    cache_b: CacheType,
    worst: int,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """How far B's expectations are from A's, which is believed: KL divergence, agreement, perplexity.

    A and B are models (GGUF files, Hugging Face directories) or runs recorded with `rml verify record`; a recorded run
    brings its own text and windows. Runs a position at a time: memory does not grow with the text.
    """
    models = Models(threads)
    sources = [models.source(a, dot_a, cache_a), models.source(b, dot_b, cache_b)]
    recorded = next((source for source in sources if isinstance(source, RecordedSource)), None)
    model = next((path for path in (a, b) if not is_record(path)), None)
    if recorded is None:
        assert model is not None
        scoring, scored = scoring_of(model, sources[0].vocab, options)
        tokenizer = scored.tokenizer
    else:
        scoring, tokenizer = recorded.scoring, None if model is None else tokenizer_or_none(model)
    with progress("positions", scoring.positions) as advance:
        found = verify_kld.compare(sources[0], sources[1], scoring, advance)
    report = verify_kld.report(sources[0], sources[1], scoring, found, worst, tokenizer)
    show(report, verify_tables.kld_text(report, tokenizer), as_json)


@click.command(cls=SafeCommand)
@model_argument
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The .kld file to write.")
@scoring_options
@click.option(
    "--tail",
    type=click.FloatRange(0, 1),
    default=verify_kld.TAIL,
    show_default=True,
    help="Probability that a position may leave out; the bound on the error shrinks with it. --top caps the file.",
)
@click.option(
    "--top", type=click.IntRange(1), default=verify_kld.TOP, show_default=True, help="The most tokens of a position."
)
@click.option("--dot", type=dot_choice, help="Product of quantised weights; int8 if not given.")
@cache_option
@threads_option
@json_option
def record(
    model: Path,
    out: Path,
    tail: float,
    top: int,
    dot: str | None,
    cache_dtype: CacheType,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Record MODEL's expectations over a text in a small file, to compare other runs against with `rml verify kld`."""
    source = Models(threads).source(model, dot, cache_dtype)
    scoring, _ = scoring_of(model, source.vocab, options)
    with progress("positions", scoring.positions) as advance:
        kept = verify_kld.record(source, scoring, out, tail, top, advance)
    report = {"file": str(out), "bytes": out.stat().st_size, "positions": scoring.positions, "tokens_kept": kept}
    mean = kept / scoring.positions
    show(
        report,
        f"{out}: {scoring.positions} positions, {mean:.0f} tokens of each, {out.stat().st_size} bytes\n",
        as_json,
    )


@click.command(cls=SafeCommand)
@model_argument
@text_options
@click.option(
    "--dot",
    type=dot_choice,
    default="exact",
    show_default=True,
    help="Product of quantised weights; exact shows the cache alone.",
)
@threads_option
@json_option
def kv(
    model: Path,
    text: Path | None,
    ids: str | None,
    count: int | None,
    bos: bool | None,
    dot: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """What f32, f16 and int8 KV caches cost against f64: errors of each layer, KL divergence, advice on outliers."""
    loaded = rml.load(model, threads=threads, dot=dot)
    scored = chosen_ids(model, loaded.config.vocab_size, text, ids, count or KV_TOKENS, bos)
    tokens = prompt_of(scored)
    with progress("tokens", len(tokens)) as advance:
        reports, outliers = verify_kv.measure(loaded, tokens, on_tokens=advance)
    report = {
        "model": str(model),
        "dot": loaded.dot,
        "kernels": str(rml.BUILD),
        "source": scored.source,
        "tokens": tokens,
        "types": [each.as_dict() for each in reports],
        "outliers": [vars(each) for each in outliers],
        "advice": verify_kv.advice(reports, outliers),
    }
    show(report, verify_tables.kv_text(report), as_json)
