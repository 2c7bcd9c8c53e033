"""Errors for the person at the terminal: one sentence, an exit code, and the reason of a run that fails with it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator

from oelm_core.plain_text import visible


class LabError(Exception):
    """What was wrong, where, and what to write instead, in one line. Never shown as a traceback."""

    exit_code = 1
    reason = "error"
    """What outcome.json says when a run fails with it: one of the contract's reasons."""

    def __init__(self, sentence: object = "") -> None:
        super().__init__(one_line(str(sentence)))


class BadInput(LabError):
    """A preset, override or option that cannot be used as written."""

    exit_code = 2
    reason = "config"


class BadData(BadInput):
    """Text, labels or a tokenizer that cannot be used as they are."""

    reason = "data"


class NotFound(LabError):
    """No such preset, run, study or device, or nothing to compare."""

    exit_code = 3
    reason = "data"  # what a run itself can miss: its data set, its tokenizer, its weights


class Refused(LabError):
    """The machine said no: disk, permission, Slurm."""

    exit_code = 4


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Errors of disk and permissions become a Refused: what could not be done, and the system's reason."""
    try:
        yield
    except OSError as error:
        refused = Refused(f"{what}: {error.strerror or error}.")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            refused.reason = "disk"
        raise refused from None


_LONGEST = 2000


def one_line(text: str) -> str:
    """Text of somebody's file as part of a sentence: nothing in it is obeyed, and it is no longer than somebody reads.

    >>> one_line("a" + chr(10) + "b" + chr(27) + "[31m")
    'a\\\\nb\\\\x1b[31m'
    """
    shown = visible(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"


def first_line(error: BaseException) -> str:
    """What another library's exception says first, for a sentence of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence offering the nearest names, or "" when nothing is near.

    >>> did_you_mean("sst2-oelmm", ["sst2-oelm", "GPT-01"])
    ' Did you mean sst2-oelm?'
    """
    import difflib  # late: a waiting runner never guesses

    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(by_lower[match] for match in near)}?" if near else ""
