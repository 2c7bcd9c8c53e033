"""A run that reports elsewhere: its bridge is a process of its own, which the run neither waits for nor fails with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oelm_core.launch import local
from oelm_core.mirror import bridge, targets
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from tests import needs
from tests.chaos.lab import Lab, open_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as opened:
        yield opened


def bridges(run: RunFolder) -> list[int]:
    return process.with_argument(f"--of={run.path}")


@needs.tensorboard
def test_the_curves_of_a_run_and_of_its_resume_come_to_tensorboard_once(lab: Lab) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = lab.start(steps=40, report_to=("tensorboard",))
    lab.until(lambda: lab.step(run) > 12, what="some steps")
    first = bridges(run)
    assert first
    assert process.stat_fields(first[0])[16] == "19"  # type: ignore[index]  # nice
    local.stop(run, now=True)  # without a checkpoint: some steps come again
    assert lab.end(run).state == "stopped"
    lab.until(lambda: bridge.records(run), what="the first points")
    local.resume(run)
    assert lab.end(run).state == "finished"
    lab.until(lambda: not bridges(run), what="the end of the bridges")
    (kept,) = bridge.records(run)
    assert kept.problem is None
    (folder,) = (lab.root.parent / "tensorboard").iterdir()
    assert folder.name == run.id
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    steps = Counter(one.step for one in found.Scalars("train/loss"))
    assert steps == Counter(range(1, 41))
    assert len(found.Scalars("result/accuracy")) == 1
    assert (run.path / "mirror" / "tensorboard.log").read_text() == ""


def test_a_library_that_is_missing_is_said_in_the_log_and_the_run_goes_on(lab: Lab) -> None:
    target = next((name for name in targets.TARGETS if targets.missing(name)), None)
    if target is None:
        pytest.skip("all targets are installed here (pip uninstall one of them)")
    run = lab.start(steps=3, report_to=(target,))
    assert lab.end(run).state == "finished"
    line = f"report_to {target}: {targets.missing(target)}"
    lab.until(lambda: line in run.log.read_text(), what="the sentence")
    lab.until(lambda: not bridges(run), what="the end of the bridge")
