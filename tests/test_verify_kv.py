"""`rml verify kv`: errors of each cache type by layer, and advice where keys have outliers or do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from golden_cases import case
from planted import Copy

import rml
from rml import cli
from rml.verify_kv import LayerErrors, advice, find_outlier, measure
from rml.verify_text import random_ids

IDS = random_ids(64, 41)
FORMATS = ["qwen2/hf", "qwen2/model.gguf"]


def load(path: Path) -> rml.DecoderLM:
    return rml.load(path, threads=1, dot="exact")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FORMATS, "gemma3/hf", "olmoe/model.gguf", "llama/model.gguf"])
def test_types_rank_as_their_bits_do(name: str) -> None:
    reports, outliers = measure(load(case(name).model), IDS)
    assert not outliers
    limits = {"f32": 1e-7, "f16": 1e-3, "int8": 3e-2}
    assert [report.dtype for report in reports] == list(limits)
    for report in reports:
        limit = limits[report.dtype]
        assert len(report.layers) == rml.load(case(name).model).config.num_layers
        for layer in report.layers:
            for error in (layer.key, layer.value, layer.attention):
                assert limit / 1000 < error < limit, (report.dtype, layer)
        assert len(report.kl) == len(IDS)
        assert -1e-15 < np.mean(report.kl) < limit
    assert advice(reports, outliers) == [
        "f32, f16, int8: nothing to worry about (mean KL divergence at most 0.01 nats)"
    ]


def test_errors_are_each_layers_own() -> None:
    """The second layer of a fed run knows nothing of the first one's rounding; an f64 cache has no error at all."""
    model = load(case("qwen2/hf").model)
    (report,), _ = measure(model, IDS, ["f64"])
    assert report.layers == [LayerErrors(0.0, 0.0, 0.0, 0.0)] * 2
    assert report.kl == [0.0] * len(IDS)
    cache = model.new_cache(41, "int8")
    model.forward(IDS, cache)
    (int8,), _ = measure(model, IDS, ["int8"])
    exact = model.new_cache(41, "f64")
    model.forward(IDS, exact)
    free = np.sqrt(((cache.read(1, 0) - exact.read(1, 0)) ** 2).sum(0) / (exact.read(1, 0) ** 2).sum(0))
    assert int8.layers[1].key < np.sqrt((free**2).mean()), "a free run adds the first layer's errors"


@pytest.mark.parametrize("name", FORMATS)
def test_an_outlier_from_a_bias_is_found(name: str, tmp_path: Path) -> None:
    """One channel at 600 among keys near 1: int8 steps are 4.72, so that everything below 2.36 becomes 0."""
    biased = Copy(name, tmp_path).change("blk.1.attn_k.bias", lambda b: np.where(np.arange(16) == 12, 600.0, b))
    reports, outliers = measure(load(biased.path), IDS)
    (found,) = outliers
    assert (found.layer, found.head) == (1, 1)
    assert found.channel in (0, 4), "rotation moves the bias within its pair, 0 and 4 of head 1"
    assert 590 < found.largest < 650
    assert abs(found.step - found.largest / 127) < 1e-12
    assert found.median < 5
    f32, f16, int8 = reports
    assert int8.layers[1].zeroed > 0.2 > int8.layers[0].zeroed
    assert int8.layers[1].key > 20 * int8.layers[0].key
    assert int8.layers[1].attention > 5 * int8.layers[0].attention
    assert f16.layers[1].key < 1e-3
    assert f32.layers[1].key < 1e-7
    (line,) = [line for line in advice(reports, outliers) if line.startswith("layer 1: ")]
    assert "int8 steps of 4." in line
    assert line.endswith("use f16 or f32")


@pytest.mark.parametrize("name", FORMATS)
def test_what_does_not_fit_is_a_report_and_not_a_crash(name: str, tmp_path: Path) -> None:
    large = Copy(name, tmp_path).change("blk.0.attn_v.bias", lambda b: np.where(np.arange(16) == 3, 131072.0, b))
    reports, outliers = measure(load(large.path), IDS)
    f32, f16, int8 = reports
    assert "layer 0" in f16.problem
    assert "f16 cache holds" in f16.problem
    assert not f16.layers
    assert not f32.problem
    assert not int8.problem
    assert any(line.startswith("f16 cannot be used: layer 0, position") for line in advice(reports, outliers))


def test_find_outlier_looks_at_groups_within_a_head() -> None:
    keys = np.ones((5, 2, 64))
    keys[3, 1, 40] = -100.0
    found = find_outlier(keys, 7)
    assert (found.layer, found.head, found.channel, found.position, found.largest) == (7, 1, 40, 3, 100.0)
    assert found.median == 1.0
    assert found.zeroed == 0.0, "steps of 0.79 keep a 1"
    assert find_outlier(np.zeros((2, 1, 8)), 0).largest == 0.0


def test_the_command_prints_layers_and_advice() -> None:
    model = str(case("qwen2/model.gguf").model)
    arguments = ["verify", "kv", model, "--tokens", "30", "--threads", "1"]
    text = CliRunner().invoke(cli.main, arguments)
    assert text.exit_code == 0, text.output
    assert "exact products" in text.stdout
    assert "nothing to worry about" in text.stdout
    assert [line.split()[0] for line in text.stdout.splitlines() if line.startswith("    ")] == ["0", "1"]
    report = json.loads(CliRunner().invoke(cli.main, [*arguments, "--json"]).stdout)
    assert [each["dtype"] for each in report["types"]] == ["f32", "f16", "int8"]
    assert len(report["types"][2]["layers"]) == 2
    assert report["types"][2]["kl_mean"] > report["types"][1]["kl_mean"]
