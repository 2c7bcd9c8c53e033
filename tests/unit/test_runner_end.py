"""The end of an attempt: its final state is written, whatever becomes of what is done beside it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from oelm_core.launch import lease, suspects
from oelm_core.launch.acquire import Devices
from oelm_core.launch.runner import Runner
from oelm_core.runs import ledger, outcomes
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.schema import Outcome, RunRecord, RunState
from oelm_core.runs.status import RunStatus

FAULT = RunStatus("failed", "gpu_fault", "CUDA error: uncorrectable ECC error encountered.")


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("OELM_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    folder = create(tmp_path / "runs", RunRecord(preset="arm", config={}, devices_asked="cpu", per_run=2), None)
    made = Runner(folder, RunRecord(preset="arm", config={}), None)
    made.claim(force=False)
    return made


def give(runner: Runner, kind: str, devices: list[str], labels: list[str]) -> None:
    taken = [one for device in devices if (one := lease.take(device, runner.folder.id))]
    assert len(taken) == len(devices)
    runner.taken = Devices(kind, taken, labels, [])


def ended(folder: RunFolder) -> RunState:
    state = folder.read(RunState)
    assert state is not None
    return state


def test_a_disk_that_is_full_while_it_queues_is_named(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oelm_core.launch.queue.replace_file", full)
    end = runner.run_attempt()
    assert (end.state, end.reason) == ("failed", "disk")
    assert str(end.message).endswith("No space left on device.")


def test_words_of_a_broken_card_in_a_run_on_processors_make_no_core_suspect(runner: Runner) -> None:
    give(runner, "cpu", ["core-0", "core-1"], [])
    runner.conclude(FAULT)
    assert (ended(runner.folder).state, ended(runner.folder).message) == ("failed", FAULT.message)
    assert suspects.suspicion("core-0") is None
    assert lease.holder("core-0") is None


def test_of_two_cards_the_one_whose_rank_spoke_of_a_fault_is_suspect(runner: Runner) -> None:
    give(runner, "cuda", ["GPU-a", "GPU-b"], ["0", "1"])
    outcomes.write(runner.folder, 1, Outcome("failed", "gpu_fault"))
    runner.conclude(FAULT)
    assert (ended(runner.folder).message or "").endswith("GPU 1 is suspect until `oelm gpus --trust 1`.")
    assert suspects.suspicion("GPU-b") is not None
    assert suspects.suspicion("GPU-a") is None


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (suspects, "mark", "no card was marked as suspect: ValueError: broken"),
        (ledger, "append", "the ledger does not have this end: ValueError: broken"),
    ],
)
def test_the_end_is_written_though_what_is_done_beside_it_fails_and_the_log_says_so(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, module: object, name: str, said: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(module, name, broken)
    give(runner, "cuda", ["GPU-a"], ["0"])
    runner.conclude(FAULT)
    assert (ended(runner.folder).state, ended(runner.folder).reason) == ("failed", "gpu_fault")
    assert said in runner.folder.log.read_text()
    assert lease.holder("GPU-a") is None


def test_a_notice_that_cannot_be_given_is_in_the_log(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: RunFolder) -> None:
        raise ValueError("broken")

    (runner.folder.path.parent.parent / "settings.yaml").write_text("notify: 'true'\n")
    monkeypatch.setattr("oelm_core.notify.tell", broken)
    runner.conclude(RunStatus("failed", "error", "It failed."))
    runner.notify()
    assert "nobody was told of the end: ValueError: broken" in runner.folder.log.read_text()
