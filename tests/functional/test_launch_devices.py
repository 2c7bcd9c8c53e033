"""Runs that want cards, on a machine with a pretend driver: who waits for what, and who gets which."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oelm_core.errors import NotFound
from oelm_core.launch import launcher, local
from oelm_core.launch.request import RunRequest
from oelm_core.runs import attempts
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, MachineState, RunRecord, Tuning
from oelm_core.runs.status import run_status
from tests import fake_nvml, needs
from tests.chaos.lab import Lab, experiment, open_lab
from tests.fake_nvml import GB, Machine, card, uuid
from tests.functional.oelm import Oelm

pytestmark = [needs.compiler, pytest.mark.xdist_group("processes")]

SLOW = 100_000


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as opened:
        yield opened


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two idle cards."""
    made = Machine(tmp_path, library, card(0), card(1))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def cards(run: RunFolder) -> list[str]:
    return (attempts.last(run) or Attempt()).leases


def attempt(run: RunFolder) -> Attempt:
    found = attempts.last(run)
    assert found is not None
    return found


def before(run: RunFolder) -> MachineState:
    """The machine as it was before the last attempt's worker."""
    machine = attempt(run).machine
    assert machine is not None
    return machine.before


def says(lab: Lab, run: RunFolder, words: str) -> bool:
    return bool(lab.until(lambda: words in (run_status(run).message or ""), what=f"'{words}'"))


def test_a_run_gets_a_free_card_by_uuid_and_two_runs_never_the_same(lab: Lab, machine: Machine) -> None:
    first, second = lab.start(steps=SLOW, device="auto"), lab.start(steps=SLOW, device="auto")
    for run in (first, second):
        lab.worker(run)
    assert sorted(cards(first) + cards(second)) == [uuid(0), uuid(1)]
    assert f"CUDA_VISIBLE_DEVICES={cards(first)[0]}" in first.log.read_text()
    assert "OELM_DEVICE=cuda" in first.log.read_text()
    third = lab.start(steps=3, device="auto")
    assert says(lab, third, f"GPU 0 used by run {first.id}")
    local.stop(second, now=True)
    assert lab.end(third).state == "finished"
    assert cards(third) == cards(second)
    assert [card.temperature for card in before(third).gpus or []] == [41, 41]


def test_a_card_with_somebody_elses_work_is_waited_for_by_name_and_avoided_by_auto(lab: Lab, machine: Machine) -> None:
    stranger = fake_nvml.process(999_999_999, 18_200_000_000)
    machine.show(card(0, used=19 * GB), stranger, card(1))
    named = lab.start(steps=3, device="0")
    assert says(lab, named, "GPU 0 used by another user, pid 999999999, 17.0 GiB")
    auto = lab.start(steps=3, device="auto")
    assert lab.end(auto).state == "finished"
    assert cards(auto) == [uuid(1)]
    machine.show(card(0), card(1))
    assert lab.end(named).state == "finished"
    assert cards(named) == [uuid(0)]


def test_a_card_that_is_not_there_is_refused_with_those_that_are(lab: Lab, machine: Machine) -> None:
    with pytest.raises(NotFound, match="no GPU 7; this machine has 0, 1"):
        lab.start(steps=3, device="7")
    assert not lab.root.exists()


def test_a_broken_driver_fails_the_run_instead_of_training_on_the_processor(lab: Lab, machine: Machine) -> None:
    machine.show(f"driver init={fake_nvml.MISMATCH}\n")
    end = lab.end(lab.start(steps=3, device="auto"))
    assert end[:2] == ("failed", "config")
    assert "differ in version" in (end.message or "")


def test_where_cards_cannot_be_seen_auto_is_refused_at_once_and_by_a_runner_that_comes_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    refusal = Oelm(lab.folder / "home").refusal("run", "demo-gpt-baseline", "demo-gpt-oelm", code=3)
    assert "there are cards here (SLURM_JOB_GPUS=0) but the driver shows none" in refusal
    assert not lab.root.exists()
    end = lab.end(local.start(RunRequest(experiment(steps=3), 1, command=("test",)), checked=True))
    assert end[:2] == ("failed", "config")
    assert f"oelm: {end.message}" == refusal.strip()
    assert lab.end(lab.start(steps=3, device="cpu")).state == "finished"


