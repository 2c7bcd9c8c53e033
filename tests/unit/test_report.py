"""Reports in every format, against golden files and against the formats' own rules."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pandas
import pytest
from rich.console import Console, RenderableType

from oelm_core.compare import Comparison, compare_runs
from oelm_core.compare.comparison import BandPoint, Finding
from oelm_core.config.catalogue import SHIPPED, Catalogue, load_folders
from oelm_core.errors import BadInput
from oelm_core.method.facts import Count
from oelm_core.published.audit import audit_published
from oelm_core.report import FORMATS, ExportFormat, format_named, format_of_file, render, render_audit
from oelm_core.report.document import ChartLine, ReportChart, audit_report
from oelm_core.report.latex import escape
from oelm_core.report.svg import WIDTH, svg_chart, ticks
from oelm_core.report.terminal import findings_table, terminal_report
from oelm_core.report.translations import Translations
from oelm_tui import cli
from tests import needs
from tests.golden.demo import ARMS, demo_comparison
from tests.run_factory import write_run

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """The day of a run is the reader's."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Comparison:
    return demo_comparison(tmp_path_factory.mktemp("runs"))


def on_a_terminal(shown: RenderableType, width: int = 100) -> str:
    console = Console(width=width, no_color=True, highlight=False, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text(styles=False)


def written(comparison: Comparison, layout: str, lang: str = "en") -> str:
    """In one of the formats, or as the terminal shows it."""
    return on_a_terminal(terminal_report(comparison, lang)) if layout == "text" else render(comparison, layout, lang)


def to_ten_digits(text: str) -> str:
    """Its long numbers without the digits in which one processor's logarithm differs from another's."""
    return re.sub(r"\d+\.\d{10,}(e[-+]\d+)?", lambda number: f"{float(number[0]):.10g}", text)


@pytest.mark.parametrize("layout", ["markdown", "latex", "html", "csv", "text"])
def test_the_demo_study_is_reported_as_in_its_golden_file(comparison, layout):
    """After a wanted change: OELM_UPDATE_GOLDEN=1 pytest tests/unit/test_report.py, then look at the difference."""
    path = GOLDEN / f"demo.{'txt' if layout == 'text' else FORMATS[layout].ending}"
    text = written(comparison, layout)
    if os.environ.get("OELM_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert to_ten_digits(text) == to_ten_digits(path.read_text(encoding="utf-8"))


def test_a_study_report_has_all_its_parts_in_order(comparison):
    headings = re.findall(r"^## (.*)$", render(comparison, "markdown"), re.M)
    tests = ["The method (over seeds)", "Two trained models (says nothing about the method)"]
    wanted = ["Verdict", "Fairness", "Results", "Recipe", "Curves", *tests, "How to reproduce"]
    assert [heading for heading in headings if heading in wanted] == wanted
    assert headings[:3] == ["Verdict", "Fairness", "Results"]


def test_markdown_tables_have_as_many_cells_in_every_row(comparison):
    blocks = re.findall(r"(?:^\|.*\|\n)+", render(comparison, "markdown"), re.M)
    assert len(blocks) > 8
    for block in blocks:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block


def test_markdown_shows_names_with_stars_and_bars_as_they_are():
    from oelm_core.report.cells import ReportTable
    from oelm_core.report.markdown import markdown_table

    text = markdown_table(ReportTable("t", ("a",), "l", (("x|y_z*<b>",),)))
    assert r"x\|y\_z\*\<b\>" in text


def test_headings_can_be_chinese_and_no_other_language(comparison):
    for layout in ("markdown", "html", "latex", "text", "csv"):
        assert re.search("[\u4e00-\u9fff]", written(comparison, layout, "zh")), layout
        assert not re.search("[\u4e00-\u9fff]", re.sub("Noto.*", "", written(comparison, layout))), layout
    assert "## 公平性审查" in render(comparison, "markdown", "zh")
    with pytest.raises(BadInput, match="--lang fr"):
        render(comparison, "markdown", "fr")


def test_an_unknown_format_is_refused_with_the_known_ones(comparison):
    with pytest.raises(BadInput, match="markdown, csv, json, latex, html, svg, parquet"):
        render(comparison, "pdf")
    assert tuple(FORMATS) == ("markdown", "csv", "json", "latex", "html", "svg", "parquet")


def test_a_new_format_is_a_renderer_and_a_line_in_the_registry(tmp_path, monkeypatch):
    (tmp_path / "shouted.py").write_text("def render(report):\n    return report.title.upper()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(FORMATS, "shout", ExportFormat("shout", "loud", "Shouted", "shouted:render"))
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    demo_comparison(tmp_path / "home" / "runs")
    file = tmp_path / "demo.loud"
    monkeypatch.setattr("sys.argv", ["oelm", "export", "demo", "--format", "shout", "-o", str(file)])
    cli.main()
    assert file.read_text() == "DEMO, TINY BERT AND TINY GPT"
    assert format_of_file("any.LOUD").render(audit_report([])) == "PUBLISHED FIGURES"
    with pytest.raises(BadInput, match="svg, parquet, shout"):
        format_named("whisper")


def test_csv_has_one_row_an_arm_with_the_numbers_of_the_comparison(comparison):
    rows = list(csv.DictReader(io.StringIO(render(comparison, "csv"))))
    assert len(rows) == 6
    by_arm = {row["arm"]: row for row in rows}
    pair = comparison.groups[0].pair("demo-bert-oelm")
    assert float(by_arm["demo-bert-oelm"]["delta"]) == pytest.approx(pair.delta)
    assert by_arm["demo-bert-baseline"]["delta"] == ""
    assert by_arm["demo-bert-baseline"]["published"] == "0.9312"


def test_json_is_the_comparison(comparison):
    content = json.loads(render(comparison, "json"))
    assert content["schema"] == 2
    assert content["study"]["id"] == "demo"
    assert [group["dataset"] for group in content["groups"]] == ["reviews", "stories"]


class _Structure(html.parser.HTMLParser):
    VOID = {"meta", "br", "line", "circle", "polyline", "polygon"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.urls: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.urls += [value for name, value in attrs if name in ("src", "href") and value and not value.startswith("#")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_html_is_well_formed_and_asks_nothing_of_the_network(comparison):
    text = render(comparison, "html")
    parser = _Structure()
    parser.feed(text)
    assert parser.open == []
    assert parser.urls == []
    assert "http" not in text
    assert "@import" not in text


def test_html_keeps_hostile_names_harmless(tmp_path):
    finding = Finding("note", "<script>x</script>", ("a",), "<img src=x onerror=alert(1)>", "`rm`", "s")
    page = render_audit([finding], "html")
    assert "<script>x" not in page
    assert "<img" not in page


def test_html_curves_hold_their_values_for_hovering(comparison):
    import html as entities

    text = render(comparison, "html")
    figures = [json.loads(entities.unescape(data)) for data in re.findall(r'data-lines="([^"]*)"', text)]
    assert len(figures) == 6  # metric, validation loss and training loss of both families
    one, other = (dict(curve.points) for curve in comparison.groups[0].arms[0].curves["accuracy"])
    for step, _, _, mean, low, high in figures[0][0]["points"]:  # over the two seeds
        assert (mean, low, high) == (pytest.approx((one[step] + other[step]) / 2), *sorted((one[step], other[step])))


def test_latex_escapes_what_tex_would_take_for_its_own():
    assert escape("50 % of x_1 & y^2 #3 {a} ~ \\ <") == (
        r"50 \% of x\_1 \& y\textasciicircum{}2 \#3 \{a\} \textasciitilde{} \textbackslash{} \textless{}"
    )


def test_latex_is_balanced_and_uses_booktabs(comparison):
    text = render(comparison, "latex")
    begun, ended = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    assert sorted(begun) == sorted(ended)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") >= 8
    body = text[text.index(r"\begin{document}") :]
    for row in re.findall(r"\\midrule\n(.*?)\\bottomrule", body, re.S):
        cells = {len(re.findall(r"(?<!\\)&", line)) for line in row.splitlines() if line.endswith(r"\\")}
        assert len(cells) == 1


@needs.latex
def test_latex_compiles(comparison, tmp_path):
    (tmp_path / "report.tex").write_text(render(comparison, "latex"), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error"] if shutil.which("pdflatex") else ["tectonic"]
    done = subprocess.run([*command, "report.tex"], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "report.pdf").stat().st_size > 10_000


def test_the_terminal_table_fits_its_width_and_keeps_metric_and_gap(comparison):
    for width in (60, 80, 120):
        lines = on_a_terminal(terminal_report(comparison), width).splitlines()
        assert max(map(len, lines)) <= width
        head = next(line for line in lines if "accuracy ↑" in line)
        assert "Gap" in head
    assert "Published" in on_a_terminal(terminal_report(comparison), 140)


XNLI = Count(total=109_484_547, trainable=95_310_339, frozen=14_174_208)


@pytest.mark.parametrize("layout", [*(name for name in FORMATS if name != "svg"), "text"])
def test_the_audit_of_published_figures_prints_in_every_format(layout):
    findings = audit_published(load_folders([SHIPPED]), only=["XNLI-01", "XNLI-02"], census=lambda e: XNLI)
    text = on_a_terminal(findings_table(findings)) if layout == "text" else render_audit(findings, layout)
    if isinstance(text, bytes):
        text = str(pandas.read_parquet(io.BytesIO(text)).why.tolist())
    assert "overwritten by noise" in re.sub(r"\s+", " ", text)


def test_axis_ticks_are_round_numbers():
    assert ticks(0, 100_000, 6) == [0, 20_000, 40_000, 60_000, 80_000, 100_000]
    assert ticks(0.57, 0.94) == pytest.approx([0.6, 0.7, 0.8, 0.9])


def test_a_gap_that_does_not_stand_is_marked_in_the_table_itself(tmp_path):
    base, arm = ARMS[0], ARMS[1]
    runs = [
        write_run(tmp_path, base, number=1, score=0.90, result={"true_baseline": False}),
        write_run(tmp_path, arm, number=2, score=0.92),
    ]
    comparison = compare_runs(runs, Catalogue(experiments={one.id: one for one in (base, arm)}))
    text = render(comparison, "markdown")
    assert "| ✗ +2.00 pp |" in text
    assert "- ✗ the gap of demo-bert-oelm does not stand: the Q/K weights of" in text
    rows = list(csv.DictReader(io.StringIO(render(comparison, "csv"))))
    assert [row["breaks"] for row in rows] == ["1", "1"]


def test_accuracies_are_percent_on_the_axes(comparison):
    text = render(comparison, "html")
    assert text.count(" data-share=") == 1  # of six charts
    assert re.search(r'class="tick"[^>]*>80 %<', text)


def test_a_command_in_latex_can_be_copied_from_the_page():
    assert escape("oelm study demo --seed 42") == "oelm study demo -{}-seed 42"


def line(label: str, *points: tuple[int, float]) -> ChartLine:
    return ChartLine(label, tuple(BandPoint(step, value, value, value) for step, value in points))


def test_a_short_run_has_whole_steps_on_its_axis():
    svg = svg_chart(ReportChart("t", "Step", "loss", (line("arm", (2, 0.7), (4, 0.6)),)), Translations())
    assert re.findall(r'text-anchor="middle">(\d+)<', svg) == ["2", "3", "4"]


def test_the_page_names_arms_seeds_and_the_day_in_its_title(comparison):
    text = render(comparison, "html")
    title = re.search("<title>(.*?)</title>", text)[1]
    assert title.startswith("Demo: OELM on generated text: demo-bert-baseline, demo-bert-oelm, ")
    assert re.search(r"demo-gpt-random · seeds 42, 43 · 2026-02-0\d$", title)


def test_the_page_begins_with_verdicts_a_chart_and_warnings(comparison):
    text = render(comparison, "html")
    places = [
        text.index(mark)
        for mark in ("demo-gpt-oelm:</b> perplexity +6.8 %", "<figure", 'class="confounds"', "<h2>Results")
    ]
    assert places == sorted(places)
    assert "<details><summary>" in text[places[2] : places[3]]  # notes are folded


def test_an_axis_says_when_it_is_logarithmic_and_what_a_band_is(comparison):
    text = render(comparison, "html")
    assert text.count("perplexity (logarithmic); band, least to greatest of seeds</text>") == 1
    assert text.count('<polygon class="band') == 6 * 3  # each arm, in each of three charts
    flat = svg_chart(
        ReportChart("t", "Step", "perplexity", (line("arm", (1, 0.0), (2, 4.0)),), "ppl", True), Translations()
    )
    assert ">ppl</text>" in flat  # zero cannot be shown on such an axis


def test_no_label_of_an_axis_reaches_over_the_edge_of_the_picture():
    points = [(1000, 1.25e-5), (1_000_000, 2.5e-5)]
    svg = svg_chart(ReportChart("t", "Step", "loss", (line("arm", *points),)), Translations())
    found = re.findall(r'class="tick" x="([\d.]+)" y="[\d.]+" text-anchor="(end|middle)">([^<]+)<', svg)
    assert {anchor for _, anchor, _ in found} == {"end", "middle"}
    for x, anchor, label in found:
        size = 6.2 * len(label)
        left = float(x) - (size if anchor == "end" else size / 2)
        assert left >= 0
        assert left + size <= WIDTH, label


def test_what_varies_by_nothing_is_said_without_a_spread(comparison):
    for layout in ("markdown", "html", "text"):
        assert not re.search(r"\d,\d{3} ± 0", written(comparison, layout)), layout
    assert "0.0700 ± 0.0000" not in written(comparison, "html")
