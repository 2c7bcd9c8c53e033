"""Inside a job: what the runner knows of its allocation, how it takes its run over again, and how it queues again.

Light: the runner imports it, so no pydantic here.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from msgspec.structs import replace

from oelm_core.devices.presence import granted_by_slurm
from oelm_core.errors import NotFound
from oelm_core.launch.acquire import Devices
from oelm_core.launch.slurm import submission
from oelm_core.launch.slurm.commands import about_jobs, call, task_name
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Attempt, SlurmJob

CARDS_ASKED = "OELM_CARDS_ASKED"
"""How many cards on a node the job's script asks for; not every Slurm tells the job."""
NODE_PYTHON = "OELM_NODE_PYTHON"
"""How Python is started on the nodes, where slurm.yaml says so."""


class Job(NamedTuple):
    """The allocation this runner lives in."""

    id: str
    restart: int
    nodes: int
    node: str
    cards: tuple[str, ...]
    """As Slurm put them into CUDA_VISIBLE_DEVICES; empty when none were asked for."""
    cores: int | None
    max_requeues: int
    granted: str | None = None
    """What says that the job was given cards; None where nothing does."""

    @property
    def record(self) -> SlurmJob:
        """As written into attempts/N.json."""
        return SlurmJob(self.id, self.restart, self.node, self.nodes)

    def takes_over(self, before: Attempt | None) -> bool:
        """Whether the attempt before was a job that Slurm says is over: this one requeued, or an earlier submission."""
        if before is None or before.slurm is None:
            return False
        if before.slurm.job == self.id:
            return before.slurm.restart < self.restart
        answer = about_jobs([before.slurm.job])
        job = answer.jobs.get(before.slurm.job)
        return answer.problem is None and (job is None or job.over)

    def introduce(self, folder: RunFolder) -> None:
        """Makes the job known to readers where it is not on record: sbatch by hand, or an answer that was lost."""
        last = submission.last(folder)
        if last is not None and last.job == self.id:
            return
        if last is None or last.job is not None or _own_name() != last.name:
            last = submission.intend(folder, None)
        submission.record(folder, replace(last, job=self.id, ended=None))

    def devices(self, requested: str) -> Devices:
        """What Slurm chose: no leases, for it keeps others away, and no cores to bind to, for it has done that."""
        if requested != "cpu" and not self.cards and self.granted:
            raise NotFound(
                f"Slurm gave this job cards ({self.granted}) but none is in its CUDA_VISIBLE_DEVICES: ask whether"
                f" gres.conf of {self.node} names their files; to train without a card submit with --device cpu."
            )
        if requested == "cpu" or not self.cards:
            return Devices("cpu", [], [], [])
        return Devices("cuda", [], list(self.cards), [])

    def threads(self, ranks: int) -> int:
        """Threads of each process of a CPU run, of the cores Slurm gave on one node."""
        cores = self.cores or len(os.sched_getaffinity(0))
        return max(1, cores * self.nodes // ranks)

    def why_not_again(self, progressed: bool, what: str = "Saved at the time limit") -> str | None:
        """Why a run that saved at its limit, or lost a node, is not queued again; None when it may be."""
        what = what.rstrip(".")
        if self.restart >= self.max_requeues:
            times = "once" if self.restart == 1 else f"{self.restart} times"
            return f"{what}; it was queued again {times}, as often as max_requeues allows; resume it."
        if not progressed:
            return f"{what} without a single new step; give it more time, then resume it."
        return None

    def requeue(self) -> str | None:
        """Puts this job back in the queue (Slurm then ends it, this process with it); Slurm's words when it refuses."""
        for wait in (1.0, 3.0, 10.0, None):
            answer = call("scontrol", "requeue", self.id)
            if answer.ok or "pending" in answer.error.lower():  # Slurm has seen that a node failed, and was quicker
                return None
            if wait is None or not answer.unreachable:
                break
            time.sleep(wait)
        return answer.error or "scontrol requeue failed"


def current_job(run_id: str) -> Job | None:
    """The job this process is the runner of; None for a local run, even one started from within some job."""
    if os.environ.get("OELM_JOB_OF") != run_id or not os.environ.get("SLURM_JOB_ID"):
        return None
    asked = number_of(CARDS_ASKED)
    granted = granted_by_slurm() or (f"it asked for {asked}" if asked else None)
    cards = os.environ.get("CUDA_VISIBLE_DEVICES", "") if granted else ""  # else it came along from the login node
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return Job(
        f"{array}_{task}" if array and task else os.environ["SLURM_JOB_ID"],
        number_of("SLURM_RESTART_COUNT") or 0,
        number_of("SLURM_JOB_NUM_NODES") or 1,
        os.environ.get("SLURMD_NODENAME") or process.host(),
        tuple(card for card in cards.split(",") if card and card != "NoDevFiles"),
        number_of("SLURM_CPUS_ON_NODE"),
        number_of("OELM_MAX_REQUEUES") or 0,
        granted,
    )


def _own_name() -> str:
    name, task = os.environ.get("SLURM_JOB_NAME", ""), os.environ.get("SLURM_ARRAY_TASK_ID")
    return task_name(name, task) if task else name


def number_of(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None
