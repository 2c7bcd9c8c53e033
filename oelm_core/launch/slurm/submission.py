"""slurm/submission-N.json: the intent before sbatch is called, the job id after it, and Slurm's last word about it."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oelm_core.errors import Refused
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder, read_json, write_json

_NUMBERED = re.compile(r"^submission-(\d+)\.json$")


@dataclass(frozen=True)
class Submission:
    """One time a run was handed to Slurm."""

    number: int
    name: str
    """Unique among all jobs: a submission whose answer was lost is found again by it."""
    asked: float
    """When sbatch was about to be called, epoch seconds."""
    who: dict[str, Any]
    """The process that called it."""
    job: str | None = None
    lane: int | None = None
    ended: dict[str, Any] | None = None
    """Slurm's last word, kept because Slurm forgets: `{word, state, reason, message, at}`."""

    @property
    def being_sent(self) -> bool:
        """The submitter may still be waiting for sbatch's answer."""
        return self.job is None and (
            process.anyone_alive(self.who, [self.who])
            or (self.who.get("host") != process.host() and time.time() - self.asked < 60)
        )


def slurm_dir(folder: RunFolder) -> Path:
    return folder.path / "slurm"


def script_path(folder: RunFolder) -> Path:
    return slurm_dir(folder) / "job.sh"


def numbers(folder: RunFolder) -> list[int]:
    try:
        names = os.listdir(slurm_dir(folder))
    except OSError:
        return []
    return sorted(int(match[1]) for match in map(_NUMBERED.match, names) if match)


def last(folder: RunFolder) -> Submission | None:
    made = numbers(folder)
    return read(folder, made[-1]) if made else None


def read(folder: RunFolder, number: int) -> Submission | None:
    content = read_json(_path(folder, number))
    if content is None:
        return None
    return Submission(
        number,
        str(content.get("name")),
        float(content.get("asked") or 0.0),
        content.get("who") or {},
        content.get("job"),
        content.get("lane"),
        content.get("ended"),
    )


def intend(folder: RunFolder, lane: int | None) -> Submission:
    """Writes down that a job is about to be submitted. Made exclusively: of two resumes at once only one submits."""
    made = numbers(folder)
    number = (made[-1] if made else 0) + 1
    intent = Submission(number, f"{folder.id}.{number}", time.time(), process.me(), lane=lane)
    path = _path(folder, number)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(3).hex()}")
    try:
        slurm_dir(folder).mkdir(exist_ok=True)
        draft.write_text(json.dumps(_content(intent), indent=1))
        os.link(draft, path)
    except FileExistsError:
        raise Refused(f"{folder.id} was just submitted by another command.") from None
    except OSError as error:
        raise Refused(f"cannot write in {slurm_dir(folder)}: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)
    return intent


def record(folder: RunFolder, submission: Submission) -> None:
    write_json(_path(folder, submission.number), _content(submission))


def withdraw(folder: RunFolder, submission: Submission) -> None:
    """Slurm said no, so there is no job to look for."""
    _path(folder, submission.number).unlink(missing_ok=True)


def _content(submission: Submission) -> dict[str, Any]:
    keys = ("name", "asked", "who", "job", "lane", "ended")
    return {key: getattr(submission, key) for key in keys}


def _path(folder: RunFolder, number: int) -> Path:
    return slurm_dir(folder) / f"submission-{number}.json"
