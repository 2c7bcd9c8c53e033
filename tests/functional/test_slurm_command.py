"""The `oelm` command with --launcher slurm, against a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from oelm_core.runs.folder import RunFolder
from tests.functional.oelm import Oelm
from tests.integration.conftest import SlurmLab, cluster, lab

__all__ = ["cluster", "lab"]
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
ON_SLURM = ("demo-gpt-baseline", "--launcher", "slurm", "--device", "cpu")


@pytest.fixture
def oelm(lab: SlurmLab) -> Oelm:
    return Oelm(lab.home, STAND_IN_STEP="0.05", COLUMNS="120")  # room for what Slurm says


def submit(oelm: Oelm, *options: str) -> RunFolder:
    ended = oelm("run", *ON_SLURM, *options)
    assert ended.returncode == 0, ended.stderr
    return RunFolder(oelm.home / "runs" / ended.stdout.strip())


def test_a_run_is_submitted_stopped_resumed_with_more_time_and_read(oelm: Oelm, lab: SlurmLab) -> None:
    run = submit(oelm, "--set", "train.max_steps=100000")
    lab.reaches(run, 5)
    assert "runs on" in oelm("runs").stdout
    assert "is stopped at step" in oelm("stop", run.id).stderr
    assert oelm("resume", run.id, "--slurm", "time=7").stdout.strip() == run.id
    assert "#SBATCH --time=7\n" in (run.path / "slurm" / "job.sh").read_text()
    lab.until(lambda: run.log.read_text().count("starts at step") == 2, run)
    assert (lab.attempts(run)[1].from_step or 0) >= 5
    assert oelm("logs", run.id).stdout.count("starts at step") == 2


def test_the_log_of_a_job_that_ended_before_its_run_is_slurms(oelm: Oelm, lab: SlurmLab) -> None:
    run = submit(oelm, "--slurm", "setup=echo no such module; exit 4")
    assert lab.end(run) == ("failed", "error")
    assert "no such module" in oelm("logs", run.id).stdout


def test_a_pending_job_is_not_called_stopped_while_slurm_is_away(oelm: Oelm, lab: SlurmLab, tmp_path: Path) -> None:
    run = submit(oelm, "--slurm", "partition=closed")
    lab.until(lambda: "waits: its partition is down" in (lab.look(run).message or ""), run)
    for name in ("squeue", "scancel"):  # as with a dead controller, which takes them twenty seconds to notice
        (tmp_path / name).write_text("#!/bin/sh\necho 'error: Unable to contact slurm controller' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    away = Oelm(oelm.home, PATH=f"{tmp_path}:{oelm.environment['PATH']}")
    assert "may stay in the queue" in away.refusal("stop", run.id, code=4)
    assert [one["state"] for one in oelm.json("runs")] == ["queued"]
    assert "is stopped" in oelm("stop", run.id).stderr
    assert lab.job(run) not in lab.cluster.call("squeue", "-h", "-o", "%i").split()


def test_what_cannot_be_submitted_leaves_nothing(oelm: Oelm, tmp_path: Path) -> None:
    assert "here: gpu, short, closed" in oelm.refusal("run", *ON_SLURM, "--slurm", "partition=nowhere", code=4)
    oelm.environment["PATH"] = str(tmp_path)
    assert "no sbatch on PATH" in oelm.refusal("run", *ON_SLURM, code=4)
    assert oelm.json("runs") == []
