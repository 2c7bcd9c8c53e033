"""Slurm's states and reasons, as states of a run and sentences for people."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from oelm_core.launch.worker_exit import UNSAVED
from oelm_core.runs.status import RunStatus

PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
ENDING = frozenset({"COMPLETING"})

_WAITING = {
    "None": "Slurm has it",
    "Resources": "waits for free resources",
    "Priority": "is behind other jobs",
    "Dependency": "waits for another job",
    "BeginTime": "may start later",
    "JobHeldUser": "is held by its owner; release it with scontrol release",
    "JobHeldAdmin": "is held by an administrator",
    "ReqNodeNotAvail": "waits: its nodes are down or reserved",
    "Reservation": "waits for its reservation",
    "Licenses": "waits for a licence",
    "PartitionDown": "waits: its partition is down",
    "PartitionInactive": "waits: its partition is closed",
    "PartitionTimeLimit": "asks for more time than the partition allows; lower time in slurm.yaml",
    "PartitionNodeLimit": "asks for more nodes than the partition allows",
    "PartitionConfig": "asks for more than the partition's nodes have; lower cpus, memory or gres in slurm.yaml",
    "BadConstraints": "asks for what no node has",
    "InvalidAccount": "waits: its account is not valid; set account in slurm.yaml",
    "InvalidQOS": "waits: its qos is not valid; set qos in slurm.yaml",
    "launch failed requeued held": "could not be started on its node and is held",
}


class Word(NamedTuple):
    """What Slurm says about one job."""

    job: str
    state: str
    reason: str = ""
    start: float | None = None
    """When it started or is expected to, epoch seconds."""
    left: str = ""
    """Time left, as Slurm writes it."""
    node: str = ""
    name: str = ""
    waits_for: str = ""
    code: str = ""
    """Exit code and signal, 1:0."""

    @property
    def over(self) -> bool:
        return self.state not in PENDING | RUNNING | ENDING


def pending(word: Word, now: float) -> str:
    """Why a job waits and when it may start, in a sentence.

    >>> pending(Word("7", "PENDING", "Resources"), 0.0)
    'Slurm job 7 waits for free resources (Resources)'
    """
    known = _WAITING.get(word.reason) or ("has reached a limit of its owner" if "Limit" in word.reason else "waits")
    if word.reason in ("", "None"):
        text = f"Slurm job {word.job} is queued"
    else:
        text = f"Slurm job {word.job} {known} ({word.reason}{', ' + word.waits_for if word.waits_for else ''})"
    if word.start is not None and word.start > now:
        text += f", start expected {clock(word.start, now)}"
    return text


def directly(word: Word, others: Mapping[str, Word]) -> Word:
    """Names only what a job waits for itself: in a lane not the jobs that the one before it waits for in turn.

    >>> before = {"6": Word("6", "PENDING", waits_for="afterany:5")}
    >>> directly(Word("7", "PENDING", waits_for="afterany:5,afterany:6"), before).waits_for
    'afterany:6'
    """
    conditions = word.waits_for.split(",")
    before = [others[job] for one in conditions if (job := one.rpartition(":")[2]) in others]
    further = {condition for other in before for condition in other.waits_for.split(",")}
    return word._replace(waits_for=",".join(one for one in conditions if one not in further))


def running(word: Word) -> str:
    left = f", {word.left} left" if word.left not in ("", "UNLIMITED", "NOT_SET", "INVALID") else ""
    verb = {"CONFIGURING": "waits for its node", "SUSPENDED": "is suspended"}.get(word.state, "runs")
    return f"Slurm job {word.job} {verb} on {word.node or 'a node'}{left}"


def ended(word: Word, stop_asked: bool, last_words: str = "") -> RunStatus:
    """How a run ended whose runner did not live to say so.

    An end that more time or another node would mend is `stopped`; what would happen again is `failed`.
    """
    job, said = f"Slurm job {word.job}", f": {last_words}" if last_words else ""
    where = f" on {word.node}" if word.node else ""
    if stop_asked:
        return RunStatus("stopped", "user", UNSAVED)
    if word.reason == "DependencyNeverSatisfied":
        return RunStatus("stopped", "dependency", f"{job} was removed: the job it waited for did not finish.")
    if word.state in ("TIMEOUT", "DEADLINE"):
        return RunStatus("stopped", "timeout", f"{job} reached its time limit{where}; resume it.")
    if word.state == "PREEMPTED":
        return RunStatus("stopped", "preempted", f"{job} was preempted{where}; resume it.")
    if word.state in ("NODE_FAIL", "BOOT_FAIL"):
        return RunStatus("stopped", "node_fail", f"The node of {job} failed{where}; resume it.")
    if word.state == "OUT_OF_MEMORY":
        return RunStatus("failed", "oom", f"{job} used more memory than it had asked for{where}; raise memory.")
    if word.state in ("CANCELLED", "REVOKED"):
        return RunStatus("stopped", "signal", f"{job} was cancelled outside the lab.")
    if word.state == "FAILED" and word.code.endswith(":9"):
        return RunStatus("failed", "signal", f"{job} was killed by SIGKILL{where}.")
    if word.state == "FAILED":
        code = f" with exit code {word.code.partition(':')[0]}" if word.code and not word.code.startswith("0:") else ""
        return RunStatus("failed", "error", f"{job} failed{where}{code}{said}")
    if word.state == "COMPLETED":
        return RunStatus("lost", None, f"{job} ended{where} without saying how it went{said}")
    return RunStatus("failed", "error", f"{job} ended as {word.state}{where}{said}")


def clock(when: float, now: float) -> str:
    """A time of day, with the date when it is not today."""
    day = time.strftime("%Y-%m-%d", time.localtime(when))
    same_day = day == time.strftime("%Y-%m-%d", time.localtime(now))
    return ("" if same_day else day + " ") + time.strftime("%H:%M", time.localtime(when))
