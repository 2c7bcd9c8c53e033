"""Weights & Biases: its own variables (WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY ...) say where to."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.mirror.card import RunCard, RunEnd
from oelm_core.mirror.points import Point
from oelm_core.runs.schema import Mirrored

if TYPE_CHECKING:
    import wandb

LONGEST_ID = 64


class WeightsAndBiases:
    keeps_at_close = True  # until then it may be on its way

    def __init__(self, folder: Path | None, home: Path) -> None:
        self._folder = (folder or Path(os.environ.get("WANDB_DIR") or home)).absolute()
        self._project = os.environ.get("WANDB_PROJECT") or "oelm"
        self._is_offline = os.environ.get("WANDB_MODE") == "offline"
        self._run: wandb.Run | None = None
        self._exit_code = 0
        self._first_step = 0

    @property
    def place(self) -> str:
        if self._is_offline:
            return str(self._folder / "wandb")
        return "/".join(filter(None, (os.environ.get("WANDB_ENTITY"), self._project)))

    def is_there(self, kept: Mirrored) -> bool:
        return not self._is_offline or any((self._folder / "wandb").glob(f"*/run-{kept.run}.wandb"))

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        known = bool(kept.run)
        kept.run = kept.run or wandb_id(card.id)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=self._project,
            id=kept.run,
            name=card.id,
            group=card.group,
            job_type=card.method,
            tags=card.tags,
            config={**card.config, **card.facts},
            dir=str(self._folder),
            resume=None if self._is_offline else "allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_stats=True,  # of the bridge, and nobody asked
                x_disable_machine_info=True,
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                save_code=False,
            ),
        )
        self._first_step = self._run.starting_step
        return known

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        assert self._run is not None
        self._run.tags = card.tags  # what it is opened with gives way to what the run had there
        self._run.config.update({**card.config, **card.facts}, allow_val_change=True)

    def write(self, points: Sequence[Point], kept: Mirrored) -> None:
        assert self._run is not None
        for point in points:
            words = {f"event/{point.what}": point.message} if point.what or point.message else {}
            step = max(point.step, self._run.step) if words else point.step  # an event tells of an earlier step
            if step >= self._first_step:  # else it is there: a bridge before was cut off when it had sent it
                self._run.log({**point.values, **words, "_timestamp": point.t}, step=step)

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        assert self._run is not None
        self._run.summary.update({**end.figures, "state": end.words, "message": end.message})
        self._exit_code = 0 if end.state == "finished" else 1

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=self._exit_code)
            self._run = None


def wandb_id(run_id: str) -> str:
    """The same for the same run on every machine, in letters that W&B takes."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", run_id)
    if plain == run_id and len(run_id) <= LONGEST_ID:
        return run_id
    return f"{plain[:40]}-{hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()}"
