"""Draws of a tuning in a comparison: they are no arms, the chosen setting is, and who searched harder is seen."""

from __future__ import annotations

import io
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from oelm_core.compare import compare_runs, compare_study
from oelm_core.compare.comparison import Comparison
from oelm_core.compare.draws import best_draw, draws_of, expected_best
from oelm_core.config import build_study
from oelm_core.config.catalogue import Catalogue
from oelm_core.report import render
from oelm_core.report.terminal import terminal_report
from oelm_core.runs.store import Run, list_runs
from tests.run_factory import BERT, FROZEN, experiment, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
CATALOGUE = Catalogue(experiments={e.id: e for e in (BASE, OELM)})
STUDY = build_study({"id": "s", "title": "S", "question": "Q?", "arms": ["rev-baseline", "rev-oelm"]}, "s")
RATES = ("1e-4", "3e-4", "1e-3", "3e-3")


class Lab:
    """Writes runs of a tuning, each later than the one before."""

    def __init__(self, root: Path) -> None:
        self.root, self.number = root, 0

    def run(self, arm: str, role: str, point: int, score: float, seed: int = 1, **more: Any) -> Run:
        self.number += 1
        settings = [f"train.lr={RATES[point - 1]}"]
        parts = {"method": FROZEN, "baseline": "rev-baseline"} if arm == "rev-oelm" else {}
        tuning = {"id": more.pop("id", "s-1"), "role": role, "point": point, "settings": settings}
        typed = ["/somewhere/bin/oelm", "tune", "s", "--budget", "3", "--detach"]
        record = {"study": more.pop("study", "s"), "tuning": tuning, "command": typed}
        exp = experiment(arm, BERT, *settings, **parts)
        return write_run(self.root, exp, seed=seed, number=self.number, score=score, run=record, **more)

    def tuned(self, arm: str, *scores: float, **more: Any) -> None:
        """Its draws, and the best of them on two fresh seeds."""
        for point, score in enumerate(scores, 1):
            self.run(arm, "draw", point, score, **more)
        best = scores.index(max(scores)) + 1
        for seed in (42, 43):
            self.run(arm, "chosen", best, max(scores) - 0.01, seed, **more)

    def compared(self) -> Comparison:
        return compare_study(STUDY, list_runs(self.root), CATALOGUE)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_the_expected_best_is_the_mean_over_all_orders_of_the_draws(count: int, higher: bool) -> None:
    values = [round(random.Random(count).uniform(0, 10), 3) for _ in range(count - 1)] + [4.0]
    orders = list(itertools.permutations(values))
    pick = max if higher else min
    found = expected_best(values, higher_is_better=higher)
    assert len(found) == count
    for m, expected in enumerate(found, 1):
        assert expected == pytest.approx(sum(pick(order[:m]) for order in orders) / len(orders))


def test_the_expected_best_of_equal_values_is_that_value() -> None:
    assert expected_best([0.5] * 4, higher_is_better=True) == pytest.approx([0.5] * 4)


def test_draws_are_no_arms_and_the_chosen_setting_is_the_arm(lab: Lab) -> None:
    write_run(lab.root, BASE, seed=42, number=90, score=0.5)  # untuned, and newer
    lab.tuned("rev-baseline", 0.80, 0.90, 0.85)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    comparison = lab.compared()
    (group,) = comparison.groups
    assert [(arm.id, arm.seeds) for arm in group.arms] == [("rev-baseline", (42, 43)), ("rev-oelm", (42, 43))]
    base, oelm = group.arms
    assert base.metric is not None
    assert base.metric.mean == pytest.approx(0.89)
    assert (base.config["train"]["lr"], oelm.config["train"]["lr"]) == (3e-4, 1e-4)
    assert any("6 runs are draws of s-1" in note for note in comparison.footnotes)
    assert any("untuned settings is left out" in note for note in comparison.footnotes)


def test_the_table_tells_what_fewer_draws_would_have_found(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90, 0.85)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    (group,) = lab.compared().groups
    tuning = group.arms[0].tuning
    assert tuning is not None
    assert (tuning.id, tuning.draws, tuning.chosen, tuning.settings) == ("s-1", 3, 2, ("train.lr=3e-4",))
    assert tuning.values == pytest.approx((0.80, 0.90, 0.85))
    assert tuning.expected_best == pytest.approx((0.85, (0.90 + 0.90 + 0.85) / 3, 0.90))
    as_json = json.loads(json.dumps(lab.compared().to_json()))
    assert as_json["groups"][0]["arms"][0]["tuning"]["expected_best"] == pytest.approx(tuning.expected_best)


def test_settings_that_differ_by_choice_from_the_same_points_are_a_note(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90, 0.85)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    (group,) = lab.compared().groups
    (found,) = [finding for finding in group.audit if finding.code == "lr"]
    assert found.grade == "note"
    assert "each arm's own choice from the same 3 points" in found.why
    assert not [finding for finding in group.audit if finding.code == "tuning"]


