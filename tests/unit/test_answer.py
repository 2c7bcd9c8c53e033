"""The answer in one line: the same in every layout, with interval, outcome, saving and doubts."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from oelm_core.compare import Comparison, compare_runs
from oelm_core.config.catalogue import Catalogue
from oelm_core.report import render
from oelm_core.report.answer import answers
from oelm_core.report.terminal import terminal_report
from oelm_core.report.translations import Translations
from tests.golden.demo import ARMS, demo_comparison
from tests.run_factory import write_run


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Comparison:
    return demo_comparison(tmp_path_factory.mktemp("runs"))


def of(group, arm: str, **changes: object) -> str:
    """The answer of an arm whose pair has these values instead."""
    pairs = tuple(dataclasses.replace(pair, **changes) if pair.arm == arm else pair for pair in group.pairs)
    found = answers(dataclasses.replace(group, pairs=pairs), Translations())
    return next(f"{line.mark}{line.name}: {line.text}" for line in found if line.name == arm)


def test_it_has_gap_interval_seeds_outcome_saving_and_doubts(comparison):
    text = "accuracy -0.50 pp [-2.00, +1.00] over 2 seeds; target met; 20.9 % fewer trainable; 2 confounds"
    assert of(comparison.groups[0], "demo-bert-oelm") == f"✔ demo-bert-oelm: {text}"


@pytest.mark.parametrize(
    ("verdict", "words"), [("met", "✔ .*target met"), ("missed", "✗ .*target missed"), ("undecided", "? .*not decided")]
)
def test_each_of_the_three_outcomes_stands_beside_its_interval(comparison, verdict, words):
    mark, _, rest = words.partition(" .*")
    text = of(comparison.groups[1], "demo-gpt-oelm", verdict=verdict)
    assert text.startswith(f"{mark} demo-gpt-oelm: perplexity +6.8 % [+5.9, +7.7] over 2 seeds; ")
    assert rest in text


def test_it_is_word_for_word_the_same_in_every_layout(comparison):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_report(comparison))
    shown = [console.export_text(), render(comparison, "html"), render(comparison, "markdown")]
    for group in comparison.groups:
        for line in answers(group, Translations()):
            assert all(line.text in text for text in shown), line


def test_without_a_target_it_says_what_may_be_said_of_chance(comparison):
    text = of(comparison.groups[0], "demo-bert-oelm", verdict=None)
    assert "; could be chance (p = 0.22); " in text


def test_one_seed_has_no_interval_and_a_broken_pair_no_verdict(tmp_path):
    base, arm = ARMS[0], ARMS[1]
    runs = [
        write_run(tmp_path, base, number=1, score=0.90, result={"true_baseline": False}),
        write_run(tmp_path, arm, number=2, score=0.92),
    ]
    found = compare_runs(runs, Catalogue(experiments={one.id: one for one in (base, arm)}))
    text = of(found.groups[0], arm.id)
    assert text.startswith("demo-bert-oelm: accuracy +2.00 pp with one seed, interval unknown; does not stand: ")
    assert "target" not in text


def test_unequal_seeds_and_diverged_runs_are_counted(comparison):
    group = comparison.groups[0]
    arms = [dataclasses.replace(arm, diverged=1) if arm.id == "demo-bert-oelm" else arm for arm in group.arms]
    seeds = dataclasses.replace(group.pairs[0].seeds, arm=3)
    text = of(dataclasses.replace(group, arms=tuple(arms)), "demo-bert-oelm", seeds=seeds)
    assert "over 3 seeds, baseline 2; 1 of 2 runs diverged;" in text
