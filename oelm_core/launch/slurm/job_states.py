"""Slurm's word laid over what the run folders say: why a job waits, where it runs, how it ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from oelm_core.errors import LabError
from oelm_core.launch import worker_exit
from oelm_core.launch.slurm import ask, job_words, submission
from oelm_core.launch.slurm.job_words import Word
from oelm_core.launch.slurm.submission import Submission
from oelm_core.runs import status as run_state
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.status import FINAL, LIVE, RunStatus
from oelm_core.runs.store import Run

BETWEEN_QUESTIONS = 3.0
"""Seconds between two questions to Slurm, however many readers ask."""
AFTER_SILENCE = 15.0
PATIENCE = 6.0
"""Seconds a reader waits: with its controller down, squeue itself would take ten to say so."""
SECONDS_TO_ADOPT = 30.0
"""A submission that Slurm still does not know by its name after so long was never made."""
SECONDS_TO_WRITE = 10.0
"""A run heard of so lately may still be writing its end (or the file system is slow to show it)."""


class Heard(NamedTuple):
    """One answer of Slurm's, about all jobs and names it was asked about."""

    words: dict[str, Word]
    asked: frozenset[str]
    silence: str | None


class Desk:
    """Remembers Slurm's last answer, so that many readers ask one question every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard = Heard({}, frozenset(), None)
        self._next = float("-inf")

    def about(self, jobs: list[str], names: list[str], *, fresh: bool = False) -> Heard:
        """What Slurm says of jobs by id and of submissions by name, in one dictionary."""
        if not fresh and self._clock() < self._next:
            return self._heard
        try:
            told = ask.about_jobs(jobs, PATIENCE)
            found = ask.about_names(names, PATIENCE) if not told.silence else ask.Told({})
            silence = told.silence or found.silence
        except LabError as error:  # no squeue on this machine: another one has it
            told = found = ask.Told({})
            silence = str(error)
        self._heard = Heard({**told.words, **found.words}, frozenset([*jobs, *names]), silence)
        self._next = self._clock() + (AFTER_SILENCE if silence else BETWEEN_QUESTIONS)
        return self._heard


_desk = Desk()


def silence() -> str | None:
    """Why Slurm gave no answer when it was last asked; None when it answered or was not asked."""
    return _desk._heard.silence


def overlay(runs: list[Run], desk: Desk | None = None, *, fresh: bool = False) -> list[Run]:
    """The runs with Slurm's word on those it has; asks nothing when no run of Slurm's is under way."""
    open_runs = [run for run in runs if run.launcher == "slurm" and _may_change(run)]
    if not open_runs:
        return runs
    files = {run.id: RunStatus(run.state, run.reason, run.message) for run in open_runs}
    truths = _truths([run.folder for run in open_runs], files, desk or _desk, fresh)
    return [
        dataclasses.replace(run, state=truth.state, reason=truth.reason, message=truth.message)
        if (truth := truths.get(run.id)) is not None
        else run
        for run in runs
    ]


def run_status(folder: RunFolder) -> RunStatus:
    """One run's state with Slurm asked now: for whoever is about to act on it."""
    files = run_state.run_status(folder)
    if (files.state in FINAL and not _may_be_requeued(files)) or not submission.slurm_dir(folder).is_dir():
        return files
    return _truths([folder], {folder.id: files}, Desk(), True).get(folder.id, files)


def _may_change(run: Run) -> bool:
    return run.state not in FINAL or _may_be_requeued(RunStatus(run.state, run.reason))


def _may_be_requeued(truth: RunStatus) -> bool:
    """Slurm's TERM may be a preemption, after which the same job starts again."""
    return truth.state == "stopped" and truth.reason == "signal"


def _truths(folders: list[RunFolder], files: dict[str, RunStatus], desk: Desk, fresh: bool) -> dict[str, RunStatus]:
    handed = {folder.id: submission.last(folder) for folder in folders}
    asking = [one for folder in folders if (one := handed[folder.id]) and not _settled(folder, one)]
    jobs = [one.job for one in asking if one.job]
    names = [one.name for one in asking if not one.job and not one.being_sent]
    heard = desk.about(jobs, names, fresh=fresh) if jobs or names else Heard({}, frozenset(), None)
    return {folder.id: _truth(folder, files[folder.id], handed[folder.id], heard) for folder in folders}


def _settled(folder: RunFolder, one: Submission) -> bool:
    """Slurm's last word is written down, and nothing of the run was heard since."""
    if not one.ended:
        return False
    heartbeat = (folder.read_dict("state") or {}).get("heartbeat") or 0.0
    return float(heartbeat) <= float(one.ended.get("at") or 0.0)


