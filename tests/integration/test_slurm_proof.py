"""`oelm doctor --gpu --launcher slurm` on a real Slurm: the checks as a job, and the signal that must reach it."""

from __future__ import annotations

import pytest

from oelm_core.errors import LabError, NotFound
from oelm_core.proof import slurm_job
from oelm_core.proof.record import read_proofs
from tests.functional.oelm import Oelm
from tests.integration.conftest import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


def test_a_proof_is_made_in_a_job_and_hears_slurms_signal(lab: SlurmLab) -> None:
    oelm = Oelm(lab.home)
    ended = oelm("doctor", "--gpu", "--launcher", "slurm", "--device", "cpu", "--check", "signal")
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert ended.stdout.startswith("job ")
    assert "signal" in ended.stdout
    assert "USR2 arrived after" in ended.stdout
    (proof,) = read_proofs(lab.home / "gpu-proof.json").cards
    assert proof.checks["signal"].ok
    assert "--check cloc: no such check" in oelm.refusal(
        "doctor", "--gpu", "--launcher", "slurm", "--check", "cloc", code=2
    )


def test_a_process_that_slurm_cannot_reach_is_found(lab: SlurmLab) -> None:
    """As in a container that keeps signals to itself: the process that waits is not the job's own."""
    script = (
        "import subprocess, sys; from oelm_core.proof import slurm_job;"
        "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN);"
        "inner = 'from oelm_core.proof import slurm_job; r = slurm_job.hear_signal(3); print(r.ok, r.measured)';"
        "sys.exit(subprocess.run([sys.executable, '-c', inner]).returncode)"
    )
    lines = list(slurm_job.follow(["-c", script], 0, []))
    assert "False USR2 did not arrive" in lines


def test_a_job_that_fails_and_a_site_without_cards_are_said(lab: SlurmLab) -> None:
    with pytest.raises(LabError, match="ended as FAILED; its output: "):
        list(slurm_job.follow(["-c", "raise SystemExit(1)"], 0, []))
    with pytest.raises(NotFound, match="asks for no cards"):
        list(slurm_job.follow(["-c", ""], 1, ["gres=null"]))
