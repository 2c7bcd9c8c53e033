"""A finished run's network again, from its best checkpoint: no download, for the checkpoint brings its own sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from oelm_core import models
from oelm_core.config import Experiment, build_experiment
from oelm_core.data.tokenizers import load_tokenizer
from oelm_core.errors import BadInput, NotFound
from oelm_core.method.freezing import apply_freezing
from oelm_core.models.projections import join_rows
from oelm_core.runs.evaluations import best_step
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord
from oelm_core.training import checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class FinishedRun(NamedTuple):
    run: RunRecord
    experiment: Experiment
    tokenizer: PreTrainedTokenizerFast
    model: nn.Module
    """On the CPU, ready to evaluate."""
    step: int
    """Of the checkpoint."""

    @property
    def network(self) -> Any:
        """The model of transformers, without what training wraps around a decoder."""
        return getattr(self.model, "network", self.model)


def load_finished(folder: RunFolder) -> FinishedRun:
    """The best checkpoint's network and the run's tokenizer; NotFound where the checkpoint is gone or damaged."""
    run = folder.read(RunRecord)
    if run is None:
        raise BadInput(f"{folder.path}: there is no readable run.json.")
    experiment = build_experiment({**run.config, "seed": run.seed}, f"{folder.id}/run.json")
    step = best_step(folder)
    path = folder.checkpoints / f"step-{step}"
    found = checkpoint.verify(path) if step is not None else "there was no evaluation"
    if isinstance(found, str):
        raise NotFound(f"{folder.id} has no best checkpoint that can be read: {path.name}: {found}.")
    tokenizer = load_tokenizer(experiment)
    place: dict[str, Any] = {"path": str(path), "start": "scratch"}  # sizes from the folder, weights below
    sized = experiment.model_copy(update={"model": experiment.model.model_copy(update=place)})
    model = models.build(sized, device="cpu", seed=experiment.seed)
    apply_freezing(model, experiment.method)  # splits fused weights as the checkpoint has them
    checkpoint.load_model(model, found.tensors("model"), path)
    join_rows(model)
    return FinishedRun(run, experiment, tokenizer, model.eval(), found.step)
