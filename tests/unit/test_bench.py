"""The bench: variants take turns in their own processes, ratios are paired, verdicts follow the figures. No timing."""

from __future__ import annotations

import json
import os
import signal
import tempfile

import pytest
from typer.testing import CliRunner

from oelm_core.bench import run, tables
from oelm_core.bench.claims import Claim, Section, Table
from oelm_core.bench.loop import overhead
from oelm_core.bench.statistics import ENOUGH, bootstrap, paired_ratio, slope
from oelm_core.bench.variants import Recipe, children, take_turns
from oelm_core.errors import BadInput, LabError


def test_a_ratio_is_taken_round_by_round_so_that_drift_cancels() -> None:
    drifting = [1.0, 2.0, 4.0, 8.0, 16.0]
    found = paired_ratio([1.2 * t for t in drifting], drifting)
    assert found.value == pytest.approx(1.2)
    assert found.low == pytest.approx(1.2)
    assert found.high == pytest.approx(1.2)


def test_the_interval_holds_the_median_and_widens_with_noise() -> None:
    calm, noisy = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [0.2, 1.9, 1.0, 0.4, 1.6, 1.0]
    (low, high), (wide_low, wide_high) = bootstrap(calm), bootstrap(noisy)
    assert low <= 1.0 <= high
    assert wide_high - wide_low > high - low


def test_variants_with_different_numbers_of_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same number of rounds"):
        paired_ratio([1.0, 2.0], [1.0])


def test_the_order_of_growth_is_found_through_constant_factors() -> None:
    assert slope([2, 4, 8, 16], [0.7 * n**1.5 for n in (2, 4, 8, 16)]) == pytest.approx(1.5)


def test_every_variant_runs_once_a_round_in_a_process_of_its_own() -> None:
    recipes = {name: Recipe("oelm_core.bench.machine:Gemm", {"size": 8}) for name in ("one", "other")}
    found = take_turns(recipes, rounds=3, threads=1)
    assert [len(one.cpu) for one in found.values()] == [3, 3]
    assert all(one.peak["host"] > one.peak["above"] >= 0 for one in found.values())
    assert found["one"].about == {"flops": 1024}


def test_no_round_begins_when_the_time_is_up_but_there_are_enough_for_an_interval() -> None:
    recipes = {name: Recipe("oelm_core.bench.machine:Gemm", {"size": 8}) for name in ("one", "other")}
    found = take_turns(recipes, rounds=40, within=0.0, threads=1)
    assert [len(one.cpu) for one in found.values()] == [ENOUGH, ENOUGH]


def test_a_variant_whose_process_is_killed_is_named_and_its_files_go(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with children({"doomed": Recipe("oelm_core.bench.machine:Gemm", {"size": 8})}, 1) as alive:
        child = alive["doomed"]
        child.ready()
        assert any(tmp_path.glob("oelm-bench-*"))
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(LabError, match="bench doomed: its process was killed"):
            child.ask({"run": 1})
    assert not any(tmp_path.glob("oelm-bench-*"))


def test_a_variant_that_fails_is_named_in_one_sentence() -> None:
    with pytest.raises(LabError, match="bench broken: TypeError"):
        take_turns({"broken": Recipe("oelm_core.bench.machine:Gemm", {"size": "x"})}, rounds=1, threads=1)


def test_subjects_come_in_their_order_and_unknown_ones_are_refused() -> None:
    assert run.choose([]) == run.choose(["all"]) == list(run.SUBJECTS)
    assert run.choose(["loop", "GPT"]) == ["gpt", "loop"]
    with pytest.raises(BadInput, match="Did you mean scaling"):
        run.choose(["scalling"])


def test_overhead_is_what_lies_between_the_steps() -> None:
    records = [{"step": 10 * n, "t": 100 + 1.1 * n, "step_time": 0.1} for n in range(1, 6)]
    share, around, step = overhead(records)
    assert share == pytest.approx(1 - 1.0 / 1.1)
    assert around == pytest.approx(0.01)
    assert step == 0.1


def test_overhead_of_too_short_a_run_is_not_guessed() -> None:
    with pytest.raises(LabError, match="too few"):
        overhead([{"step": 1, "t": 1.0, "step_time": 0.1}])


def test_the_page_names_the_machine_and_says_what_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Claim("a step", "2x", "1.5x", False, why="the profile says so")
    section = Section("gpt", "GPT", [short, Claim("b", "1", "1", True)], [Table("T", ["a|b"], [["1|2"]], "read so")])
    monkeypatch.setattr("oelm_core.bench.gpt.measure", lambda effort: section)
    report, sections = run.measure(["gpt"], threads=1, command="oelm bench gpt")
    page = tables.markdown(report, sections)
    assert report["machine"]["cpu"] in page
    assert "| a step | 2x | 1.5x | short |" in page
    assert "the profile says so" in page
    assert "| 1/2 |" in page
    assert json.loads(json.dumps(report))["sections"][0]["claims"][1]["verdict"] == "met"


def test_quick_figures_are_marked_as_worthless(monkeypatch: pytest.MonkeyPatch) -> None:
    section = Section("gpt", "GPT", [Claim("a step", "2x", "3x", True)])
    monkeypatch.setattr("oelm_core.bench.gpt.measure", lambda effort: section)
    report, sections = run.measure(["gpt"], quick=True)
    assert "Quick mode" in tables.markdown(report, sections)
    assert sections[0].claims[0].verdict == "not judged"


def test_the_command_prints_claims_or_json_and_writes_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    from oelm_tui.commands.bench import apps

    made = Section("gpt", "GPT", [Claim("a step", "2x", "3x", True)])
    monkeypatch.setattr("oelm_core.bench.gpt.measure", lambda effort: made)
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    printed = CliRunner().invoke(apps["bench"], ["gpt", "--out", str(tmp_path / "docs" / "page.md")])
    assert "a step" in printed.stdout
    assert "met" in printed.stdout
    assert (tmp_path / "docs" / "page.md").read_text().startswith("# Performance")
    (kept,) = (tmp_path / "home" / "bench").glob("*.json")
    assert json.loads(kept.read_text())["sections"][0]["claims"][0]["found"] == "3x"
    told = CliRunner().invoke(apps["bench"], ["gpt", "--json", "--quick"])
    assert json.loads(told.stdout)["quick"] is True
