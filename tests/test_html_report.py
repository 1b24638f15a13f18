"""The HTML reports: what is in them, that they stand alone, and how they look in a real browser, narrow and wide."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import html_runs
import pytest
from browser import Browser, find_browser

from tools import check_goldens, html_goldens, html_report, html_svg, report
from tools.html_layers import walk
from tools.html_page import Word

pytestmark = pytest.mark.slow  # the runs are made by the engine; how it is compiled does not show in a page

PAGES = ("goldens", "real_models", "bench-1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and a page of every kind."""
    folder = tmp_path_factory.mktemp("runs")
    assert check_goldens.main(["qwen3_moe", "llama-blocks", "gemma3/", "--report-dir", str(folder)]) == 0
    html_runs.write_runs(folder)
    assert html_report.main(["--report-dir", str(folder)]) == 0
    return folder


# ---- what is in them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_stands_alone(runs: Path, name: str) -> None:
    text = (runs / f"{name}.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)[^"']*|url\(|@import|https?://""", text)
    assert 5_000 < len(text) < 400_000
    assert report.stamp()["commit"] in text


def test_goldens_page_names_every_file_and_its_errors(runs: Path) -> None:
    text = (runs / "goldens.html").read_text(encoding="utf-8")
    rows = json.loads((runs / "goldens.json").read_text(encoding="utf-8"))["rows"]
    cases = {row["case"] for row in rows if row["kind"] == "logits"}
    assert len(cases) == 8
    for row in rows:
        if row["kind"] == "logits":
            assert row["case"] in text
            assert f"{row['case']}: {html_svg.short(row['worst'])}" in text
    assert "16 of 16 comparisons passed" in text


def test_real_models_page_escapes_and_counts(runs: Path) -> None:
    text = (runs / "real_models.html").read_text(encoding="utf-8")
    assert "1 of 3 checks failed" in text
    assert "&lt;b&gt;no&lt;/b&gt; &amp; on" in text
    assert text.count("<figure") == 6
    assert 'data-row="attn_out"' in text


def test_bench_page_has_no_speed_for_wrong_logits_and_says_what_to_doubt(runs: Path) -> None:
    text = (runs / "bench-1.html").read_text(encoding="utf-8")
    assert "its figures mean nothing" in text
    assert "50% of the machine was in use" in text
    assert "10 of 10 correctness stamps passed" in text
    assert "wrong logits: token 7" in text
    assert "rml: 900 tokens/s" in text


def test_what_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / "b.json").write_text('{"stamp": {"commit": "x"}, "rows": [{"colour": 1}]}')
    assert html_report.main([str(tmp_path / name) for name in ("a.json", "b.json", "c.json")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "not a report" in said[0]
    assert "no page for a report of this kind" in said[1]
    assert html_report.main(["--report-dir", str(tmp_path / "empty")]) == 1
    assert "nox -s goldens" in capsys.readouterr().err


def test_a_failed_comparison_is_seen_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = [check_goldens.Way("exact, f32 cache", "exact", "f32", 1e-12)]
    monkeypatch.setattr(check_goldens, "WAYS", strict)
    assert check_goldens.main(["llama-tied", "--report-dir", str(tmp_path)]) == 1
    head, rows = html_report.read(tmp_path / "goldens.json")
    page = html_goldens.page(head, rows, "goldens.json")
    assert page.verdict == Word("✗ 3 of 3 comparisons failed", "bad")
    assert page.sections[-1].tables[0].open


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_figures_are_short() -> None:
    wanted = {1e-9: "1e-9", 3.14e-14: "3.1e-14", 0.0: "0", 0.0222: "0.0222", 17.55: "17.6", 1284.3: "1284"}
    assert {value: html_svg.short(value) for value in wanted} == wanted
    assert html_svg.short(None) == "-"
    assert html_svg.short(math.inf) == "inf"


def test_axes_put_values_where_they_belong() -> None:
    axis = html_svg.Decades(-16, 0, 100, 260)
    assert [axis.at(value) for value in (1e-16, 1e-8, 1.0, 0.0, 1e9)] == pytest.approx([100, 180, 260, 100, 260])
    assert axis.at(math.nan) == 260
    assert [name for _, name in axis.ticks()] == ["1e-15", "1e-12", "1e-9", "1e-6", "1e-3", "1"]
    plain = html_svg.Linear(0, 90, 0, 100)
    assert [name for _, name in plain.ticks()] == ["0", "20", "40", "60", "80"]


def test_shades_follow_the_errors_and_nothing_breaks_them() -> None:
    heat = html_svg.Heat.of([1e-16, *[1e-9] * 9, 1e-7, 0.0, None, math.nan, math.inf])
    assert [heat.css(value) for value in (0.0, 1e-16, 1e-9, 1e-7, math.nan, math.inf)] == [
        "h0",
        "h0",
        "h0",
        "h11",
        "h11",
        "h11",
    ]
    assert heat.ends == ("≤ 1e-9", "1e-7")
    assert html_svg.Heat.of([2e-8]).css(2e-8) in ("h5", "h6")
    assert html_svg.Heat.of([]).css(0.0) == "h0"


def test_empty_pictures_are_pictures() -> None:
    assert "</svg>" in html_svg.lines([], "", "")
    assert "</svg>" in html_svg.lines([html_svg.Series("one", 0, [5.0])], "", "", decades=False)
    assert "</svg>" in html_svg.bars([("none", [html_svg.Bar("a", 0, None, note="no")])], "", "")
    assert "</svg>" in html_svg.ridges([html_svg.Ridge("none", 0, [0, 0])], -2, 1, "")
    assert "</svg>" in html_svg.strips([html_svg.Strip("none", 0, [])], "", "")


def test_activations_keep_the_order_of_the_forward_pass() -> None:
    dense = {"taps": ["embed", "blk.0.q", "blk.0.output", "final_norm", "logits"], "relative": [0, 1, 2, 3, 4]}
    experts = {"taps": ["blk.0.router_probs", "blk.0.ffn_out", "logits"], "relative": [7, "nan", "inf"]}
    found = walk([dense, experts])
    order = ["embed", "blk.0.q", "blk.0.router_probs", "blk.0.ffn_out", "blk.0.output", "final_norm", "logits"]
    assert list(found) == order
    assert found["logits"] == math.inf


# ---- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; without one, these tests say so and are skipped."""
    program = find_browser()
    if program is None:
        pytest.skip("NO BROWSER: the pages' looks are not tested. Install chromium, or set $RML_BROWSER to one")
    with Browser(program) as page:
        yield page


OVERFLOW = """[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll, svg, #tip') &&
    e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.tagName + ' ' + e.textContent.slice(0, 40))"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('svg')].filter((s) => s.checkVisibility()).map((s) =>
    11 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))"""
OPEN_ALL = "document.querySelectorAll('details').forEach((d) => { d.open = true })"
CLIPPED = """[...document.querySelectorAll('svg')].flatMap((s) => [...s.querySelectorAll('text')].filter((t) => {
    const a = t.getBBox(), b = s.viewBox.baseVal; return a.x < -0.5 || a.x + a.width > b.width + 0.5 || a.y < -0.5 ||
    a.y + a.height > b.height + 0.5}).map((t) => t.textContent))"""
COLOURS = """['body', '.quiet', '.verdict', '.legend', '.tile span', 'summary', 'th', 'footer'].map((name) => {
    const e = document.querySelector(name); let back = e;
    while (back && getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
    return [name, getComputedStyle(e).color, getComputedStyle(back).backgroundColor]})"""


def luminance(colour: str) -> float:
    """WCAG's relative luminance of rgb(r, g, b)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_fits_its_window_without_a_word_on_the_console(runs: Path, browser: Browser, name: str, width: int) -> None:
    page = runs / f"{name}.html"
    browser.open(page, width, 800)
    for _ in range(2):  # as it opens, then with everything unfolded
        size = browser.evaluate("[document.documentElement.scrollWidth, innerWidth, document.body.scrollWidth]")
        assert size[0] <= size[1] == width, size
        assert size[2] <= width
        assert browser.evaluate(OVERFLOW) == []
        assert browser.evaluate(CLIPPED) == []
        assert browser.evaluate(SMALLEST_TEXT) >= (8.5 if width == 320 else 9.9)
        browser.evaluate(OPEN_ALL)
    assert browser.problems == []
    assert browser.requests == [page.resolve().as_uri()]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_can_be_read_in_both_themes(runs: Path, browser: Browser, name: str, dark: bool) -> None:
    browser.open(runs / f"{name}.html", 360, 740, dark)
    found: list[list[str]] = browser.evaluate(COLOURS)
    for what, ink, paper in found:
        assert (luminance(paper) < 0.1) == dark, what
        assert contrast(ink, paper) >= 4.5, (what, ink, paper)


@pytest.mark.parametrize(("name", "mark"), [("goldens", "circle[data-tip]"), ("real_models", "rect[data-v]")])
def test_a_touched_mark_says_what_it_is(runs: Path, browser: Browser, name: str, mark: str) -> None:
    browser.open(runs / f"{name}.html", 360, 740)
    script = f"""(async () => {{ const e = document.querySelector('{mark}'); e.scrollIntoView({{block: 'center'}});
        for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);  // the scroll's own events are over
        const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] }})()"""
    browser.tap(*browser.evaluate(script))
    shown = """(() => { const t = document.getElementById('tip'), b = t.getBoundingClientRect();
        return [t.className, t.textContent, b.left >= 0 && b.right <= innerWidth && b.top >= 0] })()"""
    css, words, inside = browser.evaluate(shown)
    assert (css, inside) == ("shown", True)
    assert re.fullmatch(r"[\w./-]+: [\d.e-]+|attn_norm, layer 0: [\d.e-]+", words)
    browser.tap(2, 2)
    assert browser.evaluate("document.getElementById('tip').className") == ""


def test_a_deep_model_scrolls_inside_its_card(runs: Path, browser: Browser, tmp_path: Path) -> None:
    """62 layers at 7 pixels are wider than a phone; errors that are no numbers are drawn too."""
    report.write_json(tmp_path / "real_models.json", report.stamp(), html_runs.real_rows())
    report.write_json(tmp_path / "real_layers.json", report.stamp(), html_runs.deep_rows(62))
    assert html_report.main(["real_models", "--report-dir", str(tmp_path)]) == 0
    browser.open(tmp_path / "real_models.html", 360, 740)
    assert browser.evaluate("document.documentElement.scrollWidth") == 360
    found: Any = browser.evaluate("(() => { const s = document.querySelector('figure .scroll'); "
                                  "return [s.scrollWidth > s.clientWidth + 100, s.clientWidth < 340] })()")  # fmt: skip
    assert found == [True, True]
    assert browser.problems == []
