"""Slurm's own commands: called with one sentence when they are missing, and read back into jobs.

Asked about many jobs at once, in the order squeue, scontrol, sacct; works where there is no sacct.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from oelm_core.errors import Refused

PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
ENDING = frozenset({"COMPLETING"})

PATIENCE = 20.0
"""Seconds a command may take: longer than Slurm's own time-out for a message."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")

_UNREACHABLE = re.compile(
    r"unable to contact|connection refused|connect failure|timed out|zero bytes|communication"
    r"|no answer|unexpected message|protocol authentication|could not establish a configuration"
    r"|unable to process configuration file|resource temporarily unavailable",
    re.IGNORECASE,
)


class Answer(NamedTuple):
    """What a Slurm command printed."""

    ok: bool
    out: str
    error: str
    """Slurm's own words, without the command's name before them; one line."""
    unreachable: bool = False
    """The controller did not answer, so nothing is known either way."""


def call(*argv: str, text: str | None = None, patience: float = PATIENCE) -> Answer:
    """Runs a Slurm command. Times come as epoch seconds; `text` goes to its standard input."""
    program = shutil.which(argv[0])
    if program is None:
        raise Refused(
            f"no {argv[0]} on PATH: this machine has no Slurm. Log in to the cluster's login node, "
            "load its slurm module, or use --launcher local."
        )
    try:
        ended = subprocess.run(
            [program, *argv[1:]],
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            env=environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(False, "", f"{argv[0]} gave no answer within {patience:g} s", True)
    except OSError as error:
        raise Refused(f"cannot start {program}: {error.strerror}.") from None
    words = plain_words(ended.stderr)
    return Answer(ended.returncode == 0, ended.stdout, words, ended.returncode != 0 and is_unreachable(words))


def environment() -> dict[str, str]:
    """Ours, without what an outer job left in it: a job submitted from inside another must not inherit its shape."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_") or key in KEPT}
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def is_unreachable(words: str) -> bool:
    """Whether an error means that the controller could not be asked, rather than that it said no."""
    return bool(_UNREACHABLE.search(words))


def plain_words(stderr: str) -> str:
    """Slurm's complaint as one line.

    >>> plain_words("sbatch: error: invalid partition: x\\nsbatch: error: Batch job submission failed: Bad name\\n")
    'invalid partition: x; Batch job submission failed: Bad name'
    """
    lines = [re.sub(r"^[a-z]+: (error|fatal): |^[a-z]+: ", "", line.strip()) for line in stderr.splitlines()]
    sentences = [line.rstrip(".") for line in dict.fromkeys(lines) if line and not line.startswith("Try ")]
    return "; ".join(sentences)


class JobInfo(NamedTuple):
    """What Slurm says about one job."""

    id: str
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


class JobsAnswer(NamedTuple):
    """What Slurm knows of jobs, by job id or by name; one that is missing is unknown to it, if it answered at all."""

    jobs: dict[str, JobInfo]
    problem: str | None = None
    """Why Slurm could not be asked; None when it answered."""
    about: frozenset[str] = frozenset()
    """The ids and names it was asked about."""


_FORMAT = "%i|%T|%r|%S|%L|%N|%E|%j"  # the name last: it alone may hold a bar
_FIELD = re.compile(r"(?:^|\s)(JobId|ArrayJobId|ArrayTaskId|JobState|Reason|StartTime|NodeList|ExitCode|JobName)=(\S*)")
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)


def array_of(job: str) -> str:
    """The array of a task: 123 of 123_4; any other job is its own."""
    return job.partition("_")[0]


def task_name(name: str, task: int | str) -> str:
    """What names one task's submission among those of its array, which all have the job's name: run.1[4]."""
    return f"{name}[{task}]"


def _own_name(job: JobInfo) -> str:
    task = job.id.partition("_")[2]
    return task_name(job.name, task) if task else job.name


def _name_of_array(name: str) -> str:
    return re.sub(r"\[\d+\]$", "", name)


def about_jobs(ids: Iterable[str], patience: float = 10.0) -> JobsAnswer:
    """Jobs by id: one squeue for all; scontrol for those that failed or are missing there; sacct for the rest."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return JobsAnswer({})
    asked = ",".join(dict.fromkeys(map(array_of, wanted)))
    answer = call("squeue", "-h", "-r", "-t", "all", f"--jobs={asked}", "-o", _FORMAT, patience=patience)
    if not answer.ok and not _UNKNOWN_JOB.search(answer.error):
        return JobsAnswer({}, _problem(answer))
    jobs = _of_wanted(parse_squeue(answer.out), wanted)
    unclear = [job for job in wanted if job not in jobs or jobs[job].state == "FAILED"]
    if unclear:
        details = call("scontrol", "-o", text="".join(f"show job {job}\n" for job in unclear), patience=patience)
        if details.unreachable:
            return JobsAnswer(jobs, _problem(details))
        jobs.update((job.id, job) for job in parse_scontrol(details.out) if job.id in unclear)
    forgotten = [job for job in wanted if job not in jobs]
    if forgotten and shutil.which("sacct"):
        fields = "--format=JobID,State,ExitCode,NodeList,JobName"
        answer = call("sacct", "-n", "-P", "-X", "-j", ",".join(forgotten), fields, patience=patience)
        jobs.update((job.id, job) for job in parse_sacct(answer.out) if job.id in forgotten)
    return JobsAnswer(jobs)


def _of_wanted(found: Iterable[JobInfo], wanted: list[str]) -> dict[str, JobInfo]:
    """By id. Tasks that were cancelled with their array before any was singled out have left only the array's entry."""
    known = {job.id: job for job in found}
    jobs = {}
    for name in wanted:
        job = known.get(name)
        whole = known.get(array_of(name))
        if job is None and whole is not None and whole.over:
            job = whole._replace(id=name)
        if job is not None:
            jobs[name] = job
    return jobs


def about_names(names: Iterable[str], patience: float = 10.0) -> JobsAnswer:
    """Jobs by name: how a submission whose answer was lost is found again."""
    wanted = list(names)
    if not wanted:
        return JobsAnswer({})
    asked = ",".join(dict.fromkeys(map(_name_of_array, wanted)))
    answer = call("squeue", "-h", "-r", "-t", "all", f"--name={asked}", "-o", _FORMAT, patience=patience)
    if not answer.ok:
        return JobsAnswer({}, _problem(answer))
    jobs = {name: job for job in parse_squeue(answer.out) if (name := _own_name(job)) in wanted}
    missing = [name for name in wanted if name not in jobs]
    if missing and shutil.which("sacct"):
        fields = "--format=JobID,State,ExitCode,NodeList,JobName%200"
        since = "--starttime=now-30days"
        asked = ",".join(dict.fromkeys(map(_name_of_array, missing)))
        answer = call("sacct", "-n", "-P", "-X", since, f"--name={asked}", fields, patience=patience)
        jobs.update((name, job) for job in parse_sacct(answer.out) if (name := _own_name(job)) in missing)
    return JobsAnswer(jobs)


def parse_squeue(text: str) -> list[JobInfo]:
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|", 7)
        if len(parts) == 8:
            job, state, reason, start, left, node, waits_for, name = parts
            waits_for = re.sub(r"\([^)]*\)", "", waits_for)  # "(unfulfilled)" after each
            found.append(JobInfo(job, state, reason, _seconds(start), left, _known(node), name, _known(waits_for)))
    return found


def parse_scontrol(text: str) -> list[JobInfo]:
    """Lines of `scontrol -o show job`."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "JobId" in fields and "JobState" in fields:
            found.append(
                JobInfo(
                    _id_of(fields),
                    fields["JobState"],
                    fields.get("Reason", ""),
                    _seconds(fields.get("StartTime", "")),
                    node=_known(fields.get("NodeList", "")),
                    name=fields.get("JobName", ""),
                    code=fields.get("ExitCode", ""),
                )
            )
    return found


def _id_of(fields: dict[str, str]) -> str:
    """Inside Slurm each task that was singled out has a number of its own; people and records say 123_4."""
    task = fields.get("ArrayTaskId", "")
    return f"{fields['ArrayJobId']}_{task}" if task.isdigit() and "ArrayJobId" in fields else fields["JobId"]


def parse_sacct(text: str) -> list[JobInfo]:
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|", 4)
        if len(parts) == 5 and parts[1].split():
            job, state, code, node, name = parts  # the state may be "CANCELLED by 1000"
            found.append(JobInfo(job, _whole_state(state.split()[0]), node=_known(node), name=name, code=code))
    return found


def _whole_state(text: str) -> str:
    """sacct cuts long states short: OUT_OF_ME+ is OUT_OF_MEMORY."""
    if not text.endswith("+"):
        return text
    long = ("OUT_OF_MEMORY", "CANCELLED", "COMPLETED", "COMPLETING", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
    return next((state for state in long if state.startswith(text[:-1])), text[:-1])


def _problem(answer: Answer) -> str:
    return answer.error or "squeue failed without a word"


def _seconds(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _known(text: str) -> str:
    return "" if text in ("(null)", "None", "None assigned", "N/A") else text
