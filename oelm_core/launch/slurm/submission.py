"""slurm/submission-N.json: written before sbatch is called, so that nothing is ever submitted twice."""

from __future__ import annotations

import time
from pathlib import Path

from oelm_core.errors import Refused
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder, create_record, numbered, read_record, write_record
from oelm_core.runs.schema import Submission

SECONDS_TO_SEND = 60.0
"""How long a submitter on another host may wait for sbatch's answer."""


def slurm_dir(folder: RunFolder) -> Path:
    return folder.path / "slurm"


def script_path(folder: RunFolder) -> Path:
    return slurm_dir(folder) / "job.sh"


def last(folder: RunFolder) -> Submission | None:
    """The newest time the run was submitted to Slurm."""
    made = _numbers(folder)
    found = read_record(_path(folder, made[-1]), Submission) if made else None
    if found is not None:
        found.number = made[-1]
    return found


def being_sent(submission: Submission) -> bool:
    """The submitter may still be waiting for sbatch's answer."""
    if submission.job is not None:
        return False
    who = submission.who
    elsewhere = who.host != process.host() and time.time() - submission.sent < SECONDS_TO_SEND
    return elsewhere or process.anyone_alive(who, [who])


def intend(folder: RunFolder, lane: int | None, name: str | None = None) -> Submission:
    """Writes down that a job is about to be submitted. Made exclusively: of two resumes at once only one submits.

    `name`: of a task, which carries its array's.
    """
    made = _numbers(folder)
    number = (made[-1] if made else 0) + 1
    name = name or f"{folder.id}.{number}"
    intent = Submission(number=number, name=name, sent=time.time(), who=process.me(), lane=lane)
    try:
        slurm_dir(folder).mkdir(exist_ok=True)
        create_record(_path(folder, number), intent)
    except FileExistsError:
        raise Refused(f"{folder.id} was just submitted by another command.") from None
    except OSError as error:
        raise Refused(f"cannot write in {slurm_dir(folder)}: {error.strerror}.") from None
    return intent


def record(folder: RunFolder, submission: Submission) -> None:
    write_record(_path(folder, submission.number), submission)


def withdraw(folder: RunFolder, submission: Submission) -> None:
    """Slurm said no, so there is no job to look for."""
    _path(folder, submission.number).unlink(missing_ok=True)


def _numbers(folder: RunFolder) -> list[int]:
    return numbered(slurm_dir(folder), "submission-", ".json")


def _path(folder: RunFolder, number: int) -> Path:
    return slurm_dir(folder) / f"submission-{number}.json"
