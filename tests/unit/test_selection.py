"""Selection that a table must show: unequal search, deleted runs, chosen seeds, and plans that were not kept."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from oelm_core.compare import Comparison, Finding, Group, compare_runs, compare_study
from oelm_core.config import Experiment, Study, build_study, override
from oelm_core.config.catalogue import Catalogue
from oelm_core.report import render
from oelm_core.report.selection import selection_lines
from oelm_core.runs.ledger import LedgerEnd, about_run, append, read_ledger
from oelm_core.runs.schema import RunRecord
from oelm_core.runs.store import Run, list_runs
from oelm_core.runs.tried import everything_tried, search_effort
from oelm_core.study.registration import Plan, plan_of, register, registrations
from tests.run_factory import FROZEN, START, experiment, write_run

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
CATALOGUE = Catalogue({arm.id: arm for arm in (BASE, OELM)})


def study_of(seeds: Sequence[int] = (42, 43, 44)) -> Study:
    content = {"id": "rev", "title": "t", "question": "q?", "arms": [BASE.id, OELM.id], "seeds": list(seeds)}
    return build_study(content, "here")


class Lab:
    """A lab whose runs are written down in its ledger as real ones are."""

    def __init__(self, home: Path) -> None:
        self.root = home / "runs"
        self.made = 0

    def run(self, arm: Experiment, *seeds: int, score: float = 0.9, told: bool = True, **options: object) -> list[Run]:
        runs = []
        for seed in seeds:
            self.made += 1
            run = write_run(self.root, arm, seed=seed, number=self.made, score=score, **options)  # type: ignore[arg-type]
            if told:
                self.tell("launched", run)
            runs.append(run)
        return runs

    def tell(self, event: str, run: Run) -> None:
        record = run.folder.read(RunRecord)
        assert record is not None
        end = LedgerEnd(run.state, run.reason, run.metric_name, run.metric_value) if event != "launched" else None
        append(about_run(event, run.id, record, end), self.root)  # type: ignore[arg-type]

    def delete(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.tell("deleted", run)
            shutil.rmtree(run.path)

    def register(self, seeds: Sequence[int] = (42, 43, 44), when: float = START, *settings: str) -> str:
        """As a launch does; at a time before the runs."""
        plan = plan_of(study_of(), [override(arm, settings) for arm in (BASE, OELM)], seeds)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("oelm_core.study.registration.time.time", lambda: when)
            made = register(plan, self.root)
        assert made is not None
        return made.hash

    def table(self, study: Study | None = None) -> Group:
        [group] = self.comparison(study).groups
        return group

    def comparison(self, study: Study | None = None) -> Comparison:
        return compare_study(study or study_of(), list_runs(self.root), CATALOGUE)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "home")


def about(group: Group, code: str) -> list[Finding]:
    return [finding for finding in group.audit if finding.code == code]


# -- search ------------------------------------------------------------------------------------------------------------


def test_equal_search_is_counted_and_is_no_finding(lab: Lab) -> None:
    for arm in (BASE, OELM):
        lab.run(arm, 42, 43, 44)
    group = lab.table()
    assert about(group, "search") == []
    assert group.search[OELM.id] == group.search[BASE.id]
    assert selection_lines(group)[0] == "Tried: 1 configuration, 3 runs of each arm."


def test_the_best_of_eight_rates_against_a_baseline_run_once_is_confounded(lab: Lab) -> None:
    lab.run(BASE, 42)
    for number in range(8):
        lab.run(override(OELM, [f"train.lr={number + 1}e-4"]), 42, score=0.9 + number / 1000)
    best, baseline = list_runs(lab.root)[0], list_runs(lab.root)[-1]
    for group in (compare_runs([best, baseline], CATALOGUE).groups[0], lab.table()):
        assert group.search[BASE.id].configurations == 1
        found = [one for one in about(group, "search") if one.grade == "confounds"]
        assert found[0].why.startswith("8 configurations were tried for rev-oelm")
        assert found[0].why.endswith("the best of 8 is a luckier best than one that was run once.")


def test_what_was_deleted_still_counts_as_search(lab: Lab) -> None:
    lab.run(BASE, 42)
    for number in range(1, 9):
        runs = lab.run(override(OELM, [f"train.lr={number}e-4"]), 42)
        if number < 8:
            lab.delete(runs)
    group = lab.table()
    assert (group.search[OELM.id].configurations, group.search[OELM.id].deleted) == (8, 7)
    assert {finding.grade for finding in about(group, "search")} == {"confounds"}


def test_two_configurations_against_one_are_a_note(lab: Lab) -> None:
    lab.run(BASE, 42)
    for lr in ("1e-3", "2e-3"):
        lab.run(override(OELM, [f"train.lr={lr}"]), 42)
    assert {finding.grade for finding in about(lab.table(), "search")} == {"note"}


def test_a_copy_of_the_preset_with_another_rate_is_one_more_configuration(lab: Lab) -> None:
    """Eight files with a rate each are the same search as eight times --set."""
    lab.run(BASE, 42)
    lab.run(OELM, 42)
    for number in range(2, 9):
        copy = experiment(f"rev-copy-{number}", method=FROZEN, baseline="rev-baseline")
        lab.run(override(copy, [f"train.lr={number}e-4"]), 42, told=number % 2 == 0)
    assert lab.table().search[OELM.id].configurations == 8
    assert lab.table().search[BASE.id].configurations == 1


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_best_three_of_ten_seeds_do_not_stand(lab: Lab, by_hand: bool) -> None:
    lab.run(BASE, 42, 43, 44, score=0.85)
    bad = lab.run(OELM, *range(45, 52), score=0.8)
    lab.run(OELM, 42, 43, 44, score=0.9)
    if by_hand:  # rm -r
        for run in bad:
            lab.tell("ended", run)
            shutil.rmtree(run.path)
    else:
        lab.delete(bad)
    group = lab.table()
    [finding] = [one for one in about(group, "search") if one.grade == "breaks"]
    assert finding.why == (
        "7 runs of rev-oelm with the configuration shown here were deleted (seeds 45-51, "
        "80.00 %): the seeds that are left were chosen."
    )
    assert group.broken(OELM.id) == finding
    assert "rev-oelm: 1 configuration, 10 runs, 7 deleted" in selection_lines(group)[0]


def test_good_seeds_of_the_baseline_that_were_deleted_break_the_gap_too(lab: Lab) -> None:
    lab.run(OELM, 42, 43, 44)
    lab.delete(lab.run(BASE, 45, 46, score=0.95))
    lab.run(BASE, 42, 43, 44, score=0.85)
    assert lab.table().broken(OELM.id) is not None


def test_a_deleted_run_that_told_nothing_is_counted_and_no_more(lab: Lab) -> None:
    lab.run(BASE, 42)
    lab.run(OELM, 42)
    lab.delete(lab.run(OELM, 43, state="failed", reason="oom", curve=[]))
    group = lab.table()
    assert (group.search[OELM.id].failed, group.search[OELM.id].deleted) == (1, 1)
    assert about(group, "search") == []


def test_a_diverged_run_that_was_deleted_tells_much(lab: Lab) -> None:
    lab.run(BASE, 42)
    lab.run(OELM, 42)
    lab.delete(lab.run(OELM, 43, state="failed", reason="nonfinite", curve=[]))
    group = lab.table()
    assert group.search[OELM.id].diverged == 1
    assert "1 diverged" in about(group, "search")[0].why
    assert group.broken(OELM.id) is not None


def test_a_seed_run_again_after_its_result_was_deleted_is_confounded(lab: Lab) -> None:
    lab.run(BASE, 42)
    lab.delete(lab.run(OELM, 42, score=0.7))
    lab.run(OELM, 42)
    assert [finding.grade for finding in about(lab.table(), "search")] == ["confounds"]


def test_naming_the_best_runs_alone_is_seen(lab: Lab) -> None:
    named = lab.run(BASE, 42)
    lab.run(OELM, 43, 44, score=0.8)
    named += lab.run(OELM, 42)
    [group] = compare_runs(named, CATALOGUE).groups
    [finding] = about(group, "search")
    assert finding.grade == "confounds"
    assert "2 runs of rev-oelm" in finding.why
    assert "seeds 43 and 44, 80.00 %" in finding.why


def named(runs: Sequence[Run]) -> Group:
    [group] = compare_runs(runs, CATALOGUE).groups
    return group


@pytest.mark.parametrize(
    ("state", "reason", "more", "grade", "words"),
    [
        ("failed", "nonfinite", {"curve": []}, "confounds", "(seeds 50 and 51: 2 diverged): the seeds were chosen."),
        ("stopped", "user", {"score": 0.8}, "confounds", ": 2 stopped by hand): the seeds were chosen."),
        ("stopped", "user", {"curve": []}, "note", "(seeds 50 and 51: 2 stopped by hand)."),
        ("failed", "oom", {"score": 0.8}, "note", "(seeds 50 and 51: 2 failed (oom))."),
        ("stopped", "node_fail", {"score": 0.8}, "note", "(seeds 50 and 51: 2 stopped (node_fail))."),
    ],
)
def test_seeds_that_ended_badly_cannot_be_left_out_in_silence(lab: Lab, state, reason, more, grade, words) -> None:
    shown = lab.run(BASE, 42, 43) + lab.run(OELM, 42, 43)
    lab.run(OELM, 50, 51, state=state, reason=reason, **more)
    [finding] = about(named(shown), "search")
    assert finding.grade == grade
    assert finding.why.startswith("2 runs of rev-oelm with the configuration shown here")
    assert finding.why.endswith(words)


def test_a_shown_seed_that_diverged_at_first_was_run_until_it_did_not(lab: Lab) -> None:
    lab.run(OELM, 42, state="failed", reason="nonfinite", curve=[])
    [finding] = about(named(lab.run(BASE, 42) + lab.run(OELM, 42)), "search")
    assert finding.grade == "confounds"
    assert "1 diverged): which one stands was a choice." in finding.why


@pytest.mark.parametrize("reason", ["user", "timeout"])
def test_a_study_whose_bad_seeds_were_stopped_by_hand_is_confounded(lab: Lab, reason: str) -> None:
    lab.run(BASE, 42, 43, 44)
    lab.run(OELM, 42)
    stopped = lab.run(OELM, 43, 44, state="stopped", reason=reason, score=0.7)
    found = about(lab.table(), "unfinished")
    if reason == "timeout":
        assert {finding.grade for finding in found} == {"note"}
        return
    [finding] = found
    assert (finding.grade, finding.why) == (
        "confounds",
        "2 seeds of rev-oelm were stopped by hand at step 200, after 2 validations: "
        "what they would have given is not known.",
    )
    assert set(finding.settle_with.split()[2:]) == {run.id for run in stopped}  # type: ignore[union-attr]


def test_one_pair_picked_from_four_rates_is_seen_though_both_arms_tried_as_many(lab: Lab) -> None:
    shown: list[Run] = []
    for lr in ("1e-3", "2e-3", "3e-3", "4e-3"):
        shown = [run for arm in (BASE, OELM) for run in lab.run(override(arm, [f"train.lr={lr}"]), 42, 43)]
    [finding] = about(named(shown), "search")
    assert (finding.grade, finding.settle_with) == ("confounds", "oelm compare --all")
    assert finding.why.startswith("12 runs of rev-baseline and rev-oelm with 6 configurations not shown here")
    assert about(named(list_runs(lab.root)), "search") == []


def test_the_same_configuration_under_another_preset_is_no_other_run(lab: Lab) -> None:
    shown = lab.run(BASE, 42, 43) + lab.run(OELM, 42, 43)
    lab.run(experiment("my-own", method=FROZEN, baseline="rev-baseline"), 50, 51, 52, score=0.8)
    [finding] = about(named(shown), "search")
    assert finding.grade == "confounds"
    assert "3 runs of rev-oelm with the configuration shown here are not among those compared" in finding.why


def test_runs_that_the_ledger_does_not_know_are_noted_once(lab: Lab) -> None:
    strange = lab.run(BASE, 42, 43, told=False) + lab.run(OELM, 42, told=False)
    [finding] = about(named(strange), "search")
    assert finding.grade == "note"
    assert finding.why == "the ledger does not know any of these 3 runs: what else was tried is not counted."
    [finding] = about(named(strange + lab.run(OELM, 43)), "search")
    assert finding.why == "the ledger does not know 3 of these 4 runs: what else was tried is not counted."


def test_imported_runs_need_no_ledger(lab: Lab) -> None:
    runs = lab.run(BASE, 42, told=False, run={"imported": {"fingerprint": "a"}})
    runs += lab.run(OELM, 42, told=False, run={"imported": {"fingerprint": "b"}})
    assert all(run.imported for run in runs)
    assert about(named(runs), "search") == []


def test_a_diverged_run_is_a_result_in_a_study_and_by_name(lab: Lab) -> None:
    runs = lab.run(BASE, 42, 43) + lab.run(OELM, 42)
    runs += lab.run(OELM, 43, state="failed", reason="nonfinite", score=0.7)
    for group in (named(runs), lab.table()):
        assert about(group, "unfinished") == []
        [finding] = about(group, "diverged")
        assert finding.why == "1 of 2 runs of rev-oelm diverged: in the test they count as the worst."


def test_runs_older_than_the_ledger_count(lab: Lab) -> None:
    old, new = lab.run(OELM, 42, told=False), lab.run(OELM, 43)
    tried = everything_tried(list_runs(lab.root), read_ledger(lab.root).events)
    assert {one.id for one in tried} == {old[0].id, new[0].id}
    assert search_effort(tried, "REV-OELM").runs == 2


def test_a_broken_ledger_puts_the_counts_in_doubt(lab: Lab) -> None:
    lab.run(BASE, 42)
    lab.run(OELM, 42, 43)
    ledger = lab.root.parent / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:1]))
    [finding] = about(lab.table(), "search")
    assert finding.grade == "confounds"
    assert "the ledger is broken (the last line that was written is gone" in finding.why


# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_study_that_ran_as_registered_says_so(lab: Lab) -> None:
    name = lab.register()
    for arm in (BASE, OELM):
        lab.run(arm, 42, 43, 44)
    group = lab.table()
    assert group.registered is not None
    assert (group.registered.hash, group.registered.when, group.registered.deviations) == (name, START, ())
    assert selection_lines(group)[1].startswith(f"As registered {name[:8]} on 2026-02-0")
    assert about(group, "registration") == []
    comparison = lab.comparison()
    for layout in ("markdown", "html", "latex"):
        assert f"As registered {name[:8]}" in render(comparison, layout)
    assert comparison.to_json()["groups"][0]["registered"]["hash"] == name
    assert comparison.to_json()["groups"][0]["search"][OELM.id] == {
        "configurations": 1,
        "runs": 3,
        "failed": 0,
        "diverged": 0,
        "deleted": 0,
    }


@pytest.mark.parametrize("registered", [True, False])
def test_other_seeds_than_planned_do_not_stand(lab: Lab, registered: bool) -> None:
    if registered:
        lab.register((42, 43, 44))
    lab.run(BASE, 42, 43, 44)
    lab.run(OELM, 45, 47, 51)
    group = lab.table(study_of((42, 43, 44)))
    finding = group.broken(OELM.id)
    assert finding is not None
    assert finding.code == "registration"
    assert finding.why == ("rev-oelm has seeds 45, 47 and 51 and not seeds 42-44, as planned: the seeds were chosen.")
    assert group.registered is not None
    assert finding.why[:-1] in group.registered.deviations


def test_a_study_that_was_never_registered_is_noted(lab: Lab) -> None:
    for arm in (BASE, OELM):
        lab.run(arm, 42, 43, 44)
    group = lab.table()
    assert [finding.grade for finding in about(group, "registration")] == ["note"]
    assert selection_lines(group)[1] == "Never registered."


def test_what_became_of_a_missing_seed_is_told(lab: Lab) -> None:
    lab.register((42, 43, 44, 45, 46))
    lab.run(BASE, 42, 43, 44, 45, 46)
    lab.run(OELM, 42)
    lab.delete(lab.run(OELM, 43, score=0.7))
    lab.run(OELM, 44, state="failed", reason="nonfinite")
    lab.run(OELM, 45, state="running", reason=None)
    group = lab.table()
    assert group.registered is not None
    assert "rev-oelm, seed 43: ran as planned, deleted once the result was known" in group.registered.deviations
    [deleted] = [finding for finding in about(group, "search") if finding.grade == "breaks"]
    assert (deleted.why[:17], deleted.settle_with) == ("1 run of rev-oelm", "oelm run rev-oelm --seed 43")
    grades = {finding.why: finding.grade for finding in about(group, "registration")}
    assert grades == {
        "rev-oelm, seed 44: planned, diverged, which counts as the worst.": "note",
        "rev-oelm, seed 45: planned, begun, not finished.": "confounds",  # its runner is of another machine
        "rev-oelm, seed 46: planned, never run.": "note",
    }


def test_seeds_added_to_the_plan_are_noted(lab: Lab) -> None:
    lab.register((42,))
    lab.run(BASE, 42)
    lab.run(OELM, 42, 43)
    [finding] = about(lab.table(), "registration")
    assert finding.grade == "note"
    assert finding.why == (
        "rev-oelm, seed 43: added to what was planned. "
        "Seeds added after a look at the results make p too small (optional stopping)."
    )


def test_another_configuration_than_registered_does_not_stand(lab: Lab) -> None:
    lab.register((42,))
    lab.run(BASE, 42)
    lab.run(override(OELM, ["train.lr=9e-4"]), 42)
    [finding] = about(lab.table(), "registration")
    assert finding.grade == "breaks"
    assert "a configuration that was not planned, and the one that was planned is not here" in finding.why


def test_an_arm_that_was_planned_and_is_missing_is_named(lab: Lab) -> None:
    lab.register((42,))
    lab.run(BASE, 42)
    [finding] = about(lab.table(), "registration")
    assert finding.why == "rev-oelm was planned and has no result."


def test_a_plan_registered_after_the_runs_may_have_been_made_to_fit(lab: Lab) -> None:
    for arm in (BASE, OELM):
        lab.run(arm, 42)
    lab.register((42,), START + 86400)
    [finding] = about(lab.table(), "registration")
    assert finding.grade == "confounds"
    assert "after 2 of its runs had begun: it may have been made to fit them." in finding.why


def test_seeds_added_by_a_second_plan_are_said_to_be(lab: Lab) -> None:
    first = lab.register((42,))
    for arm in (BASE, OELM):
        lab.run(arm, 42)
    second = lab.register((42, 43), START + 3600)
    for arm in (BASE, OELM):
        lab.run(arm, 43)
    group = lab.table()
    assert first != second
    assert group.registered is not None
    assert group.registered.hash == second
    [finding] = about(group, "registration")
    assert finding.grade == "note"
    assert "it adds seeds to the one of 2026-02-0" in finding.why
    assert finding.why.endswith("make p too small (optional stopping).")


def test_the_same_plan_is_registered_once_and_another_beside_it(lab: Lab) -> None:
    first, again = lab.register(), lab.register(when=START + 60)
    other = lab.register((42, 43, 44), START + 120, "train.lr=9e-4")
    assert first == again != other
    told = registrations("REV", read_ledger(lab.root))
    assert [(one.hash, one.when) for one in told] == [(first, START), (other, START + 120)]
    files = sorted(path.name for path in (lab.root.parent / "studies").iterdir())
    assert files == sorted(f"rev-{name[:8]}.json" for name in (first, other))


def test_a_plan_that_was_edited_is_no_plan_any_more(lab: Lab) -> None:
    name = lab.register()
    path = lab.root.parent / "studies" / f"rev-{name[:8]}.json"
    path.write_text(path.read_text().replace("42", "45"))
    for arm in (BASE, OELM):
        lab.run(arm, 43, 44, 45)
    [finding] = about(lab.table(), "registration")
    assert finding.grade == "confounds"
    assert f"the plan registered as {name[:8]} is gone or was changed" in finding.why


def test_a_plan_holds_arms_seeds_margins_comparisons_and_data(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\ngood,1\n")

    def planned(*settings: str, seeds: Sequence[int] = (42,)) -> Plan:
        return plan_of(study_of(), [override(arm, [f"data.path={tmp_path}", *settings]) for arm in (BASE, OELM)], seeds)

    plan = planned()
    assert [arm.preset for arm in plan.arms] == [BASE.id, OELM.id]
    assert plan.arms[1].target == {"metric": "accuracy", "above": 0.8}
    assert plan.comparisons == [(OELM.id, BASE.id)]
    assert (plan.data[0].name, plan.data[0].path) == ("reviews", None)
    assert plan.hash == planned().hash
    different = [planned(seeds=(42, 43)), planned("train.lr=9e-4"), planned("target.above=0.7")]
    (tmp_path / "train.csv").write_text("text,label\nbad,0\n")
    different.append(planned())  # other text under the same name
    assert len({plan.hash, *(one.hash for one in different)}) == 5


def test_a_table_of_test_scores_says_how_often_the_test_set_was_looked_at(tmp_path):
    lab = Lab(tmp_path)
    scored = {"test": {"values": {"accuracy": 0.9}, "step": 400, "examples": 50, "source": "test", "fingerprint": "t"}}
    shown = [run for arm in (BASE, OELM) for run in lab.run(arm, 42, 43, result=scored)]
    other = lab.run(override(OELM, ["train.lr=0.5"]), 42, told=False, result=scored)

    def look(run: Run, text: str = "t") -> None:
        record = run.folder.read(RunRecord)
        assert record is not None
        event = about_run("looked-at-test", run.id, record)
        event.data = text
        append(event, lab.root)

    for run in shown:
        look(run)
    (group,) = compare_runs(shown, CATALOGUE).groups
    assert group.basis == "test"
    assert "Test set looked at once by each run." in selection_lines(group)
    look(shown[0])
    look(other[0])
    look(other[0], "another text")
    (group,) = compare_runs(shown, CATALOGUE).groups
    assert "Test set looked at 6 times, by 5 runs, of which 4 are shown." in selection_lines(group)
