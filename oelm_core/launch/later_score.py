"""`oelm evaluate`: a finished run's best checkpoint scored on other text, in a process of the training room."""

from __future__ import annotations

from pathlib import Path

from oelm_core.errors import BadInput
from oelm_core.launch import finished, spawn
from oelm_core.runs.evaluations import ScoreAnswer
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
        return finished.answer_of(command, spawn.environment(kind, cards, None), ScoreAnswer, "scores")
    finally:
        if held:
            held.release()
