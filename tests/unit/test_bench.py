"""The bench: variants take turns in their own processes, ratios are paired, verdicts follow the figures. No timing."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from functools import partial

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import SUBJECTS as PROOFS
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.claims import ClaimSection, SpeedClaim, claim_lines, markdown, not_judged
from benchmarks.scaling import slope
from oelm_core.bench.report import SUBJECTS, BenchSection, BenchTable, Effort, choose, measure
from oelm_core.bench.steps import Gemm
from oelm_core.bench.subjects import overhead
from oelm_core.bench.turns import (
    ENOUGH,
    Ratio,
    bootstrap,
    children,
    in_child,
    over_rounds,
    paired_ratio,
    take_turns,
    turns,
)
from oelm_core.errors import BadInput, LabError
from oelm_core.runs.schema import MetricLine

pytestmark = pytest.mark.xdist_group("bench")
"""One server of processes for all."""


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
    found = take_turns(dict.fromkeys(("one", "other"), partial(Gemm, 8)), rounds=3, threads=1)
    assert [len(one.cpu) for one in found.values()] == [3, 3]
    assert all(one.peak["host"] > one.peak["above"] >= 0 for one in found.values())
    assert found["one"].about == {"flops": 1024}


def test_no_round_begins_when_the_time_is_up_but_there_are_enough_for_an_interval() -> None:
    found = take_turns(dict.fromkeys(("one", "other"), partial(Gemm, 8)), rounds=40, within=0.0, threads=1)
    assert [len(one.cpu) for one in found.values()] == [ENOUGH, ENOUGH]


def test_slow_rounds_end_before_there_are_enough() -> None:
    with children({"one": partial(Gemm, 8)}, 1) as alive:
        alive["one"].ready()
        assert len(turns(alive, rounds=40, at_most=0.0)["one"].cpu) == 1


def test_a_variant_whose_process_is_killed_is_named_and_its_files_go(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with children({"doomed": partial(Gemm, 8)}, 1) as alive:
        child = alive["doomed"]
        child.ready()
        assert any(tmp_path.glob("oelm-bench-*"))
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(LabError, match="bench doomed: its process was killed"):
            child.run(1)
    assert not any(tmp_path.glob("oelm-bench-*"))


def test_a_variant_that_fails_is_named_in_one_sentence() -> None:
    with pytest.raises(LabError, match="bench broken: TypeError"):
        take_turns({"broken": partial(Gemm, "x")}, rounds=1, threads=1)


def test_a_function_answers_from_a_process_of_its_own() -> None:
    assert in_child(os.getpid, threads=1) != os.getpid()


def test_subjects_come_in_their_order_and_unknown_ones_are_refused() -> None:
    assert choose([], PROOFS) == choose(["all"], PROOFS) == list(PROOFS)
    assert choose(["loop", "GPT"], SUBJECTS) == ["gpt", "loop"]
    with pytest.raises(BadInput, match="Did you mean scaling"):
        choose(["scalling"], PROOFS)


def test_overhead_is_what_lies_between_the_steps() -> None:
    records = [MetricLine(10 * n, "train", 100 + 1.1 * n, {"step_time": 0.1}) for n in range(1, 6)]
    shares, around, step = overhead(records)
    assert shares == pytest.approx([1 - 1.0 / 1.1] * 3)
    assert around == pytest.approx(0.01)
    assert step == 0.1


def test_overhead_of_too_short_a_run_is_not_guessed() -> None:
    with pytest.raises(LabError, match="too few"):
        overhead([MetricLine(1, "train", 1.0, {"step_time": 0.1})])


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (Ratio(1.05, 1.04, 1.06, 20), "met", ""),
        (Ratio(1.02, 1.01, 1.03, 20), "short", "the profile says so"),
        (Ratio(1.05, 1.02, 1.08, 20), "cannot tell", "telling it from 1.040 takes about 360 rounds."),
        (
            Ratio(1.05, 1.02, 1.08, 20, each="processes"),
            "cannot tell",
            "telling it from 1.040 takes about 360 processes.",
        ),
        (over_rounds([1.05, 1.06]), "cannot tell", "four times in five, telling it from 1.040 takes"),
        (over_rounds([1.059, 1.06, 1.061]), "met", ""),
        (over_rounds([1.05]), "cannot tell", "one round says nothing of its noise."),
        (Ratio(1.11, 1.09, 1.13, 20), "cannot tell", "it lies above what arithmetic allows: something else differed"),
        (Ratio(1.09, 1.07, 1.11, 20), "cannot tell", "but its middle lies above what arithmetic allows"),
    ],
)
def test_a_ratio_is_met_or_short_only_where_its_whole_interval_is_and_arithmetic_allows_it(
    found: Ratio, verdict: str, words: str
) -> None:
    section = section_with()
    section.claim_ratio("a layer", "1.04x", found, at_least=1.04, impossible_above=1.08, why="the profile says so")
    [claim] = section.claims
    assert claim.verdict == verdict
    assert words in claim.why


def section_with(*claims: SpeedClaim) -> ClaimSection:
    return ClaimSection("gpt", "GPT", [BenchTable("T", ["a|b"], [["1|2"]], "read so")], claims=list(claims))


def test_the_page_names_the_machine_and_says_what_was_not_reached() -> None:
    short = SpeedClaim("a step", "2x", "1.5x", False, why="the profile says so")
    section = section_with(short, SpeedClaim("b", "1", "1", True))
    report = measure({"gpt": lambda effort: section}, Effort(False, 1), "make bench")
    page = markdown(report)
    assert report.machine.cpu in page
    assert "| a step | 2x | 1.5x | short |" in page
    assert "the profile says so" in page
    assert "| 1/2 |" in page
    assert json.loads(json.dumps(report.as_dict()))["sections"][0]["claims"][1]["verdict"] == "met"


def test_quick_figures_are_marked_as_worthless() -> None:
    section = section_with(SpeedClaim("a step", "2x", "3x", True))
    report = measure({"gpt": lambda effort: section}, Effort(True, 1), "make bench")
    not_judged(report.sections)
    assert "Quick mode" in markdown(report)
    assert section.claims[0].verdict == "not judged"
    assert next(claim_lines(report.sections)).startswith("not judged")


def test_make_bench_prints_claims_and_writes_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    monkeypatch.setitem(PROOFS, "gpt", lambda effort: section_with(SpeedClaim("a step", "2x", "3x", True)))
    monkeypatch.setenv("OELM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpt", "--out", str(tmp_path / "docs" / "page.md")])
    benchmarks_main()
    printed = capsys.readouterr().out
    assert "a step" in printed
    assert "met" in printed
    assert (tmp_path / "docs" / "page.md").read_text().startswith("# Performance")
    (kept,) = (tmp_path / "home" / "bench").glob("*.json")
    assert json.loads(kept.read_text())["sections"][0]["claims"][0]["found"] == "3x"


def test_the_command_prints_tables_or_json_and_keeps_every_figure(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    from oelm_tui.commands.bench import apps

    made = BenchSection("gpt", "GPT", [BenchTable("A step", ["variant", "time"], [["baseline", "3 s"]])], {"steps": 3})
    monkeypatch.setattr("oelm_core.bench.subjects.measure_gpt", lambda effort: made)
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    printed = CliRunner().invoke(apps["bench"], ["gpt"])
    assert "baseline" in printed.stdout
    assert "3 s" in printed.stdout
    (kept,) = (tmp_path / "bench").glob("*.json")
    assert json.loads(kept.read_text())["sections"][0]["raw"] == {"steps": 3}
    as_json = CliRunner().invoke(apps["bench"], ["gpt", "--json", "--quick"])
    assert json.loads(as_json.stdout)["quick"] is True
