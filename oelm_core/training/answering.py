"""The frame of a process that works on finished runs for a command: watched, with an answer or why there is none.

The light side is `oelm_core/launch/finished.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from oelm_core.data import hub
from oelm_core.errors import LabError
from oelm_core.models.loading import load_libraries
from oelm_core.runs.evaluations import Answer
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord, encode
from oelm_core.training.supervision import guard


def answer(folders: Sequence[RunFolder], work: Callable[[], Answer | None]) -> int:
    """Does the work and sends what comes of it; a refusal is an answer too. The exit code."""
    guard(folders[0])
    records = [folder.read(RunRecord) for folder in folders]
    hub.prepare_for(*(record.config if record else {} for record in records))
    load_libraries()
    try:
        found = work()
    except LabError as error:
        found = Answer(error=str(error), code=error.exit_code)
    if found is not None:
        send(found)
    return found.code if found is not None else 0


def send(found: Answer) -> None:
    """One line on stdout."""
    sys.stdout.buffer.write(encode(found) + b"\n")
    sys.stdout.buffer.flush()
