"""Slurm's states as states of a run: why a job waits, where it runs, how it ended; laid over what the folders say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from oelm_core.errors import LabError
from oelm_core.launch import worker_exit
from oelm_core.launch.slurm import submission
from oelm_core.launch.slurm.commands import ENDING, PENDING, JobInfo, JobsAnswer, about_jobs, about_names
from oelm_core.launch.worker_exit import UNSAVED
from oelm_core.runs import outcomes
from oelm_core.runs import status as run_files
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import JobEnd, RunRecord, RunState, Stop, Submission
from oelm_core.runs.status import FINAL, LIVE, RunStatus, status_of
from oelm_core.runs.store import Run

_WAITING = {
    "None": "Slurm has it",
    "Resources": "waits for free resources",
    "Priority": "is behind other jobs",
    "Dependency": "waits for another job",
    "BeginTime": "may start later",
    "JobArrayTaskLimit": "waits for other runs of its array, as max_jobs asks",
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


def pending(job: JobInfo, now: float) -> str:
    """Why a job waits and when it may start, in a sentence.

    >>> pending(JobInfo("7", "PENDING", "Resources"), 0.0)
    'Slurm job 7 waits for free resources (Resources)'
    """
    known = _WAITING.get(job.reason) or ("has reached a limit of its owner" if "Limit" in job.reason else "waits")
    if job.reason in ("", "None"):
        text = f"Slurm job {job.id} is queued"
    else:
        text = f"Slurm job {job.id} {known} ({job.reason}{', ' + job.waits_for if job.waits_for else ''})"
    if job.start is not None and job.start > now:
        text += f", start expected {clock(job.start, now)}"
    return text


def directly(job: JobInfo, others: Mapping[str, JobInfo]) -> JobInfo:
    """Names only what a job waits for itself: in a lane not the jobs that the one before it waits for in turn.

    >>> before = {"6": JobInfo("6", "PENDING", waits_for="afterany:5")}
    >>> directly(JobInfo("7", "PENDING", waits_for="afterany:5,afterany:6"), before).waits_for
    'afterany:6'
    """
    conditions = job.waits_for.split(",")
    before = [others[name] for one in conditions if (name := one.rpartition(":")[2]) in others]
    further = {condition for other in before for condition in other.waits_for.split(",")}
    return job._replace(waits_for=",".join(one for one in conditions if one not in further))


def running(job: JobInfo) -> str:
    left = f", {job.left} left" if job.left not in ("", "UNLIMITED", "NOT_SET", "INVALID") else ""
    verb = {"CONFIGURING": "waits for its node", "SUSPENDED": "is suspended"}.get(job.state, "runs")
    return f"Slurm job {job.id} {verb} on {job.node or 'a node'}{left}"


def ended(job: JobInfo, stop_asked: bool, last_words: str = "") -> RunStatus:
    """How a run ended whose runner did not live to say so.

    An end that more time or another node would fix is `stopped`; what would happen again is `failed`.
    """
    name, words = f"Slurm job {job.id}", f": {last_words}" if last_words else ""
    where = f" on {job.node}" if job.node else ""
    if stop_asked:
        return RunStatus("stopped", "user", UNSAVED)
    if job.reason == "DependencyNeverSatisfied":
        return RunStatus("stopped", "dependency", f"{name} was removed: the job it waited for did not finish.")
    if job.state in ("TIMEOUT", "DEADLINE"):
        return RunStatus("stopped", "timeout", f"{name} reached its time limit{where}; resume it.")
    if job.state == "PREEMPTED":
        return RunStatus("stopped", "preempted", f"{name} was preempted{where}; resume it.")
    if job.state in ("NODE_FAIL", "BOOT_FAIL"):
        return RunStatus("stopped", "node_fail", f"The node of {name} failed{where}; resume it.")
    if job.state == "OUT_OF_MEMORY":
        return RunStatus("failed", "oom", f"{name} used more memory than it had asked for{where}; raise memory.")
    if job.state in ("CANCELLED", "REVOKED"):
        return RunStatus("stopped", "signal", f"{name} was cancelled outside the lab.")
    if job.state == "FAILED" and job.code.endswith(":9"):
        return RunStatus("failed", "signal", f"{name} was killed by SIGKILL{where}.")
    if job.state == "FAILED":
        code = f" with exit code {job.code.partition(':')[0]}" if job.code and not job.code.startswith("0:") else ""
        return RunStatus("failed", "error", f"{name} failed{where}{code}{words}")
    if job.state == "COMPLETED":
        return RunStatus("lost", None, f"{name} ended{where} without saying how it went{words}")
    return RunStatus("failed", "error", f"{name} ended as {job.state}{where}{words}")


def clock(when: float, now: float) -> str:
    """A time of day, with the date when it is not today."""
    day = time.strftime("%Y-%m-%d", time.localtime(when))
    same_day = day == time.strftime("%Y-%m-%d", time.localtime(now))
    return ("" if same_day else day + " ") + time.strftime("%H:%M", time.localtime(when))


BETWEEN_QUESTIONS = 3.0
"""Seconds between two questions to Slurm, however many readers ask."""
AFTER_A_PROBLEM = 15.0
PATIENCE = 6.0
"""Seconds a reader waits: with its controller down, squeue itself would take ten to say so."""
SECONDS_TO_ADOPT = 30.0
"""A submission that Slurm still does not know by its name after so long was never made."""
SECONDS_TO_WRITE = 10.0
"""A run that wrote so lately may still be writing its end (or the file system is slow to show it)."""


class SlurmCache:
    """Remembers Slurm's last answer, so that many readers ask one question every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.answer = JobsAnswer({})
        self._next = float("-inf")

    def about(self, ids: list[str], names: list[str], *, fresh: bool = False) -> JobsAnswer:
        """What Slurm says of jobs by id and of submissions by name, in one answer."""
        if not fresh and self._clock() < self._next:
            return self.answer
        try:
            by_id = about_jobs(ids, PATIENCE)
            by_name = about_names(names, PATIENCE) if not by_id.problem else JobsAnswer({})
            problem = by_id.problem or by_name.problem
        except LabError as error:  # no squeue on this machine: another one has it
            by_id = by_name = JobsAnswer({})
            problem = str(error)
        self.answer = JobsAnswer({**by_id.jobs, **by_name.jobs}, problem, frozenset([*ids, *names]))
        self._next = self._clock() + (AFTER_A_PROBLEM if problem else BETWEEN_QUESTIONS)
        return self.answer


