"""Everything one run needs, set up in order: device, data, model, method, optimiser, the checkpoint to go on from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from oelm_core import models
from oelm_core.config import Experiment, build_experiment
from oelm_core.data import classification, language, sets
from oelm_core.data.tokenizers import check_vocabulary, load_tokenizer
from oelm_core.errors import BadInput, Refused
from oelm_core.method.attention_stats import attention_patterns
from oelm_core.method.freezing import UnfreezeSchedule, apply_freezing, parameter_groups
from oelm_core.models.structure import attention_layers
from oelm_core.runs.folder import RunFolder
from oelm_core.training import checkpoint, precision, starting
from oelm_core.training.classification_task import ClassificationTask
from oelm_core.training.distributed import Ranks, join
from oelm_core.training.language_task import LanguageTask
from oelm_core.training.memory import PeakMemory
from oelm_core.training.progress import Progress
from oelm_core.training.recorder import Records, cut_after
from oelm_core.training.signals import StopRequest
from oelm_core.training.timing import StepTimes

if TYPE_CHECKING:
    from oelm_core.method.freezing import Frozen
    from oelm_core.training.tasks import Task


@dataclass
class Session:
    """One attempt at a run, ready to train."""

    folder: RunFolder
    run: dict[str, Any]
    experiment: Experiment
    ranks: Ranks
    stop: StopRequest
    records: Records
    precision: precision.Precision
    task: Task
    model: nn.Module
    frozen: Frozen
    unfreezing: UnfreezeSchedule | None
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    total: int
    threads: int
    checks: dict[str, Any]
    memory: PeakMemory
    progress: Progress = field(default_factory=Progress)
    times: StepTimes = field(default_factory=StepTimes)
    checkpoint_bytes: int = 0

    def remembered(self) -> dict[str, Any]:
        """The checkpoint's state.json."""
        return {
            "preset": self.run["preset"],
            "config_hash": self.run["config_hash"],
            "seed": self.experiment.seed,
            "progress": self.progress.as_dict(),
            "scaler": self.scaler.state_dict(),
            "threads": self.threads,
            "world_size": self.ranks.world,
            "precision": self.precision.name,
            "device": self.ranks.device.type,
            "torch": str(torch.__version__),
        }

    def model_card(self) -> dict[str, Any]:
        """Files beside the weights with which transformers can load the checkpoint as a model."""
        config: Any = getattr(self.model, "config", None)
        return {"config.json": config.to_dict()} if config is not None else {}


def set_up(folder: RunFolder, stop: StopRequest) -> Session:
    """Builds the session of a run folder; a newest complete checkpoint in it is gone on from."""
    run = folder.read_dict("run")
    if run is None:
        raise BadInput(f"{folder.path}: there is no readable run.json.")
    experiment = build_experiment({**run["config"], "seed": run["seed"]}, f"{folder.id}/run.json")
    ranks = join(device_kind())
    records = Records(folder, active=ranks.main)
    found = _find_checkpoint(folder, run, ranks, records)
    threads = set_threads(experiment, found, records)
    chosen = precision.choose(experiment.train.precision, ranks.device)
    if chosen.note:
        records.say(chosen.note)
    tokenizer = load_tokenizer(experiment)
    experiment = starting.with_demo_encoder(experiment, records.say)
    model = models.build(experiment, device="cpu", seed=experiment.seed)
    starting.check_positions(model, experiment)
    check_vocabulary(tokenizer, starting.vocabulary_size(model), experiment)
    task = build_task(experiment, tokenizer, model, records)
    total = task.plan.total_steps(experiment.train.max_steps, experiment.train.epochs)
    records.total = total
    checks = starting.apply_method(folder, run, experiment, model, task, ranks)
    frozen = apply_freezing(model, experiment.method)
    checks = starting.complete_checks(folder, checks, model, frozen, ranks)
    model.to(ranks.device)
    ranks.same_weights(model)
    if experiment.train.attention_stats and ranks.main:
        attention_patterns(model, task.probe(model)[0])  # refused now rather than at the first evaluation
    model.train()
    session = Session(
        folder=folder,
        run=run,
        experiment=experiment,
        ranks=ranks,
        stop=stop,
        records=records,
        precision=chosen,
        task=task,
        model=model,
        frozen=frozen,
        unfreezing=UnfreezeSchedule.of(experiment, len(attention_layers(model)), total),
        optimiser=build_optimiser(model, experiment, total),
        scaler=chosen.scaler(),
        total=total,
        threads=threads,
        checks=checks,
        memory=PeakMemory(ranks.device),
    )
    if found is not None:
        go_on_from(session, found)
    if experiment.train.compile:
        for layer in attention_layers(model):  # layer by layer: quick to compile, and packed batches use the same ones
            layer.block.compile(dynamic=True)
    return session


