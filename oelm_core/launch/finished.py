"""What the commands on a run's checkpoint share: whether it has one, the card they take, what their process answers."""

from __future__ import annotations

import subprocess
import sys
from typing import NoReturn, TypeVar

from oelm_core.errors import BadInput, LabError, NotFound, Refused
from oelm_core.launch import device_request, lease
from oelm_core.runs.evaluations import Answer
from oelm_core.runs.schema import Misfit, decode
from oelm_core.runs.store import Run

A = TypeVar("A", bound=Answer)


def refuse_imported(run: Run, purpose: str) -> None:
    """An imported run is figures alone. `purpose`: to score."""
    if run.imported:
        raise BadInput(f"{run.id} is imported and has no checkpoint {purpose}.")


def process_of(module: str, *arguments: str) -> list[str]:
    """The command of a process in the training room."""
    return [sys.executable, "-m", f"oelm_core.training.{module}", *arguments]


def take_card(device: str, run: str) -> lease.Lease | None:
    """The lease of the one card asked for; None for the CPU."""
    names = device_request.parse_device(device)
    if names == []:
        return None
    if names is None or len(names) > 1:
        raise BadInput(f"--device {device}: write cpu, or the number of one card.")
    card = device_request.find_card(names[0], device_request.probe() or [])
    busy = lease.holder(str(card.uuid))
    taken = None if busy else lease.take(str(card.uuid), run)
    if taken is None:
        raise Refused(f"GPU {names[0]} is used by {busy.run if busy else 'another run'}; name another card, or cpu.")
    return taken


def answer_of(command: list[str], environment: dict[str, str], kind: type[A], process: str) -> A:
    """What the process says last, once it has ended; Ctrl-C ends it too. `process`: scores."""
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    lines = ended.stdout.strip().splitlines()
    try:
        answer = decode(lines[-1].encode(), kind) if lines else None
    except Misfit:
        answer = None
    if answer is None:
        raise_silence(process, ended.stderr, ended.returncode)
    if answer.error is not None:
        raise_answer(answer.error, answer.code)
    return answer


def raise_answer(error: str, code: int) -> NoReturn:
    """The error that the process met, with its own exit code."""
    kinds: dict[int, type[LabError]] = {kind.exit_code: kind for kind in (BadInput, NotFound, Refused)}
    raise kinds.get(code, LabError)(error)


def raise_silence(process: str, said: str, code: int | None) -> NoReturn:
    """The process ended without an answer: a bug, or somebody ended it."""
    last = (said.strip().splitlines() or [f"exit code {code}"])[-1]
    raise LabError(f"the process that {process} ended without an answer: {last}".rstrip(".") + ".")