_cache = SlurmCache()


def problem() -> str | None:
    """Why Slurm gave no answer when it was last asked; None when it answered or was not asked."""
    return _cache.answer.problem


def overlay(runs: list[Run], cache: SlurmCache | None = None, *, fresh: bool = False) -> list[Run]:
    """The runs as Slurm sees those it has; asks nothing when no run of Slurm's is under way."""
    open_runs = [run for run in runs if run.launcher == "slurm" and _may_change(run)]
    if not open_runs:
        return runs
    files = {run.id: RunStatus(run.state, run.reason, run.message) for run in open_runs}
    statuses = _statuses([run.folder for run in open_runs], files, cache or _cache, fresh)
    return [
        replace(run, state=status.state, reason=status.reason, message=status.message)
        if (status := statuses.get(run.id)) is not None
        else run
        for run in runs
    ]


def run_status(folder: RunFolder) -> RunStatus:
    """One run's state with Slurm asked now: for whoever is about to act on it."""
    files = run_files.run_status(folder)
    if (files.state in FINAL and not _may_be_requeued(files)) or not submission.slurm_dir(folder).is_dir():
        return files
    return _statuses([folder], {folder.id: files}, SlurmCache(), True).get(folder.id, files)


def _may_change(run: Run) -> bool:
    return run.state not in FINAL or _may_be_requeued(RunStatus(run.state, run.reason))


def _may_be_requeued(status: RunStatus) -> bool:
    """Slurm's TERM may be a preemption, after which the same job starts again."""
    return status.state == "stopped" and status.reason == "signal"


def _statuses(
    folders: list[RunFolder], files: dict[str, RunStatus], cache: SlurmCache, fresh: bool
) -> dict[str, RunStatus]:
    submissions = {folder.id: submission.last(folder) for folder in folders}
    open_ones = [one for folder in folders if (one := submissions[folder.id]) and not _settled(folder, one)]
    jobs = [one.job for one in open_ones if one.job]
    names = [one.name for one in open_ones if not one.job and not submission.being_sent(one)]
    answer = cache.about(jobs, names, fresh=fresh) if jobs or names else JobsAnswer({})
    return {folder.id: _status(folder, files[folder.id], submissions[folder.id], answer) for folder in folders}


def _settled(folder: RunFolder, one: Submission) -> bool:
    """How its job ended is written down, and the run has written nothing since."""
    state = folder.read(RunState)
    return one.ended is not None and ((state.heartbeat if state else None) or 0.0) <= one.ended.at


def _status(folder: RunFolder, files: RunStatus, submitted: Submission | None, answer: JobsAnswer) -> RunStatus:
    if submitted is None:
        return _never_sent(folder, files)
    if submitted.ended and _settled(folder, submitted):
        return RunStatus(submitted.ended.state, submitted.ended.reason, submitted.ended.message)
    key = submitted.job or submitted.name
    if answer.problem and key in answer.about:
        return _unreachable(folder, files, answer.problem)
    job = answer.jobs.get(key)
    if job is not None and submitted.job is None:
        submitted = replace(submitted, job=job.id)
        _write(folder, submitted)
    if job is None:
        return _without_job(folder, files, submitted, key in answer.about)
    if job.state in PENDING:
        waits = pending(directly(job, answer.jobs), time.time())
        said = _said_when_queued(folder)
        again = "Queued again: " if not said and (files.state in FINAL or _state(folder).attempt) else ""
        return RunStatus("queued", None, _joined(said, again + waits))
    if not job.over:
        return _under_way(folder, files, job)
    return _over(folder, submitted, job)


