"""Where the engine's error begins and grows, layer by layer, on real checkpoints.

    python -m tools.real_layers                   every checkpoint in $RML_MODELS_DIR (default .models/) below 1 GB
    python -m tools.real_layers NAME ...          only these, whatever their size

Runs the short prompt of fixtures/real/prompt.txt through the reference and, in each of check_real_models' ways, through
the engine; compares every named activation, every position, every logit. Judges nothing: that is check_real_models'
work. Writes real_layers.json to reports/runs/, of which `python -m tools.html_report real_models` makes pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
import rml
from rml.tokenizer_files import open_tokenizer
from tools import report
from tools.checkpoints import Checkpoint, find, models_dir
from tools.layer_errors import histogram, histogram_row, layers_row, positions_row, tap_errors
from tools.progress import Progress
from tools.real_goldens import SHORT, prompt_text
from tools.real_limits import LIMITS

LARGEST = 1 << 30  # bytes of a file that is run without being named

Array = npt.NDArray[np.float64]


def reference_taps(model: Path, ids: list[int], name: str) -> dict[str, Array]:
    """All activations of the reference, with progress."""
    decoder, taps = reference.load(model), dict[str, Array]()
    with Progress(f"{name}, reference", decoder.config.layers + 1, "layers") as progress:

        def keep(tap: str, value: Array) -> None:
            taps[tap] = value
            if tap.endswith(".output") or tap == "logits":
                progress.advance()

        decoder.forward(ids, keep)
    return taps


def rows_of(checkpoint: Checkpoint, model: Path) -> Iterator[dict[str, Any]]:
    """The rows of one checkpoint: layers, positions and a histogram for every way of running it."""
    ids = open_tokenizer(model).encode(prompt_text(SHORT))
    taps = reference_taps(model, ids, checkpoint.name)
    for limit in LIMITS:
        about = {"checkpoint": checkpoint.name, "way": limit.name}
        loaded = rml.load(model, dot=limit.dot)
        with Progress(f"{checkpoint.name}, {limit.name}", 2, "runs") as progress:
            got = loaded.forward(ids, loaded.new_cache(len(ids), limit.cache), all_logits=True)
            progress.advance()
            watch = tap_errors(loaded, ids, limit.cache, taps)
            progress.advance()
        yield layers_row(watch.errors(), **about)
        yield positions_row(got, taps["logits"], **about)
        yield histogram_row(histogram(got, taps["logits"]), **about)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 1 if there was nothing to run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoints; none = all that are present and small")
    parser.add_argument("--report-dir", type=Path, default=report.RUNS, help="where real_layers.json goes")
    options = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    for checkpoint in find(options.names):
        model = models_dir() / checkpoint.path
        if not model.exists():
            print(f"{checkpoint.name}: skipped, {model} is missing ({checkpoint.origin})")
        elif not options.names and (model.is_dir() or model.stat().st_size > LARGEST):
            print(f"{checkpoint.name}: skipped, large; name it to run it")
        else:
            rows += rows_of(checkpoint, model)
            print(f"{checkpoint.name}: done")
    if rows:
        report.write_json(options.report_dir / "real_layers.json", report.stamp() | {"report": "real_layers"}, rows)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