def _truth(folder: RunFolder, files: RunStatus, handed: Submission | None, heard: Heard) -> RunStatus:
    if handed is None:
        return _never_sent(folder, files)
    if handed.ended and _settled(folder, handed):
        said = handed.ended
        return RunStatus(str(said.get("state")), said.get("reason"), said.get("message"))
    key = handed.job or handed.name
    if heard.silence and key in heard.asked:
        return _in_silence(folder, files, heard.silence)
    word = heard.words.get(key)
    if word is not None and handed.job is None:
        handed = dataclasses.replace(handed, job=word.job)
        _write(folder, handed)
    if word is None:
        return _unheard(folder, files, handed, key in heard.asked)
    if word.state in job_words.PENDING:
        again = "Again in line: " if files.state in FINAL or (folder.read_dict("state") or {}).get("attempt") else ""
        return RunStatus("queued", None, again + job_words.pending(job_words.directly(word, heard.words), time.time()))
    if not word.over:
        return _under_way(folder, files, word)
    return _over(folder, handed, word)


def _never_sent(folder: RunFolder, files: RunStatus) -> RunStatus:
    if (
        files.state in FINAL
        or time.time() - float((folder.read_dict("run") or {}).get("created") or 0.0) < SECONDS_TO_ADOPT
    ):
        return files
    return RunStatus("lost", None, "It was never handed to Slurm; resume submits it.")


def _in_silence(folder: RunFolder, files: RunStatus, why: str) -> RunStatus:
    """Slurm does not answer: the files' word stands, and the reader is told."""
    note = f"Slurm does not answer ({why})"
    said = str((folder.read_dict("state") or {}).get("state"))
    if files.state in LIVE or files.state in FINAL:
        return files._replace(message="; ".join(text for text in (files.message, note) if text))
    return RunStatus("queued" if said == "queued" else "unknown", None, f"{note}; it was {said} when last heard of.")


def _unheard(folder: RunFolder, files: RunStatus, handed: Submission, was_asked: bool) -> RunStatus:
    """No word about the job: not asked yet, being submitted, or forgotten by Slurm."""
    said = folder.read_dict("state") or {}
    waits = said.get("state") == "queued"
    if not was_asked or (waits and time.time() - handed.asked < SECONDS_TO_ADOPT):
        return RunStatus("queued", None, files.message) if waits else files
    if not waits and files.state in LIVE:
        return files
    if handed.job is None:
        return RunStatus(
            "lost", None, "Its submission was cut short and Slurm does not know it; resume submits it again."
        )
    forgotten = _told(folder) or RunStatus("lost", None, f"Slurm no longer knows job {handed.job}; resume it.")
    return _keep(folder, handed, files if files.state in FINAL else forgotten, "")


def _under_way(folder: RunFolder, files: RunStatus, word: Word) -> RunStatus:
    said = folder.read_dict("state") or {}
    where = job_words.running(word)
    begun_again = files.state in FINAL and word.start is not None and word.start >= float(said.get("ended") or 0.0) - 1
    if word.state in job_words.ENDING or (files.state in FINAL and not begun_again):
        return RunStatus("stopping", files.reason, f"Slurm job {word.job} is ending on {word.node}")
    if begun_again or files.state == "lost" or said.get("state") == "queued":
        return RunStatus("queued", None, f"{where}; it is starting")
    if files.state == "unknown":
        return RunStatus(str(said.get("state") or "running"), None, f"{where}. {files.message or ''}".strip())
    return files._replace(message="; ".join(text for text in (files.message, where) if text))


def _over(folder: RunFolder, handed: Submission, word: Word) -> RunStatus:
    """The job is over: what the run wrote last, else what Slurm says. Kept, for Slurm forgets within minutes."""
    files = run_state.run_status(folder)  # read again: it may have ended since
    said = folder.read_dict("state") or {}
    if files.state in FINAL and not _may_be_requeued(files):
        return files
    stop = folder.read_dict("stop") or {}
    stop_asked = float(stop.get("when") or 0.0) >= handed.asked
    last_words = worker_exit.last_words(worker_exit.tail(submission.slurm_dir(folder) / "job.log"))
    verdict = job_words.ended(word, stop_asked, last_words)
    if files.state in FINAL:  # stopped by a signal: Slurm knows which
        verdict = verdict if verdict.reason in ("timeout", "preempted", "node_fail", "signal") else files
    else:
        told = _told(folder)
        young = time.time() - float(said.get("heartbeat") or 0.0) < SECONDS_TO_WRITE
        if told is None and young and said.get("state") != "queued" and word.state in ("COMPLETED", "FAILED"):
            return RunStatus("stopping", None, f"Slurm job {word.job} has ended")
        verdict = told or verdict
    return _keep(folder, handed, verdict, word.state)


def _keep(folder: RunFolder, handed: Submission, verdict: RunStatus, word: str) -> RunStatus:
    """Writes the last word down, so that it is not asked for again."""
    record: dict[str, Any] = {**verdict._asdict(), "word": word, "at": time.time()}
    _write(folder, dataclasses.replace(handed, ended=record))
    return verdict


def _told(folder: RunFolder) -> RunStatus | None:
    """How the worker itself said it ended (the runner removes an older outcome when it begins)."""
    outcome = folder.read_dict("outcome")
    if outcome is None or outcome.get("state") not in FINAL:
        return None
    return RunStatus(str(outcome["state"]), outcome.get("reason"), outcome.get("message"))


def _write(folder: RunFolder, changed: Submission) -> None:
    try:
        submission.record(folder, changed)
    except OSError:
        return  # somebody else's run, or a full disk: the word is asked for again next time
