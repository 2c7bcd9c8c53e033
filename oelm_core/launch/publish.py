"""`oelm publish`: a run's weights, configuration, tokenizer and model card as a folder for others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.errors import BadInput, Refused, refusing
from oelm_core.launch import finished, spawn
from oelm_core.report.model_card import model_card
from oelm_core.runs.evaluations import PublishAnswer
from oelm_core.runs.folder import remove_tree
from oelm_core.runs.store import Run

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


def publish(run: Run, to: Path, catalogue: Catalogue) -> PublishAnswer:
    """Writes beside and renames: there is a whole folder or none, and one with something in it is left alone."""
    finished.refuse_imported(run, "to publish")
    if run.state != "finished":
        raise BadInput(f"{run.id} is {run.state}; only a finished run can be published.")
    to = Path(os.path.abspath(to.expanduser()))
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise Refused(f"{to} is there already and is not empty; name another folder.")
    draft = to.parent / f".{to.name}-{os.urandom(4).hex()}"
    with refusing(f"cannot write {to}"):
        to.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        try:
            answer = _write(run, draft)
            (draft / "README.md").write_text(model_card(run, answer, to.name, catalogue), encoding="utf-8")
            os.replace(draft, to)  # takes the place of an empty folder, and of no other
        finally:
            remove_tree(draft)
    return answer


def _write(run: Run, draft: Path) -> PublishAnswer:
    command = finished.process_of("publish", f"--run-folder={run.folder.path}", f"--to={draft}")
    return finished.answer_of(command, spawn.environment("cpu", [], None), PublishAnswer, "writes the weights")
