"""What readers see of the evidence in every format: the method apart from two models, verdicts, what is open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import time
from html import unescape

import pytest
from rich.console import Console

from oelm_core.compare import Comparison, compare_runs, compare_study
from oelm_core.compare.comparison import Arm, MeanGap, SeedCurve, SignificanceTest
from oelm_core.config import as_dict, build_study, config_hash
from oelm_core.config.catalogue import Catalogue
from oelm_core.formatting import interval, p_number
from oelm_core.report import FORMATS, render
from oelm_core.report.cells import PairLine, ReportTable
from oelm_core.report.gaps import across, contrasts, results, seeds_of
from oelm_core.report.html import html_table
from oelm_core.report.notes import calibration_line, result_notes
from oelm_core.report.tables import timing
from oelm_core.report.terminal import terminal_report
from oelm_core.report.translations import Translations
from oelm_core.runs.folder import write_record
from oelm_core.runs.store import list_runs
from oelm_core.study.calibration import Calibration, CalibrationFacts
from oelm_tui.render.comparison import answer_lines, result_lines, word_lines
from tests.run_factory import FROZEN, GPT, RANDOM, experiment, predictions_with, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
RAND = experiment("rev-random", method=RANDOM, baseline="rev-baseline")
TARGET = {"metric": "perplexity", "at_most": 1.05, "of": "baseline"}
STORY = experiment("story-baseline", GPT)
STORY_OELM = experiment("story-oelm", GPT, method=FROZEN, baseline="story-baseline", target=TARGET)
CATALOGUE = Catalogue(experiments={one.id: one for one in (BASE, OELM, RAND, STORY, STORY_OELM)})
ENGLISH = Translations()
PROSE = ("markdown", "latex", "html", "text", "screen")


def compared(home, **scores) -> Comparison:
    """Arms by the last word of their name, a score for each seed from 42 on."""
    runs, number = [], 0
    arms = {"base": BASE, "oelm": OELM, "rand": RAND, "story": STORY, "story_oelm": STORY_OELM}
    labels = [place % 2 for place in range(200)]
    for name, values in scores.items():
        for seed, score in enumerate(values, 42):
            number += 1
            wrong = range(number, number + round((1 - score) * 200)) if score < 1 else range(0)
            flipped = predictions_with(labels, list(wrong))
            more = {} if "story" in name else {"labels": labels, "predictions": flipped}
            runs.append(write_run(home, arms[name], seed=seed, number=number, score=score, **more))
    return compare_runs(runs, CATALOGUE)


def shown(comparison: Comparison, layout: str, width: int = 400) -> str:
    """As a reader sees it: in a format, on the terminal, or on the screen; spaces and escapes taken out."""
    if layout == "text":
        console = Console(width=width, no_color=True, highlight=False, record=True, file=io.StringIO())
        console.print(terminal_report(comparison))
        return console.export_text(styles=False)
    if layout == "screen":
        group = comparison.groups[0]
        lines = [
            *answer_lines(group, group.arms, width),
            *result_lines(group, group.arms, width),
            *word_lines(group, group.arms, width),
        ]
        return "\n".join("".join(text for text, _ in line) for line in lines)
    text = render(comparison, layout)
    if layout == "html":
        return unescape(re.sub(r"</?\w+[^>]*>", "", text))
    return re.sub(r"\\(?=[<>_%*])|\{\}(?=-)", "", text) if layout in ("markdown", "latex") else text


@pytest.mark.parametrize("layout", PROSE)
def test_one_seed_shows_a_gap_and_says_that_the_method_is_not_decided(tmp_path, layout):
    text = shown(compared(tmp_path, base=[0.93], oelm=[0.90]), layout)
    assert "-3.00 pp" in text
    assert "unknown" in text
    assert "not decided" in text
    assert "nothing is said of the method" in text
    command = r"oelm run rev-baseline rev-oelm --seeds 43,44 \(about 2 min\)"
    assert re.search(rf"To decide, or to learn how many seeds it takes: {command}", text)


@pytest.mark.parametrize("layout", PROSE)
def test_no_format_says_a_bare_yes_or_significant(tmp_path, layout):
    for number, scores in enumerate(([0.90], [0.90, 0.91, 0.89])):
        text = shown(compared(tmp_path / str(number), base=[0.93] * len(scores), oelm=scores), layout)
        assert not re.search(r"\byes\b|\bsignifican", text)


@pytest.mark.parametrize("layout", PROSE)
def test_three_seeds_show_interval_both_p_verdict_and_what_the_numbers_rest_on(tmp_path, layout):
    comparison = compared(tmp_path, base=[0.93, 0.935, 0.925], oelm=[0.90, 0.905, 0.91], rand=[0.85, 0.86, 0.855])
    pair = comparison.groups[0].pairs[0]
    text = shown(comparison, layout)
    assert f"[{pair.interval[0] * 100:+.2f}, {pair.interval[1] * 100:+.2f}] pp" in text
    assert p_number(pair.p) in text
    assert p_number(pair.p_adjusted) in text
    assert "p adjusted for 3 comparisons (Holm)" in text
    assert "accuracy > 80 %, measured 90.50 %" in text.replace(r"\textgreater{}", ">")
    assert "best validation (flatters: the best of 4, chosen on the very examples it is scored on)" in text
    assert "No calibration of these recipes: oelm calibrate rev-baseline" in text
    assert "rev-oelm against rev-random: Over 3 seeds" in text


def test_unlikely_to_be_chance_is_said_of_the_adjusted_p(tmp_path):
    comparison = compared(tmp_path, base=[0.93, 0.94, 0.935], oelm=[0.895, 0.9, 0.905], rand=[0.93, 0.94, 0.93])
    pair = comparison.groups[0].pair("rev-oelm")
    assert pair.p < 0.05 < pair.p_adjusted
    assert "could be chance" in pair.words
    assert "unlikely" not in pair.words


def test_a_borrowed_spread_is_marked_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    made = Calibration(
        preset=BASE.id,
        config_hash=config_hash(as_dict(BASE)),
        metric="accuracy",
        basis="best",
        seeds=[50, 51, 52, 53],
        scores=[0.92, 0.93, 0.94, 0.93],
        false_alarms={"2": 0.051},
        splits={"2": 3},
        created=time.time(),
    )
    path = tmp_path / "home" / "calibrations" / "x.json"
    path.parent.mkdir(parents=True)
    write_record(path, made)
    (group,) = compared(tmp_path / "runs", base=[0.93], oelm=[0.90]).groups
    table = results(group, ENGLISH)
    row = dict(zip(table.columns, table.rows[1], strict=True))
    assert row["95 % interval"].endswith("] pp †")
    assert "p" not in table.columns
    under = "\n".join(result_notes(group, ENGLISH))
    assert "† with a borrowed spread of seeds; the pair's own line says whose." in under
    assert "as those of rev-baseline (calibrated, 4 seeds) do" in table.pairs[0].text
    assert "rev-baseline (calibrated" not in under  # said once
    assert "Calibrated: rev-baseline with itself, 4 seeds, 5.1 % false alarms, seeds spread 0.82 pp." in under
    assert "To decide: oelm run" in under  # with a spread, the number of seeds is known


def test_a_calibration_of_other_scores_than_the_tables_says_so(tmp_path):
    (group,) = compared(tmp_path, base=[0.93, 0.94], oelm=[0.90, 0.91]).groups
    assert group.basis == "best"
    crossed = CalibrationFacts("rev-baseline", 12, 0.02, 0.045, "", "cross-fitted")
    same = CalibrationFacts("rev-oelm", 8, 0.01, None, "", "best")
    line = calibration_line(dataclasses.replace(group, calibration=(crossed, same)))
    assert line == (
        "Calibrated (cross-fitted): rev-baseline with itself, 12 seeds, 4.5 % false alarms, seeds spread 2.00 pp. "
        "Calibrated: rev-oelm with itself, 8 seeds, seeds spread 1.00 pp."
    )


@pytest.mark.parametrize(("p", "text"), [(0.0499, "0.0499"), (0.04996, "0.04996"), (0.0501, "0.0501"), (0.05, "0.050")])
def test_a_p_near_five_per_cent_shows_on_which_side_it_is(p, text):
    assert p_number(p) == text


@pytest.mark.parametrize(
    ("metric", "bounds", "text"),
    [
        ("accuracy", (0.00003, 0.02), "[+0.003, +2.00] pp"),
        ("perplexity", (-0.005, -0.0002), "[-0.5, -0.02] %"),
        ("accuracy", (-1e-17, 0.02), "[+0.00, +2.00] pp"),
        ("accuracy", (float("-inf"), 0.0), "[-inf, +0.00] pp"),
    ],
)
def test_an_end_of_an_interval_near_zero_shows_its_sign(metric, bounds, text):
    assert interval(metric, bounds) == text


@pytest.mark.parametrize("layout", PROSE)
def test_a_target_met_by_a_broken_comparison_is_not_shown_as_met(tmp_path, layout):
    runs = []
    for number, (arm, score) in enumerate([(BASE, 0.93), (OELM, 0.96), (BASE, 0.931), (OELM, 0.961)]):
        touched = {"result": {"true_baseline": False}} if arm is BASE else {}
        runs.append(write_run(tmp_path, arm, seed=42 + number // 2, number=number, score=score, **touched))
    comparison = compare_runs(runs, CATALOGUE)
    assert comparison.groups[0].pairs[0].verdict == "met"
    text = shown(comparison, layout)
    assert "met, does not stand" in text
    assert "But the comparison does not stand: the Q/K weights of" in text
    assert not re.search(r"(✔|\\checkmark\{\}) (met|rev-oelm)", text)


def test_the_method_and_two_trained_models_are_sections_of_their_own(tmp_path):
    text = shown(compared(tmp_path, base=[0.93, 0.94], oelm=[0.90, 0.91]), "markdown")
    method, models = re.split("## Two trained models", text.partition("## The method (over seeds)")[2])
    assert "seeds x examples" in method
    assert "McNemar" not in method
    assert models.startswith(" (says nothing about the method)")
    assert models.count("exact McNemar") == 2  # one a seed


def arm_with(seeds=(), **more) -> Arm:
    return Arm("a", "a", "A", "m", "h", is_baseline=False, seeds=tuple(seeds), runs=(), metric=None, **more)


@pytest.mark.parametrize(
    ("arm", "planned", "text"),
    [
        (arm_with(range(42, 47)), (), "5"),
        (arm_with(range(42, 45), diverged=2), (42, 43, 44, 45, 46), "3 + 2 diverged"),
        (arm_with(range(42, 45), failed=1), (), "3 + 1 failed"),
        (arm_with(range(42, 45)), (42, 43, 44, 45, 46), "3 of 5 planned"),
        (arm_with((42,), diverged=1), (42, 43, 44), "1 of 3 planned + 1 diverged"),
        (arm_with((45, 47, 51)), (42, 43, 44), "3, 0 of 3 planned"),
        (arm_with(range(42, 47)), (42,), "5"),
    ],
)
def test_the_seeds_of_a_row_are_counted_with_those_lost_and_those_planned(arm, planned, text):
    assert seeds_of(arm, planned, ENGLISH) == text


def test_a_table_of_a_study_holds_its_seeds_against_the_plan(tmp_path):
    for number, arm in enumerate((BASE, OELM)):
        write_run(tmp_path, arm, number=number)
    raw = {"id": "s", "title": "S", "question": "Q?", "arms": [BASE.id, OELM.id], "seeds": [42, 43, 44]}
    comparison = compare_study(build_study(raw, "s"), list_runs(tmp_path), CATALOGUE)
    for layout in ("markdown", "text", "html"):
        assert "1 of 3 planned" in shown(comparison, layout), layout


def test_arms_are_set_against_one_another_with_interval_and_p(tmp_path):
    scores = {"base": [0.93, 0.935, 0.925], "oelm": [0.90, 0.905, 0.91], "rand": [0.85, 0.86, 0.855]}
    (group,) = compared(tmp_path, **scores).groups
    table = contrasts(group, ENGLISH)
    assert table.title == "Arm against arm: reviews"
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["Arm"], row["Against"], row["Gap"], row["Seeds"]) == ("rev-oelm", "rev-random", "+5.00 pp", "3 / 3")
    assert row["95 % interval"].startswith("[+")
    assert float(row["p"].strip("< ")) <= float(row["Adjusted p"].strip("< "))


def test_the_mean_over_data_sets_has_its_interval(tmp_path):
    one = compared(tmp_path / "1", base=[0.93, 0.94], oelm=[0.90, 0.91])
    other = dataclasses.replace(one.groups[0], dataset="others")
    mean = MeanGap("oelm-freeze", "points", "accuracy", ("reviews", "others"), -0.03, (-0.05, -0.01), 0.012, 0.97)
    both = Comparison((*one.groups, other), means=(mean,))
    table = across(both, ENGLISH)
    assert table.rows[-1] == ("Mean", "oelm-freeze", "-", "-", "-3.00 pp", "[-5.00, -1.00] pp", "0.012", "97.0 %")


def test_a_gap_in_time_below_the_noise_is_marked(tmp_path):
    (group,) = compared(tmp_path, base=[0.93, 0.94], oelm=[0.90, 0.91]).groups
    noisy = dataclasses.replace(group, timing_noise=0.08)
    both = SignificanceTest("neighbours, paired t", "timing", "", 0.3, 0.05, (-0.1, 0.2), 2)
    pair = dataclasses.replace(group.pairs[0], step_time_delta=0.05, tests=(both,))
    slow = dataclasses.replace(pair, step_time_delta=0.5)

    def gap_in(pair):
        table = timing(dataclasses.replace(noisy, pairs=(pair,)), ENGLISH)
        return dict(zip(table.columns, table.rows[1], strict=True))["Gap"], table.notes

    assert gap_in(pair)[0] == "+5.0 %, in the noise"
    assert gap_in(dataclasses.replace(pair, tests=()))[0] == "+5.0 % (1 pair), in the noise"
    assert gap_in(slow)[0] == "+50.0 %"
    assert "Identical work differs by up to 8.0 % here" in gap_in(slow)[1][0]
    assert "is not known" in timing(dataclasses.replace(group, timing_noise=None, pairs=(pair,)), ENGLISH).notes[0]


def test_a_curve_is_the_mean_of_the_rows_own_runs_where_all_of_them_have_a_point(tmp_path):
    curves = {"loss": (SeedCurve(42, ((1, 2.0), (2, 1.0), (3, 0.5))), SeedCurve(43, ((1, 4.0), (2, 3.0))))}
    assert arm_with((42, 43), curves=curves).mean_curve("loss") == ((1, 3.0), (2, 2.0))
    runs = [write_run(tmp_path, BASE, seed=42, number=1), write_run(tmp_path, OELM, seed=42, number=2)]
    runs.append(write_run(tmp_path, OELM, seed=43, number=3, state="failed", reason="nonfinite", without=["result"]))
    arm = compare_runs(runs, CATALOGUE).groups[0].arm(OELM.id)
    assert (arm.diverged, [curve.seed for curve in arm.curves["accuracy"]]) == (1, [42])


def test_counts_have_no_spread_on_the_screen(tmp_path):
    text = shown(compared(tmp_path, base=[0.93, 0.94], oelm=[0.90, 0.91]), "screen")
    assert "78,336" in text
    assert not re.search(r"± 0(?!\.)", text)
    assert "78,336 ±" not in text


def test_json_keeps_to_its_schema(tmp_path):
    scores = {"base": [0.93, 0.935, 0.925], "oelm": [0.90, 0.905, 0.91], "rand": [0.85, 0.86, 0.855]}
    (group,) = json.loads(render(compared(tmp_path, **scores), "json"))["groups"]
    assert {"family", "dataset", "baseline", "arms", "pairs", "audit"} < set(group)
    assert {"family_size", "registered", "calibration", "search", "contrasts", "basis", "decide"} < set(group)
    for pair in (*group["pairs"], *group["contrasts"]):
        assert {"arm", "metric", "direction", "delta", "interval", "p", "p_adjusted", "verdict"} < set(pair)
        assert set(pair["seeds"]) == {"baseline", "arm", "shared", "failed"}
        assert "seeds_needed" in pair
        assert {"test", "p", "interval"} < set(pair["models"])
        assert pair["models"]["test"] == "exact McNemar"
    assert [pair["verdict"] for pair in group["pairs"]] == ["met", "met"]
    assert [pair["verdict"] for pair in group["contrasts"]] == [None]


def test_json_with_one_seed_has_no_p_and_no_interval(tmp_path):
    ((pair,),) = [one["pairs"] for one in compared(tmp_path, base=[0.93], oelm=[0.90]).to_json()["groups"]]
    assert (pair["p"], pair["p_adjusted"], pair["interval"], pair["verdict"]) == (None, None, None, "undecided")
    assert pair["models"]["p"] is not None


def test_csv_has_both_p_the_verdict_the_seeds_of_each_side_and_the_basis(tmp_path):
    comparison = compared(tmp_path, base=[0.93, 0.935, 0.925], oelm=[0.90, 0.905])
    base, oelm = csv.DictReader(io.StringIO(render(comparison, "csv")))
    pair = comparison.groups[0].pairs[0]
    assert float(oelm["p_adjusted"]) == pytest.approx(pair.p_adjusted)
    wanted = {"verdict": "met", "n": "2", "baseline_seeds": "3", "shared_seeds": "2", "basis": "best", "failed": "0"}
    assert {name: oelm[name] for name in wanted} == wanted
    assert base["p_adjusted"] == base["verdict"] == ""


def test_html_shows_what_was_found_above_the_table_in_the_colour_of_its_verdict():
    lines = (PairLine("a", "met", "x"), PairLine("b", "missed", "y"), PairLine("c", "undecided", "z"))
    page = html_table(ReportTable("t", ("Arm", "Target"), "ll", (("c", "? not decided"),), pairs=lines))
    assert re.findall(r'<li class="(\w+)"><b>(.) (\w):</b>', page) == [
        ("met", "✔", "a"),
        ("missed", "✗", "b"),
        ("undecided", "?", "c"),
    ]
    assert page.index("</ul>") < page.index("<table")
    assert '<td class="undecided">? not decided</td>' in page


def test_a_narrow_terminal_keeps_gap_and_target_longest(tmp_path):
    comparison = compared(tmp_path, base=[0.93, 0.935, 0.925], oelm=[0.90, 0.905, 0.91])
    heads = {}
    for width in (60, 80, 120):
        heads[width] = next(line for line in shown(comparison, "text", width).splitlines() if "accuracy ↑" in line)
    assert "Gap" in heads[60]
    assert "Target" in heads[80]
    assert "95 % interval" in heads[80]
    assert "Adjusted p" not in heads[80]  # of two arms only one comparison: nothing to adjust
    assert "Seeds" in heads[120]


def test_every_format_that_is_prose_is_tried_here():
    assert set(FORMATS) - {"csv", "json", "svg", "parquet"} | {"text", "screen"} == set(PROSE)
