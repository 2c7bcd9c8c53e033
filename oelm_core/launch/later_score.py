"""`oelm evaluate`: a finished run's best checkpoint scored on other text, in a process of the training room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oelm_core.errors import BadInput, LabError, NotFound, Refused
from oelm_core.launch import device_request, lease, spawn
from oelm_core.runs.evaluations import ScoreAnswer
from oelm_core.runs.schema import Misfit, decode
from oelm_core.runs.store import Run

SCORER = "oelm_core.training.later_score"


def score_later(
    run: Run, data: str, split: str | None = None, *, again: bool = False, device: str = "cpu", settings: list[str]
) -> ScoreAnswer:
    """The score, new or kept from before. Waits for it; Ctrl-C ends the process too."""
    if run.imported:
        raise BadInput(f"{run.id} is imported and has no checkpoint to score.")
    if run.state != "finished":
        raise BadInput(f"{run.id} is {run.state}; only a finished run can be evaluated.")
    if not Path(data).expanduser().exists():
        raise BadInput(f"--data {data}: no such file or folder.")
    held = _card(device, run.id)
    try:
        kind, cards = ("cuda", [held.device]) if held else ("cpu", [])
        command = [sys.executable, "-m", SCORER, f"--run-folder={run.folder.path}", f"--data={data}"]
        command += [f"--split={split}"] if split else []
        command += ["--again"] if again else []
        command += [f"--set={text}" for text in settings]
        ended = subprocess.run(
            command, env=spawn.environment(kind, cards, None), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    finally:
        if held:
            held.release()
    return _answer(ended)


def _card(device: str, run: str) -> lease.Lease | None:
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


def _answer(ended: subprocess.CompletedProcess[str]) -> ScoreAnswer:
    lines = ended.stdout.strip().splitlines()
    try:
        answer = decode(lines[-1].encode(), ScoreAnswer) if lines else None
    except Misfit:
        answer = None
    if answer is None:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise LabError(f"the process that scores ended without an answer: {last}".rstrip(".") + ".")
    if answer.error is not None:
        kinds: dict[int, type[LabError]] = {kind.exit_code: kind for kind in (BadInput, NotFound, Refused)}
        raise kinds.get(answer.code, LabError)(answer.error)
    return answer