def test_an_arm_that_was_tuned_harder_is_confounded(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60, 0.5)
    (group,) = lab.compared().groups
    (found,) = [finding for finding in group.audit if finding.code == "tuning"]
    assert (found.grade, found.arms) == ("confounds", ("rev-baseline", "rev-oelm"))
    assert "rev-oelm with 4 draws and rev-baseline with 2 draws" in found.why
    assert found.settle_with == "oelm tune s --budget 4"
    assert next(finding for finding in group.audit if finding.code == "lr").grade == "confounds"


def test_a_tuned_arm_against_a_baseline_run_once_is_confounded(lab: Lab) -> None:
    write_run(lab.root, BASE, seed=42, number=90, score=0.85)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    (group,) = lab.compared().groups
    (found,) = [finding for finding in group.audit if finding.code == "tuning"]
    assert "rev-oelm with 3 draws and rev-baseline with no draws" in found.why


def test_draws_count_for_chosen_runs_that_are_compared_by_name(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    named = [run for run in list_runs(lab.root) if not run.is_draw]
    (group,) = compare_runs(named, CATALOGUE).groups
    assert [finding.grade for finding in group.audit if finding.code == "tuning"] == ["confounds"]


def test_draws_of_an_earlier_tuning_count_too(lab: Lab) -> None:
    lab.tuned("rev-oelm", 0.5, 0.6, id="s-0")
    lab.tuned("rev-baseline", 0.80, 0.90)
    lab.tuned("rev-oelm", 0.88, 0.70)
    comparison = lab.compared()
    (group,) = comparison.groups
    tuning = group.arm("rev-oelm").tuning
    assert tuning is not None
    assert (tuning.id, tuning.draws, len(tuning.values)) == ("s-1", 4, 2)
    assert "tuning" in [finding.code for finding in group.audit]
    assert any("s-1 chose another setting since" in note for note in comparison.footnotes)


def test_a_failed_draw_counts_as_the_worst_of_any_arm_and_is_never_chosen(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90)
    lab.tuned("rev-oelm", 0.88, 0.70)
    for arm in ("rev-baseline", "rev-oelm"):
        lab.run(arm, "draw", 3, 0.99, state="failed", reason="nonfinite")
    tuning = lab.compared().groups[0].arms[0].tuning
    assert tuning is not None
    assert (tuning.failed, tuning.values[2]) == (1, None)
    assert tuning.expected_best[0] == pytest.approx((0.80 + 0.90 + 0.70) / 3)
    draws = draws_of(run for run in list_runs(lab.root) if run.preset == "rev-oelm")
    assert [draw.state for draw in draws] == ["done", "done", "failed"]
    best = best_draw(draws, "accuracy")
    assert best is not None
    assert best.point == 1


def test_a_draw_over_several_seeds_is_their_mean_and_open_until_all_are_there(lab: Lab) -> None:
    runs = [lab.run("rev-oelm", "draw", 1, 0.8, seed=1), lab.run("rev-oelm", "draw", 1, 0.6, seed=2)]
    (draw,) = draws_of(runs, seeds=2)
    assert (draw.state, draw.value) == ("done", pytest.approx(0.7))
    assert draws_of(runs, seeds=3)[0].state == "open"
    stopped = lab.run("rev-oelm", "draw", 2, 0.5, state="stopped", reason="user")
    assert draws_of([stopped])[0].state == "pruned"


def test_more_seeds_of_tuned_arms_are_asked_for_by_the_command_that_tuned_them(lab: Lab) -> None:
    for arm in ("rev-baseline", "rev-oelm"):
        lab.run(arm, "draw", 1, 0.8, seed=50)
        lab.run(arm, "chosen", 1, 0.8, seed=42)
    (group,) = lab.compared().groups
    (found,) = [finding for finding in group.audit if finding.code == "one-seed"]
    assert found.settle_with == "oelm tune s --budget 3 --fresh-seeds 42,51,52"  # 50 chose


def test_tuned_arms_are_reported_in_every_form(lab: Lab) -> None:
    lab.tuned("rev-baseline", 0.80, 0.90, 0.85)
    lab.tuned("rev-oelm", 0.88, 0.70, 0.60)
    comparison = lab.compared()
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(terminal_report(comparison))
    for text in (console.export_text(), render(comparison, "markdown"), render(comparison, "html")):
        assert "Expected best after m draws" in text
        assert "train.lr=3e-4" in text
        assert "88.33 %" in text  # of the baseline, after two draws
    markdown = render(comparison, "markdown")
    assert "oelm tune s --budget 3" in markdown
    assert "oelm study s" not in markdown


def test_runs_tuned_for_another_study_are_left_out(lab: Lab) -> None:
    write_run(lab.root, BASE, seed=42, number=90, score=0.85)
    lab.tuned("rev-baseline", 0.80, 0.90, study="another", id="another-1")
    comparison = lab.compared()
    assert comparison.groups[0].arms[0].seeds == (42,)
    assert any("tuned for the study another" in note for note in comparison.footnotes)