def test_a_card_that_failed_is_kept_from_the_queue_until_it_is_trusted(
    lab: Lab, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAIL", "outcome:gpu_fault")
    failed = lab.start(steps=SLOW, device="0")
    end = lab.end(failed)
    assert end[:2] == ("failed", "gpu_fault")
    assert "GPU 0 is suspect until `oelm gpus --trust 0`." in (end.message or "")
    monkeypatch.delenv("STAND_IN_FAIL")
    auto = lab.start(steps=3, device="auto")
    assert lab.end(auto).state == "finished"
    assert cards(auto) == [uuid(1)]
    named = lab.start(steps=3, device="0")
    assert says(lab, named, f"the card it may take is suspect: GPU 0 is suspect since run {failed.id} failed on it")
    oelm = Oelm(lab.root.parent)
    assert "GPU 0 is suspect and not handed out until `oelm gpus --trust 0`" in oelm("gpus").stdout
    assert oelm("gpus", "--trust", "0").stdout == "GPU 0 is handed out again.\n"
    assert lab.end(named).state == "finished"
    assert oelm("gpus", "--trust", "0").stdout == "GPU 0 is not suspect.\n"
    assert "no GPU 7; this machine has 0, 1" in oelm.refusal("gpus", "--trust", "7", code=3)


def test_a_run_wanting_both_cards_takes_both_or_none_and_is_not_starved(lab: Lab, machine: Machine) -> None:
    first = lab.start(steps=SLOW, device="auto")
    lab.worker(first)
    both = lab.start(steps=3, device="0,1", per_run=2)
    assert says(lab, both, f"used by run {first.id}")
    assert cards(both) == []
    later = lab.start(steps=3, device="auto")
    assert says(lab, later, "behind 1 earlier run")  # the free card is kept for the one who came first
    assert cards(later) == []
    local.stop(both)
    assert lab.end(both)[:2] == ("stopped", "user")
    assert lab.end(later).state == "finished"


def test_a_study_alternates_its_arms_on_each_card(lab: Lab, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_STEP", "0.001")
    arms = [experiment("a", steps=2), experiment("b", steps=2, baseline="a")]
    requests = [RunRequest(arm, seed, study="s", command=("test",)) for seed in (42, 43, 44) for arm in arms]
    runs = launcher.start_all("local", requests)
    for run in runs:
        assert lab.end(run).state == "finished"
    began = {run: before(run).t or 0.0 for run in runs}
    for first, second in zip(runs[::2], runs[1::2], strict=True):
        assert cards(first) == cards(second)
    for name in (uuid(0), uuid(1)):
        order = [run.id[0] for run in sorted(runs, key=began.__getitem__) if cards(run) == [name]]
        assert order == ["a", "b"] * (len(order) // 2)
    assert [(run.read(RunRecord) or RunRecord(config={})).seed for run in runs] == [42, 42, 43, 43, 44, 44]


def test_draws_of_a_tuning_take_whatever_card_is_free(
    lab: Lab, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [experiment("a", steps=SLOW), experiment("b", steps=SLOW, baseline="a")]
    draw = Tuning("t", "draw", 1, ())
    runs = launcher.start_all("local", [RunRequest(arm, 41, study="s", command=("test",), tuning=draw) for arm in arms])
    for run in runs:
        lab.worker(run)
    assert sorted(card for run in runs for card in cards(run)) == sorted([uuid(0), uuid(1)])


@needs.two_cores
def test_the_arms_of_a_study_share_all_cores_of_a_processor(lab: Lab) -> None:
    """Tied to the core of its baseline, every other arm of a seed waited while the other cores idled."""
    arms = [experiment("a", steps=SLOW), experiment("b", steps=SLOW, baseline="a")]
    runs = launcher.start_all(
        "local", [RunRequest(arm, 42, device="cpu", study="s", command=("test",)) for arm in arms]
    )
    for run in runs:
        lab.worker(run)


def test_a_pause_lies_between_two_runs_on_one_device(lab: Lab, machine: Machine) -> None:
    first = lab.start(steps=2, device="1", pause=0.7)
    second = lab.start(steps=2, device="1", pause=0.7)
    assert lab.end(first).state == lab.end(second).state == "finished"
    assert (before(second).t or 0.0) - (attempt(first).ended or 0.0) >= 0.6


def test_a_lease_another_user_keeps_closed_is_said_and_another_card_taken(lab: Lab, machine: Machine) -> None:
    lab.leases.mkdir(parents=True)
    (
        lab.leases / f"{uuid(0)}.lease"
    ).mkdir()  # stands for a file that may not be opened, also where root runs the tests
    named = lab.start(steps=3, device="0")
    assert says(lab, named, "cannot open")
    auto = lab.start(steps=3, device="auto")
    assert lab.end(auto).state == "finished"
    assert cards(auto) == [uuid(1)]


@pytest.mark.slow
@needs.two_cores
def test_killing_one_of_two_ranks_leaves_nobody_and_both_resume(lab: Lab) -> None:
    run = lab.start(steps=SLOW, per_run=2)
    lab.until(lambda: lab.step(run) > 0 and run.log.read_text().count("WORLD_SIZE=2") == 2, 180, "two ranks")
    workers = lab.until(lambda: len(found := lab.state(run).workers) >= 2 and found, 60, "their record")
    assert attempt(run).world_size == 2
    os.kill(workers[-1].pid, 9)
    end = lab.end(run, 120)
    assert end == ("failed", "signal", "Rank 1 was killed by SIGKILL.")
    before = len(run.log.read_text())
    assert lab.all_gone()
    assert lab.held() == []
    local.resume(run)
    lab.until(lambda: "rank 1 starts at step" in run.log.read_text()[before:], 180, "the ranks again")
    local.stop(run)
    assert lab.end(run, 120)[:2] == ("stopped", "user")
    assert lab.all_gone()


def test_a_run_on_two_cards_says_before_it_starts_what_they_bring(lab: Lab, machine: Machine) -> None:
    told = Oelm(lab.root.parent)("run", "sst2-baseline", "--per-run", "2")
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.splitlines()) == 1
    assert told.stderr == (
        "oelm: sst2-baseline on 2 cards: what they bring is not known here;"
        " measure it with: oelm doctor --gpu --cards 0,1\n"
    )
    refused = Oelm(lab.root.parent).refusal("run", "sst2-baseline", "--per-run", "2", "--after", "nothing", code=3)
    assert "no run 'nothing'" in refused
