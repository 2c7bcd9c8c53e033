"""The same proof as a job: Slurm gives the cards, its log is followed, and its signal must arrive. No torch."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from oelm_core.errors import LabError, NotFound, Refused, refusing
from oelm_core.home import home
from oelm_core.launch.slurm.commands import about_jobs, call
from oelm_core.launch.slurm.script import sbatch_options
from oelm_core.launch.slurm.site import explain, load_site
from oelm_core.launch.spawn import importable
from oelm_core.proof.checks import CHECKS
from oelm_core.proof.record import CheckResult

IN_JOB = "OELM_PROOF_JOB"
"""Says to the process in the job that it is one."""
HEARD_WITHIN = 60.0
LOOK_EVERY = 1.0


def follow(command: Sequence[str], cards: int, settings: Sequence[str]) -> Iterator[str]:
    """Submits `python` with these arguments as a job and gives the lines that it prints; LabError where it failed.

    cards: how many Slurm is to give, 0 for none. settings: texts of --slurm.
    """
    site = load_site(None, settings).model_copy(update={"nodes": 1})
    if cards and not site.gres:
        raise NotFound("slurm.yaml asks for no cards (gres); `oelm doctor` proposes one for this cluster.")
    name = f"oelm-gpu-proof-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder = home() / "gpu-proof" / name
    log, script = folder / "job.log", folder / "job.sh"
    options = sbatch_options(site, name=name, output=str(log), cards=cards, per_run=max(1, cards), cwd=Path.cwd())
    ours = importable(dict(os.environ))
    variables: dict[str, str] = {key: ours[key] for key in ("PYTHONPATH", "PYTHONSAFEPATH") if key in ours}
    variables |= {"OELM_HOME": str(home()), IN_JOB: "1", "PYTHONUNBUFFERED": "1"}
    lines = [
        "#!/bin/bash",
        "# The proof of a card of OELM Lab: oelm doctor --gpu --launcher slurm.",
        *(f"#SBATCH {option}" for option in options if option != "--requeue"),
        "",
        *(f"export {key}={shlex.quote(value)}" for key, value in variables.items()),
        *site.setup,
        f"exec {shlex.join([*(shlex.split(site.python) if site.python else [sys.executable]), *command])}",
    ]
    with refusing(f"cannot write {script}"):
        folder.mkdir(parents=True)
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = call("sbatch", "--parsable", str(script), patience=60)
    if not answer.ok:
        raise Refused(explain(answer.error, site))
    job = answer.out.strip().partition(";")[0]
    yield f"job {job}: {log}"
    yield from _until_over(job, log)


def _until_over(job: str, log: Path) -> Iterator[str]:
    shown = 0
    while True:
        answer = about_jobs([job])
        known = answer.jobs.get(job)
        over = answer.problem is None and (known is None or known.over)
        text = log.read_text(errors="replace") if log.exists() else ""
        whole = text if over else text[: text.rfind("\n") + 1]
        yield from whole[shown:].splitlines()
        shown = len(whole)
        if over:
            break
        time.sleep(LOOK_EVERY)
    if known is not None and known.state != "COMPLETED":
        raise LabError(f"job {job} ended as {known.state}; its output: {log}.")


def in_job() -> bool:
    return bool(os.environ.get(IN_JOB)) and "SLURM_JOB_ID" in os.environ


def hear_signal(patience: float = HEARD_WITHIN) -> CheckResult:
    """Whether a signal for the batch script reaches this process, as the one of `--signal` at the time limit must."""
    check, heard = CHECKS["signal"], []
    bound = f"within {patience:.0f} s"
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(time.monotonic()))
    began = time.monotonic()
    try:
        answer = call("scancel", "--batch", "--signal=USR2", os.environ["SLURM_JOB_ID"])
        while answer.ok and not heard and time.monotonic() - began < patience:
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGUSR2, before)
    took = round(time.monotonic() - began, 2)
    if not answer.ok:
        return CheckResult(check.name, False, f"scancel: {answer.error}", bound, check.fix, seconds=took)
    if not heard:
        return CheckResult(check.name, False, "USR2 did not arrive", bound, check.fix, seconds=took)
    return CheckResult(check.name, True, f"USR2 arrived after {heard[0] - began:.1f} s", bound, seconds=took)
