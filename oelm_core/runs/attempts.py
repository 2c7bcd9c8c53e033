"""attempts/<n>.json: made exclusively, so that of two runners that want the same run only one gets it."""

from __future__ import annotations

from pathlib import Path

from oelm_core.errors import Refused
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder, create_record, numbered, read_record, write_record
from oelm_core.runs.schema import Attempt, Misfit, ProcessIdentity, Record, RunRecord, RunState, decode
from oelm_core.runs.status import FINAL
from oelm_core.small_files import read_small_file


def numbers(folder: RunFolder) -> list[int]:
    """The attempts made so far, in order."""
    return numbered(folder.attempts, "", ".json")


def path_of(folder: RunFolder, number: int) -> Path:
    return folder.attempts / f"{number}.json"


def read(folder: RunFolder, number: int) -> Attempt | None:
    return read_record(path_of(folder, number), Attempt)


def read_all(folder: RunFolder) -> list[Attempt]:
    """Every attempt that can be read, first to last."""
    return [found for number in numbers(folder) if (found := read(folder, number)) is not None]


def last(folder: RunFolder) -> Attempt | None:
    made = numbers(folder)
    return read(folder, made[-1]) if made else None


def per_run(folder: RunFolder, run: RunRecord) -> int:
    """Devices on each node as a resume takes them that asks for nothing else: those of the newest attempt."""
    before = last(folder)
    return (before.per_run if before else None) or run.per_run


def claim(folder: RunFolder, attempt: Attempt, *, force: bool = False) -> None:
    """Makes the next attempt this process's own and numbers it; refuses while another one lives.

    The list is read before the check: whoever claims in between takes the number, and making the file fails.
    """
    made = numbers(folder)
    if made:
        _refuse_if_alive(folder, made[-1], force)
    attempt.attempt = (made[-1] if made else 0) + 1
    try:
        folder.attempts.mkdir(exist_ok=True)
        create_record(path_of(folder, attempt.attempt), attempt)
    except FileExistsError:
        raise Refused(f"{folder.id} was just taken up by another resume.") from None
    except OSError as error:
        raise Refused(f"cannot write in {folder.path}: {error.strerror}.") from None


def update(folder: RunFolder, attempt: Attempt) -> None:
    write_record(path_of(folder, attempt.attempt), attempt)


def newest_checkpoint_step(folder: RunFolder) -> int:
    """The step of the newest checkpoint by name; the worker verifies it and may fall back to an older one."""
    return max(checkpoint_steps(folder), default=0)


def checkpoint_steps(folder: RunFolder) -> tuple[int, ...]:
    """Steps of the checkpoints that are there, by name."""
    return tuple(sorted(numbered(folder.checkpoints, "step-")))


class _Claim(Record):
    """Only what tells whether an attempt's runner may live: another key that does not fit must not hide it."""

    runner: ProcessIdentity | None = None
    ended: float | None = None
    deleted: float | None = None
    state: str | None = None


def _refuse_if_alive(folder: RunFolder, number: int, force: bool) -> None:
    path = path_of(folder, number)
    try:
        before = decode(read_small_file(path), _Claim)
    except (OSError, Misfit) as error:
        if force:
            return
        why = error.strerror if isinstance(error, OSError) else error
        raise Refused(
            f"{folder.id}: attempts/{path.name} does not tell whether its runner lives ({why}); "
            "--force resumes it all the same."
        ) from None
    if before.ended is not None and before.state == "finished" and not force:
        # it came to its end after whoever resumes had looked
        raise Refused(f"{folder.id} has finished; there is nothing to resume.")
    runner = before.runner
    if runner is None or before.ended is not None:
        return
    is_stranger = before.deleted is None and runner.pid and process.is_stranger(runner.pid, folder.path)
    if process.anyone_alive(runner, [runner]) and not is_stranger:
        raise Refused(f"{folder.id} is still running (pid {runner.pid}); stop it first.")
    if runner.host != process.host() and not force:
        state = folder.read(RunState)
        if state is None or state.state not in FINAL:
            raise Refused(f"{folder.id} was last seen on {runner.host}; --force resumes it here all the same.")
