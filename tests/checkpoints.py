"""Finished runs with a checkpoint that loads, without training: the network as its seed draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from oelm_core import models
from oelm_core.config import Experiment
from oelm_core.runs.folder import RunFolder
from oelm_core.training import checkpoint
from tests.run_factory import write_run


def write_checkpoint(folder: RunFolder, experiment: Experiment, step: int) -> Any:
    """The network, saved as the checkpoint of a step."""
    model: Any = models.build(experiment, seed=experiment.seed)
    state = checkpoint.CheckpointState(step=step, seed=experiment.seed)
    checkpoint.save(folder.checkpoints, state, {"model": checkpoint.model_tensors(model)}, model.config)
    return model.eval()


def run_with_checkpoint(root: Path, experiment: Experiment, **more: Any) -> tuple[RunFolder, Any]:
    """A finished run as the factory writes it, its best step's checkpoint, and the network in it."""
    run = write_run(root, experiment, **more)
    best = msgspec.json.decode((run.folder.path / "result.json").read_bytes())["best"]["step"]
    return run.folder, write_checkpoint(run.folder, experiment, best)