def _never_sent(folder: RunFolder, files: RunStatus) -> RunStatus:
    if files.state in FINAL or time.time() - _created(folder) < SECONDS_TO_ADOPT:
        return files
    return RunStatus("lost", None, "It was never submitted to Slurm; resume submits it.")


def _unreachable(folder: RunFolder, files: RunStatus, why: str) -> RunStatus:
    """Slurm does not answer: what the files say stands, and the reader is told."""
    note = f"Slurm does not answer ({why})"
    last = _state(folder).state
    if files.state in LIVE or files.state in FINAL:
        return files._replace(message=_joined(files.message, note))
    return RunStatus("queued" if last == "queued" else "unknown", None, f"{note}; it was {last} when last heard of.")


def _without_job(folder: RunFolder, files: RunStatus, submitted: Submission, was_asked: bool) -> RunStatus:
    """Slurm has said nothing about the job: not asked yet, being submitted, or forgotten by Slurm."""
    state = _state(folder)
    waits = state.state == "queued"
    if not was_asked or (waits and time.time() - submitted.sent < SECONDS_TO_ADOPT):
        return RunStatus("queued", None, files.message) if waits else files
    if not waits and files.state in LIVE:
        return files
    if submitted.job is None:
        return RunStatus(
            "lost", None, "Its submission was cut short and Slurm does not know it; resume submits it again."
        )
    forgotten = status_of(outcomes.last_word(folder)) or RunStatus(
        "lost", None, f"Slurm no longer knows job {submitted.job}; resume it."
    )
    return _keep(folder, submitted, files if files.state in FINAL else forgotten, "")


def _under_way(folder: RunFolder, files: RunStatus, job: JobInfo) -> RunStatus:
    state = _state(folder)
    where = running(job)
    begun_again = files.state in FINAL and job.start is not None and job.start >= (state.ended or 0.0) - 1
    if job.state in ENDING or (files.state in FINAL and not begun_again):
        return RunStatus("stopping", files.reason, f"Slurm job {job.id} is ending on {job.node}")
    if begun_again or files.state == "lost" or state.state == "queued":
        return RunStatus("queued", None, _joined(_said_when_queued(folder), where, "it is starting"))
    if files.state == "unknown":
        return RunStatus(state.state or "running", None, f"{where}. {files.message or ''}".strip())
    return files._replace(message=_joined(files.message, where))


def _over(folder: RunFolder, submitted: Submission, job: JobInfo) -> RunStatus:
    """The job is over: what the run wrote last, else what Slurm says. Kept, for Slurm forgets within minutes."""
    files = run_files.run_status(folder)  # read again: it may have ended since
    state = _state(folder)
    if files.state in FINAL and not _may_be_requeued(files):
        return files
    stop = folder.read(Stop)
    stop_asked = stop is not None and stop.when >= submitted.sent
    last_words = worker_exit.last_words(worker_exit.tail(submission.slurm_dir(folder) / "job.log"))
    end = ended(job, stop_asked, last_words)
    if files.state in FINAL:  # stopped by a signal: Slurm knows which
        end = end if end.reason in ("timeout", "preempted", "node_fail", "signal") else files
    else:
        own = status_of(outcomes.last_word(folder))
        young = time.time() - (state.heartbeat or 0.0) < SECONDS_TO_WRITE
        if own is None and young and state.state != "queued" and job.state in ("COMPLETED", "FAILED"):
            return RunStatus("stopping", None, f"Slurm job {job.id} has ended")
        end = own or end
    return _keep(folder, submitted, end, job.state)


def _keep(folder: RunFolder, submitted: Submission, end: RunStatus, job_state: str) -> RunStatus:
    """Writes the end down, so that Slurm is not asked for it again."""
    _write(folder, replace(submitted, ended=JobEnd(*end, job_state, time.time())))
    return end


def _said_when_queued(folder: RunFolder) -> str | None:
    """Why its runner had it queued again, and from which step."""
    state = _state(folder)
    return state.message if state.state == "queued" else None


def _joined(*texts: str | None) -> str:
    """Sentences and parts of them as one line.

    >>> _joined("Rank 1 failed.", None, "Slurm job 7 runs on n1")
    'Rank 1 failed; Slurm job 7 runs on n1'
    """
    return "; ".join(text.rstrip(".") for text in texts if text)


def _state(folder: RunFolder) -> RunState:
    return folder.read(RunState) or RunState(state="")


def _created(folder: RunFolder) -> float:
    record = folder.read(RunRecord)
    return record.created if record else 0.0


def _write(folder: RunFolder, changed: Submission) -> None:
    try:
        submission.record(folder, changed)
    except OSError:
        return  # somebody else's run, or a full disk: Slurm is asked again next time
