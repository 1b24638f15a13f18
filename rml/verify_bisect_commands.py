"""`rml verify bisect` and `rml verify taps`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import rml
from rml.cli import SafeCommand, progress, tokenizer_or_none
from rml.cli_tables import table_text
from rml.kv_cache import DTYPES, CacheType
from rml.tokenizer import Tokenizer
from rml.verify_bisect import Bisection, bisect
from rml.verify_commands import (
    chosen_ids,
    dot_choice,
    json_option,
    model_argument,
    prompt_of,
    show,
    text_options,
    threads_option,
)
from rml.verify_sides import DumpSide, EngineSide, Side, dump
from rml.verify_text import Scored, token_text

TAP_TOKENS = 64
SHOWN = 12  # steps in the table


def open_side(path: Path, dot: str, cache_dtype: CacheType, threads: int | None) -> Side:
    """A dump, or an engine run of a model."""
    if path.is_file() and zipfile.is_zipfile(path):
        return DumpSide(path)
    model = rml.load(path, threads=threads, dot=dot)
    return EngineSide(model, f"{path} ({model.dot} products, cache {cache_dtype})", cache_dtype)


@click.command(cls=SafeCommand)
@model_argument
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The .npz file to write.")
@text_options
@click.option("--dot", type=dot_choice, default="exact", show_default=True, help="Product of quantised weights.")
@click.option("--cache", "cache_dtype", type=click.Choice(DTYPES), default="f64", show_default=True, help="KV cache.")
@threads_option
@json_option
def taps(
    model: Path,
    out: Path,
    text: Path | None,
    ids: str | None,
    count: int | None,
    bos: bool | None,
    dot: str,
    cache_dtype: CacheType,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write every named activation of a run of MODEL to an .npz file, for `rml verify bisect`."""
    side = open_side(model, dot, cache_dtype, threads)
    assert side.config is not None
    scored = chosen_ids(model, side.config.vocab_size, text, ids, count or TAP_TOKENS, bos)
    tokens = prompt_of(scored)
    names = dump(side, tokens, out)
    report = {"file": str(out), "bytes": out.stat().st_size, "tokens": tokens, "names": names}
    show(report, f"{out}: {len(names)} activations of {len(tokens)} tokens, {out.stat().st_size} bytes\n", as_json)


@click.command("bisect", cls=SafeCommand)
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@text_options
@click.option("--tolerance", type=click.FloatRange(0), help="The error of one step that is no finding.")
@click.option("--dot-a", type=dot_choice, default="exact", show_default=True, help="Product of A's quantised weights.")
@click.option("--dot-b", type=dot_choice, default="exact", show_default=True, help="Product of B's quantised weights.")
@click.option("--cache-a", type=click.Choice(DTYPES), default="f64", show_default=True, help="Type of A's KV cache.")
@click.option("--cache-b", type=click.Choice(DTYPES), default="f64", show_default=True, help="Type of B's KV cache.")
@click.option("--all", "every", is_flag=True, help="Show every step, not only those that add most.")
@threads_option
@json_option
@click.pass_context
def bisect_command(
    ctx: click.Context,
    a: Path,
    b: Path,
    text: Path | None,
    ids: str | None,
    count: int | None,
    bos: bool | None,
    tolerance: float | None,
    dot_a: str,
    dot_b: str,
    cache_a: CacheType,
    cache_b: CacheType,
    every: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Find the first step of the forward pass at which B parts from A, and what is wrong with it.

    A and B are models (GGUF files, Hugging Face directories) or dumps of activations (.npz, by `rml verify taps`, by
    the reference or by another program). A dump brings its own tokens. Exit code 1 if a step is over the tolerance.
    """
    sides = open_side(a, dot_a, cache_a, threads), open_side(b, dot_b, cache_b, threads)
    models = [path for path, side in zip((a, b), sides, strict=True) if isinstance(side, EngineSide)]
    tokenizer = next((found for found in map(tokenizer_or_none, models) if found), None)
    scored: Scored | None = None
    if sides[0].config and sides[1].config:
        vocab = min(sides[0].config.vocab_size, sides[1].config.vocab_size)
        model = next((path for path in models if tokenizer_or_none(path)), a)
        scored = chosen_ids(model, vocab, text, ids, count or TAP_TOKENS, bos)
    tokens = None if scored is None else prompt_of(scored)
    total = len(tokens or next((side.tokens for side in sides if side.tokens), []))
    with progress("tokens", total) as advance:
        found = bisect(sides[0], sides[1], tokens, tolerance, advance)
    source = "of the dump" if scored is None else scored.source
    report = {"a": sides[0].name, "b": sides[1].name, "kernels": str(rml.BUILD), "source": source} | found.as_dict()
    show(report, bisection_text(report, found, tokenizer, every), as_json)
    ctx.exit(1 if found.over else 0)


def bisection_text(
    report: Mapping[str, Any], found: Bisection, tokenizer: Tokenizer | None, every: bool = False
) -> str:
    """Sides, finding, the steps that add most."""
    head = (
        f"A: {report['a']}\nB: {report['b']}\n{len(found.tokens)} tokens ({report['source']}); tolerance "
        f"{found.tolerance:g} ({found.why})\n{report['kernels']}\n"
    )
    if found.missing:
        head += f"only on one side: {', '.join(found.missing[:6])}{' ...' if len(found.missing) > 6 else ''}\n"
    return "\n".join([head, finding_text(found, tokenizer), steps_text(found, every)])


def finding_text(found: Bisection, tokenizer: Tokenizer | None) -> str:
    """What was found, or that nothing was."""
    first, last = found.first, found.steps[-1]
    if first is None:
        return f"No step is over the tolerance; at {last.name} the errors have added up to {last.total:.2g}\n"
    step = first.step
    what = "so far (neither side can be run on the other's activations)"
    if step.own is not None:
        what = (
            f"added by this step alone ({found.fed} run on the other's activations); {step.total:.3g} with all before"
        )
    place = f"channel {first.channel}" if first.head is None else f"head {first.head}, channel {first.channel}"
    lines = [
        f"First step over the tolerance: {step.name}",
        f"  error: {step.error:.3g} {what}",
        f"  worst: position {step.position}, token {token_text(tokenizer, first.token)}, {place}: A "
        f"{first.value_a:.8g}, B {first.value_b:.8g}",
        f"  positions over the tolerance: {first.positions[0]} of {first.positions[1]}",
        *(f"  hint: {line}" for line in first.hints),
        *(f"  files: {line}" for line in first.evidence),
    ]
    others = [each.name for each in found.over[1:]]
    if others and step.own is not None:
        lines.append(f"  {len(others)} more over the tolerance on their own: {', '.join(others[:8])}")
    return "\n".join(lines) + "\n"


def steps_text(found: Bisection, every: bool) -> str:
    """A line per step: the error that it adds and the sum so far."""
    shown = found.steps
    if not every and len(shown) > SHOWN:
        chosen = {each.name for each in sorted(found.steps, key=lambda each: -each.error)[:SHOWN]}
        shown = [each for each in found.steps if each.name in chosen | {found.steps[-1].name}]
    rows = [
        (
            "*" if not s.error <= found.tolerance else "",
            s.name,
            "" if s.own is None else f"{s.own:.2e}",
            f"{s.total:.2e}",
        )
        for s in shown
    ]
    title = f"Errors of {len(shown)} of {len(found.steps)} steps"
    return table_text(title, ["", "step", "adds", "so far"], rows, ["adds", "so far"])
