"""What heads look at, from run folders to the table and the figure of a report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from oelm_core.compare import Comparison, compare_runs
from oelm_core.compare.comparison import BandPoint
from oelm_core.config.catalogue import Catalogue
from oelm_core.errors import NotFound
from oelm_core.report import format_of_file, render, render_audit
from oelm_core.report.document import ChartLine, Report, ReportChart, ReportSection
from oelm_core.report.picture import render_svg
from oelm_core.report.svg import draw_chart
from oelm_core.report.translations import Translations
from tests.run_factory import FROZEN, GPT, experiment, write_run

BASELINE = experiment("lab-gpt-baseline", GPT)
FROZEN_ARM = experiment("lab-gpt-oelm", GPT, method=FROZEN, baseline="lab-gpt-baseline")


def compared(root: Path, *looks: object) -> Comparison:
    """A baseline and a frozen arm, with what `attention/step-8.json` of each says; None for a run that never looked."""
    runs = []
    for number, (arm, look) in enumerate(zip((BASELINE, FROZEN_ARM), looks, strict=True)):
        run = write_run(root, arm, number=number, score=5.0 + number)
        if look is not None:
            run.folder.attention.mkdir()
            (run.folder.attention / "step-4.json").write_text(json.dumps({"entropy": [[9.9]], "distance": [[9.9]]}))
            (run.folder.attention / "step-8.json").write_text(json.dumps(look))
        runs.append(run)
    return compare_runs(runs, Catalogue(experiments={arm.id: arm for arm in (BASELINE, FROZEN_ARM)}))


SHARP = {"step": 8, "entropy": [[1.0, 2.0], [0.5, 0.5]], "distance": [[4.0, 6.0], [2.0, 0.0]]}
FLAT = {"step": 8, "entropy": [[3.0, 3.0], [3.0, 3.0]], "distance": [[8.0] * 2] * 2, "from_baseline": [[0.5, 0.25]] * 2}


def test_the_last_look_is_the_one_that_counts_and_its_means_are_in_the_table(tmp_path):
    text = render(compared(tmp_path, SHARP, FLAT), "markdown")
    table = text.partition("## Attention")[2]
    assert "| lab-gpt-baseline | 1.00 | 0.50 to 2.00 | 3.0 | - |" in table
    assert "| lab-gpt-oelm | 3.00 | 3.00 to 3.00 | 8.0 | 37.5 % |" in table


def test_the_figure_has_a_dot_for_each_head_and_the_baselines_beside_every_other_arm(tmp_path):
    picture = render(compared(tmp_path, SHARP, FLAT), "svg")
    assert isinstance(picture, str)
    ET.fromstring(picture)
    dots = {style: path.count("M") for style, path in re.findall(r'<path class="heads ([^"]+)" d="([^"]*)"', picture)}
    assert dots == {"c0": 4, "pale c0": 4, "c1": 4}
    assert ">baseline</text>" in picture  # what all names begin with is left out
    assert "perplexity" in picture  # the curves are there too


def test_the_page_has_the_figure_too(tmp_path):
    assert render(compared(tmp_path, SHARP, FLAT), "html").count('class="heads') == 3


@pytest.mark.parametrize("look", [None, {"entropy": 3}, {"entropy": [[1.0]], "distance": []}, {"distance": [[1.0]]}])
def test_runs_without_a_look_or_with_a_bad_one_cost_the_figure_alone(tmp_path, look):
    text = render(compared(tmp_path, SHARP, look), "html")
    assert 'class="heads' not in text
    assert "lab-gpt-oelm" in text


def test_a_look_that_says_nothing_of_the_baseline_for_some_heads_keeps_the_others(tmp_path):
    short = {**FLAT, "from_baseline": [[0.5]]}
    [group] = compared(tmp_path, SHARP, short).groups
    assert [len(arm.heads) for arm in group.arms] == [4, 1]


def test_a_report_without_curves_has_nothing_to_draw():
    with pytest.raises(NotFound, match="nothing to draw"):
        render_audit([], "svg")


def test_a_files_ending_asks_for_the_picture():
    assert format_of_file("findings.svg").name == "svg"


def test_eleven_curves_differ_in_colour_or_dash_and_long_names_have_a_line_each():
    lines = tuple(ChartLine(f"findings-gpt-{name * 36}", (BandPoint(1, 2.0, 2.0, 2.0),), 1) for name in "abcdefghijk")
    chart = ReportChart("t", "Step", "perplexity", lines)
    drawing = draw_chart(chart, Translations("en"))
    assert drawing is not None
    assert len({(key.colour, key.dash) for key in drawing.keys}) == 11
    picture = render_svg(Report("t", "en", (ReportSection("Curves", charts=(chart,)),), (), {}))
    places = re.findall(r'<text class="label" x="31" y="(\d+)">findings', picture)
    assert len(set(places)) == 11
