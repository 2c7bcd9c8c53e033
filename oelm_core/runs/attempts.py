"""attempts/<n>.json: made exclusively, so that of two runners that want the same run only one gets it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from oelm_core.errors import Refused
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder, read_json, write_json

_NUMBERED = re.compile(r"^(\d+)\.json$")
_CHECKPOINT = re.compile(r"^step-(\d+)$")


def numbers(folder: RunFolder) -> list[int]:
    """The attempts made so far, in order."""
    try:
        names = os.listdir(folder.attempts)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in map(_NUMBERED.match, names) if match)


def read(folder: RunFolder, number: int) -> dict[str, Any] | None:
    return read_json(_path(folder, number))


def last(folder: RunFolder) -> dict[str, Any] | None:
    made = numbers(folder)
    return read(folder, made[-1]) if made else None


def claim(folder: RunFolder, content: dict[str, Any], *, force: bool = False) -> int:
    """Makes the next attempt this process's own and returns its number; refuses while another one lives.

    The file is complete when it appears (linked into place), and the list is read before the check: whoever
    claims in between takes the number, and the link fails.
    """
    made = numbers(folder)
    if made:
        _refuse_if_alive(folder, made[-1], force)
    number = (made[-1] if made else 0) + 1
    draft = folder.attempts / f".claim-{os.getpid()}-{os.urandom(3).hex()}"
    try:
        folder.attempts.mkdir(exist_ok=True)
        with open(draft, "x", encoding="utf-8") as file:
            json.dump({"attempt": number, **content}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, _path(folder, number))
    except FileExistsError:
        raise Refused(f"{folder.id} was just taken up by another resume.") from None
    except OSError as error:
        raise Refused(f"cannot write in {folder.path}: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)
    return number


def update(folder: RunFolder, number: int, content: dict[str, Any]) -> None:
    write_json(_path(folder, number), content)


def newest_checkpoint_step(folder: RunFolder) -> int:
    """The step of the newest checkpoint by name; the worker verifies it and may fall back to an older one."""
    try:
        names = os.listdir(folder.checkpoints)
    except OSError:
        return 0
    return max((int(match[1]) for match in map(_CHECKPOINT.match, names) if match), default=0)


def _refuse_if_alive(folder: RunFolder, number: int, force: bool) -> None:
    before = read(folder, number) or {}
    runner = before.get("runner")
    if before.get("ended") is not None or not isinstance(runner, dict):
        return
    if process.anyone_alive(runner, [runner]):
        raise Refused(f"{folder.id} is still running (pid {runner.get('pid')}); stop it first.")
    if runner.get("host") != process.host() and not force:
        state = folder.read_dict("state") or {}
        if state.get("state") not in ("finished", "failed", "stopped"):
            raise Refused(f"{folder.id} was last seen on {runner.get('host')}; --force resumes it here all the same.")


def _path(folder: RunFolder, number: int) -> Path:
    return folder.attempts / f"{number}.json"
