"""Stopping and deleting runs that Slurm has."""

from __future__ import annotations

import time
from pathlib import Path

from oelm_core.errors import Refused
from oelm_core.launch import local
from oelm_core.launch.slurm import ask, job_states, submission
from oelm_core.launch.slurm.command import call, is_silence
from oelm_core.runs import attempts
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.status import FINAL, LIVE, RunStatus
from oelm_core.runs.store import Run

SECONDS_TO_CANCEL = 5.0


def stop(run: Run | RunFolder, now: bool = False) -> RunStatus:
    """A pending job is cancelled; a running one saves and ends, or with `now` ends at once. Returns without waiting."""
    folder = run if isinstance(run, RunFolder) else run.folder
    truth = job_states.run_status(folder)
    if truth.state in FINAL:
        raise Refused(f"{folder.id} is already over: {truth.state}.")
    if truth.state == "lost":
        raise Refused(f"{folder.id} is lost, so nothing of it runs; resume or delete it.")
    made = attempts.numbers(folder)
    asked = {"who": local.whoami(), "when": time.time(), "now": now, "attempt": made[-1] if made else 0}
    try:
        folder.write_dict("stop", asked)  # first: it makes the end the user's, and the runner looks for it every second
    except OSError as error:
        raise Refused(f"cannot write {folder.path}/stop.json: {error.strerror}.") from None
    handed = submission.last(folder)
    if handed is None or handed.job is None:
        return RunStatus("stopping", truth.reason, "It stops as soon as its job starts.")
    return _cancel(folder, handed.job, truth, now)


def _cancel(folder: RunFolder, job: str, truth: RunStatus, now: bool) -> RunStatus:
    answer = call("scancel", "--state=PENDING", job)  # Slurm looks at the state: a job that just started is spared
    told = ask.Told({}, answer.error) if answer.unreachable else ask.about_jobs([job])
    if told.silence:
        return _unheard(folder, job, truth, told.silence)
    word = told.words.get(job)
    if word is None or word.over:
        return _settle(folder, job)
    how = [] if now else ["--signal=TERM", "--batch"]  # the batch process is the runner
    answer = call("scancel", *how, job)
    if not answer.ok and not is_silence(answer.error) and "already" not in answer.error.lower():
        word = ask.about_jobs([job]).words.get(job)
        if word is None or word.over:
            return _settle(folder, job)
        raise Refused(f"scancel refused: {answer.error}. The run itself sees the request within a second if it can.")
    return RunStatus("stopping" if truth.state in LIVE else truth.state, truth.reason, truth.message)


def _unheard(folder: RunFolder, job: str, truth: RunStatus, why: str) -> RunStatus:
    """Slurm does not answer: a runner sees the request by itself, but a job in line stays there."""
    if truth.state == "queued":
        raise Refused(f"Slurm does not answer ({why}), so job {job} may stay in line; stop {folder.id} again later.")
    return RunStatus("stopping" if truth.state in LIVE else truth.state, truth.reason, truth.message)


def _settle(folder: RunFolder, job: str) -> RunStatus:
    """The job is gone before a runner could write the end, so it is written here."""
    deadline = time.monotonic() + SECONDS_TO_CANCEL
    while True:
        truth = job_states.run_status(folder)
        if truth.state in FINAL or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    state = folder.read_dict("state") or {}
    if state.get("state") not in FINAL and state.get("pid") is None:
        end = {"state": "stopped", "reason": "user", "message": f"Slurm job {job} was cancelled before it started."}
        if state.get("attempt"):
            end["message"] = f"Slurm job {job} was cancelled while it waited to go on."
        folder.write_dict("state", {**state, **end, "ended": time.time(), "heartbeat": time.time()})
        return RunStatus(end["state"], end["reason"], end["message"])
    return truth


def delete(run: Run | RunFolder, *, root: Path | None = None, force: bool = False) -> None:
    """Removes a run that is over, by Slurm's word too."""
    folder = run if isinstance(run, RunFolder) else run.folder
    truth = job_states.run_status(folder)
    if truth.state in LIVE or (truth.state == "unknown" and not force):
        raise Refused(
            f"{folder.id} is {truth.state}; only a run that is over can be deleted. {truth.message or ''}".strip()
        )
    state = folder.read_dict("state")
    if state is not None and state.get("state") not in FINAL:
        # Slurm ended it, so no runner will write this any more
        end = {"state": truth.state if truth.state in FINAL else "stopped", "reason": truth.reason}
        folder.write_dict("state", {**state, **end, "message": truth.message, "ended": time.time()})
    local.delete(folder, root=root, force=force)
