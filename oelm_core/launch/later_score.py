"""`oelm evaluate`: a finished run's best checkpoint scored on other text, in a process of the training room."""

from __future__ import annotations

import subprocess
from pathlib import Path

from oelm_core.errors import BadInput
from oelm_core.launch import finished, spawn
from oelm_core.runs.evaluations import ScoreAnswer
from oelm_core.runs.schema import Misfit, decode
from oelm_core.runs.store import Run


def score_later(
    run: Run, data: str, split: str | None = None, *, again: bool = False, device: str = "cpu", settings: list[str]
) -> ScoreAnswer:
    """The score, new or kept from before. Waits for it; Ctrl-C ends the process too."""
    finished.refuse_imported(run, "to score")
    if run.state != "finished":
        raise BadInput(f"{run.id} is {run.state}; only a finished run can be evaluated.")
    if not Path(data).expanduser().exists():
        raise BadInput(f"--data {data}: no such file or folder.")
    held = finished.take_card(device, run.id)
    try:
        kind, cards = ("cuda", [held.device]) if held else ("cpu", [])
        command = finished.process_of("later_score", f"--run-folder={run.folder.path}", f"--data={data}")
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


def _answer(ended: subprocess.CompletedProcess[str]) -> ScoreAnswer:
    lines = ended.stdout.strip().splitlines()
    try:
        answer = decode(lines[-1].encode(), ScoreAnswer) if lines else None
    except Misfit:
        answer = None
    if answer is None:
        finished.raise_silence("scores", ended.stderr, ended.returncode)
    if answer.error is not None:
        finished.raise_answer(answer.error, answer.code)
    return answer
