"""Stopping and deleting runs that Slurm has."""

from __future__ import annotations

import time

from oelm_core.errors import Refused
from oelm_core.launch import local
from oelm_core.launch.slurm import job_states, submission
from oelm_core.launch.slurm.commands import PENDING, JobsAnswer, about_jobs, array_of, call
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunState
from oelm_core.runs.status import FINAL, LIVE, RunStatus

SECONDS_TO_CANCEL = 5.0


def stop(folder: RunFolder, now: bool = False) -> RunStatus:
    """A pending job is cancelled; a running one saves and ends, or with `now` ends at once. Returns without waiting."""
    status = job_states.run_status(folder)
    local.request_stop(folder, status, now)  # first: whatever Slurm does next is then the user's wish
    submitted = submission.last(folder)
    if submitted is None or submitted.job is None:
        return RunStatus("stopping", status.reason, "It stops as soon as its job starts.")
    return _cancel(folder, submitted.job, status, now)


def _cancel(folder: RunFolder, job: str, status: RunStatus, now: bool) -> RunStatus:
    stopping = status._replace(state="stopping") if status.state in LIVE else status
    jobs = _take_from_queue(job)
    if jobs.problem and status.state == "queued":
        raise Refused(
            f"Slurm does not answer ({jobs.problem}), so job {job} may stay in the queue; stop it again later."
        )
    if jobs.problem:
        return stopping  # the runner sees the request by itself
    found = jobs.jobs.get(job)
    if found is None or found.over:
        return _settle(folder, job)
    how = [] if now else ["--signal=TERM", "--batch"]  # the batch process is the runner
    answer = call("scancel", *how, job)
    if not answer.ok and not answer.unreachable and "already" not in answer.error.lower():
        found = about_jobs([job]).jobs.get(job)
        if found is None or found.over:
            return _settle(folder, job)
        raise Refused(f"scancel refused: {answer.error}. The run itself sees the request within a second if it can.")
    return stopping


def _take_from_queue(job: str) -> JobsAnswer:
    """Cancels a job if it is pending; says how it stands then. One that just started is spared."""
    if array_of(job) == job:
        answer = call("scancel", "--state=PENDING", job)  # Slurm itself looks at the state
        return JobsAnswer({}, answer.error) if answer.unreachable else about_jobs([job])
    # Of an array, scancel --state=PENDING would take every task that is not singled out yet. A hold singles one out.
    jobs = about_jobs([job])
    if job not in jobs.jobs or jobs.jobs[job].state not in PENDING:
        return jobs
    call("scontrol", "hold", job)
    jobs = about_jobs([job])
    if job in jobs.jobs and jobs.jobs[job].state not in PENDING:
        call("scontrol", "release", job)  # it has started: else it would wait for ever once it is queued again
        return jobs
    answer = call("scancel", job)
    return JobsAnswer({}, answer.error) if answer.unreachable else about_jobs([job])


def _settle(folder: RunFolder, job: str) -> RunStatus:
    """The job is gone before a runner could write the end, so it is written here."""
    deadline = time.monotonic() + SECONDS_TO_CANCEL
    while True:
        status = job_states.run_status(folder)
        if status.state in FINAL or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    state = folder.read(RunState)
    if state is not None and state.state not in FINAL and state.pid is None:
        when = "while it waited to continue" if state.attempt else "before it started"
        return _write_end(folder, state, RunStatus("stopped", "user", f"Slurm job {job} was cancelled {when}."))
    return status


def delete(folder: RunFolder) -> None:
    """Removes a run that is over, also by Slurm's account."""
    status = job_states.run_status(folder)
    if status.state in LIVE or status.state == "unknown":
        raise Refused(
            f"{folder.id} is {status.state}; only a run that is over can be deleted. {status.message or ''}".strip()
        )
    state = folder.read(RunState)
    if state is not None and state.state not in FINAL:  # Slurm ended it, so no runner will write this any more
        _write_end(folder, state, status if status.state in FINAL else status._replace(state="stopped"))
    local.delete(folder)


def _write_end(folder: RunFolder, state: RunState, end: RunStatus) -> RunStatus:
    state.state, state.reason, state.message = end
    state.ended = state.heartbeat = time.time()
    folder.write(state)
    return end