def device_kind() -> str:
    """cpu or cuda: OELM_DEVICE as the runner sets it, else what there is."""
    asked = os.environ.get("OELM_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    if asked not in ("cpu", "cuda"):
        raise BadInput(f"OELM_DEVICE={asked}: write cpu or cuda.")
    if asked == "cuda" and not torch.cuda.is_available():
        raise Refused("this run was given a GPU but torch sees none; `oelm doctor` says why. On a CPU: --device cpu.")
    return asked


def set_threads(experiment: Experiment, found: checkpoint.Checkpoint | None, records: Records) -> int:
    """CPU threads: sums depend on their number, so a resumed run keeps it unless another is asked for."""
    asked = os.environ.get("OELM_THREADS")
    before = found.state.get("threads") if found else None
    threads = int(asked) if asked else before or experiment.train.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    if found and before != threads:
        records.event(
            found.step, "threads", f"going on with {threads} threads; it was {before}: sums may round otherwise"
        )
    return threads


def build_task(experiment: Experiment, tokenizer: Any, model: nn.Module, records: Records) -> Task:
    records.progress(0, phase="data", force=True)
    cache = sets.cache_dir()
    task: Task
    if experiment.data.classes is not None:
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        data = classification.load(experiment, tokenizer, cache, records.say)
        task = ClassificationTask(experiment, data, model, padding or 0)
    else:
        task = LanguageTask(experiment, language.load(experiment, tokenizer, cache, records.say), tokenizer)
    if task.note:
        records.event(0, "batching", task.note)
    return task


def build_optimiser(model: nn.Module, experiment: Experiment, total: int) -> torch.optim.Optimizer:
    """AdamW, fused: on a CPU clip and step are 3.5-5x faster than the plain loop, on a GPU it never waits."""
    train = experiment.train
    groups = parameter_groups(model, experiment, total)
    return torch.optim.AdamW(
        groups, lr=train.lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay, fused=True
    )


def _find_checkpoint(
    folder: RunFolder, run: dict[str, Any], ranks: Ranks, records: Records
) -> checkpoint.Checkpoint | None:
    """Every rank takes the one that rank 0 has verified; what came after it is cut off."""
    found = None
    if ranks.main:
        checkpoint.clear_drafts(folder.checkpoints)
        found = checkpoint.newest(folder.checkpoints, records.say)
        if found is not None:
            checkpoint.check_owner(found, run["preset"], run["config_hash"])
        due = found is not None and bool(found.state["progress"]["eval_due"])
        cut_after(folder, found.step if found else 0, due)
        records.reopen()
    step = ranks.gather(found.step if found else None)[0]
    if step is not None and found is None:
        other = checkpoint.verify(folder.checkpoints / f"step-{step}")
        if not isinstance(other, checkpoint.Checkpoint):
            raise BadInput(f"{folder.checkpoints}/step-{step}: {other} (seen from rank {ranks.rank}).")
        found = other
    return found


def go_on_from(session: Session, found: checkpoint.Checkpoint) -> None:
    """Puts weights, moments, clock and progress back to where the checkpoint left them."""
    state = found.state
    checkpoint.load_model(session.model, found.tensors("model"), found.path)
    checkpoint.load_optimiser(session.optimiser, session.model, found.tensors("optimiser"))
    session.times = StepTimes.from_tensors(found.tensors("clock"))
    session.progress = Progress.from_dict(state["progress"])
    if session.scaler.is_enabled() and state["scaler"]:
        session.scaler.load_state_dict(state["scaler"])
    session.checkpoint_bytes = sum(file.stat().st_size for file in found.path.iterdir())
    if session.ranks.main:
        tidy_checkpoints(session.folder.checkpoints, found.step, session.progress.best)
    if state["world_size"] != session.ranks.world:
        message = (
            f"going on with {session.ranks.world} processes; it was {state['world_size']}: sums may round otherwise"
        )
        session.records.event(found.step, "world_size", message)
    session.records.event(found.step, "resumed", f"resumed from the checkpoint of step {found.step}")
    session.records.progress(found.step, force=True)


def tidy_checkpoints(folder: Path, step: int, best: dict[str, Any] | None) -> None:
    """Removes damaged checkpoints past the one gone on from, and points `latest` and `best` where they belong."""
    import shutil

    for later in checkpoint.steps(folder):
        if later > step:
            shutil.rmtree(folder / f"step-{later}", ignore_errors=True)
    checkpoint.point(folder, "latest", step)
    if best and (folder / f"step-{best['step']}").is_dir():
        checkpoint.point(folder, "best", best["step"])
