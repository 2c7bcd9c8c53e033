"""Errors meant for the person at the terminal: one sentence, and the exit code that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """What was wrong, where, and what to write instead. Never shown as a traceback."""

    exit_code = 1


class BadInput(LabError):
    """A preset, override, option or data file that cannot be used as written."""

    exit_code = 2


class NotFound(LabError):
    """No such preset, run, study or device, or nothing to compare."""

    exit_code = 3


class Refused(LabError):
    """The machine said no: disk, permission, Slurm."""

    exit_code = 4


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence offering the nearest names, or "" when nothing is near.

    >>> did_you_mean("sst2-oelmm", ["sst2-oelm", "GPT-01"])
    ' Did you mean sst2-oelm?'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(by_lower[match] for match in near)}?" if near else ""
