"""Everything one run needs, set up in order: device, data, model, method, optimiser, the checkpoint to resume from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from oelm_core import models
from oelm_core.config import Experiment, build_experiment
from oelm_core.data import packing, sets
from oelm_core.data.tokenizers import check_vocabulary, load_tokenizer
from oelm_core.errors import BadInput, Refused
from oelm_core.method import initialisers
from oelm_core.method.attention_stats import attention_patterns
from oelm_core.method.census import census
from oelm_core.method.freezing import Frozen, UnfreezeSchedule, apply_freezing, parameter_groups, qk_fingerprint
from oelm_core.models.recompute import checkpoint_activations
from oelm_core.models.structure import ADDED, attention_layers, head_modules
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Checks, FrozenWeights, ModelFacts, QkScale, RunRecord
from oelm_core.training import checkpoint
from oelm_core.training.checkpoint import Checkpoint, CheckpointState, Progress
from oelm_core.training.compiling import as_written, compile_layers
from oelm_core.training.distributed import Ranks, join
from oelm_core.training.gradients import TaskLoss
from oelm_core.training.precision import Precision, choose_precision
from oelm_core.training.recorder import Recorder, cut_after, say
from oelm_core.training.sharding import Shards
from oelm_core.training.supervision import StopRequest
from oelm_core.training.tasks import Task, load_task
from oelm_core.training.timing import MemoryMeter, StepTimes


@dataclass
class Session:
    """One attempt at a run, ready to train."""

    folder: RunFolder
    run: RunRecord
    experiment: Experiment
    ranks: Ranks
    stop: StopRequest
    recorder: Recorder
    precision: Precision
    task: Task[Any]
    model: nn.Module
    frozen: Frozen
    unfreezing: UnfreezeSchedule | None
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    total: int
    """Optimiser steps of the whole run."""
    threads: int
    checks: Checks
    memory: MemoryMeter
    progress: Progress = field(default_factory=Progress)
    times: StepTimes = field(default_factory=StepTimes)
    checkpoint_bytes: int = 0
    shards: Shards | None = None
    """Set where each rank holds only its part of the model."""

    def whole(self) -> AbstractContextManager[None]:
        """Around what needs all weights on this rank. All ranks enter together."""
        return self.shards.whole() if self.shards else nullcontext()

    def checkpoint_state(self) -> CheckpointState:
        return CheckpointState(
            step=self.progress.step,
            preset=self.run.preset,
            config_hash=self.run.config_hash,
            seed=self.experiment.seed,
            progress=self.progress,
            scaler=self.scaler.state_dict(),
            threads=self.threads,
            world_size=self.ranks.world,
            precision=self.precision.name,
            device=self.ranks.device.type,
            torch=str(torch.__version__),
        )

    def uncompiled(self) -> AbstractContextManager[object]:
        """Around what is no training step."""
        return as_written(bool(self.experiment.train.compile) and self.task.fixed_shapes)


def set_up(folder: RunFolder, stop: StopRequest) -> Session:
    """Builds the session of a run folder; it resumes from the newest complete checkpoint there."""
    run = folder.read(RunRecord)
    if run is None:
        raise BadInput(f"{folder.path}: there is no readable run.json.")
    experiment = build_experiment({**run.config, "seed": run.seed}, f"{folder.id}/run.json")
    ranks = join(device_kind())
    found = _find_checkpoint(folder, run, ranks)
    recorder = Recorder(folder, active=ranks.main)
    threads = set_threads(experiment, found, recorder)
    precision = choose_precision(experiment.train.precision, ranks.device, found.state.precision if found else None)
    precision.engage()
    if precision.note:
        recorder.say(precision.note)
    tokenizer = load_tokenizer(experiment)
    settings = experiment
    # transformers writes a model down on the first rank alone
    experiment = ranks.first_alone(lambda: with_demo_encoder(settings, recorder.say))
    model: Any = models.build(experiment, device="cpu", seed=experiment.seed)
    check_positions(model, experiment)
    check_vocabulary(tokenizer, int(model.config.vocab_size), experiment)
    recorder.progress(0, phase="data", force=True)
    task = load_task(experiment, tokenizer, model, sets.cache_dir(), recorder.say)
    if task.note:
        recorder.event(0, "batching", task.note)
    total = task.plan.total_steps(experiment.train.max_steps, experiment.train.epochs)
    recorder.total = total
    checks = apply_method(experiment, model, task)
    frozen = apply_freezing(model, experiment.method)
    checks = complete_checks(folder, checks, model, frozen, ranks)
    sharded = shares_out(experiment, ranks, recorder)
    if not sharded:
        model.to(ranks.device)
    ranks.same_weights(model)
    if experiment.train.attention_stats and ranks.main:
        attention_patterns(model, task.probe(model)[0])  # refused now rather than at the first evaluation
    model.train()
    if experiment.train.checkpoint_activations:
        checkpoint_activations(model)
    shards = Shards(TaskLoss(model, task), ranks, experiment.train.gradient_compression) if sharded else None
    session = Session(
        folder=folder,
        run=run,
        experiment=experiment,
        ranks=ranks,
        stop=stop,
        recorder=recorder,
        precision=precision,
        task=task,
        model=model,
        frozen=frozen,
        unfreezing=UnfreezeSchedule.of(experiment, len(attention_layers(model)), total),
        optimiser=build_optimiser(model, experiment, total),
        scaler=precision.scaler(),
        total=total,
        threads=threads,
        checks=checks,
        memory=MemoryMeter(ranks.device),
        shards=shards,
    )
    if found is not None:
        resume_from(session, found)
    if experiment.train.compile:
        graphs = experiment.train.compile == "graphs"
        if graphs and not task.fixed_shapes:
            recorder.say("train.compile graphs: batches change their size here; layers are compiled without graphs")
        compile_layers(model, fixed_shapes=task.fixed_shapes, graphs=graphs)
    return session


# -- the machine -------------------------------------------------------------------------------------------------------


def device_kind() -> str:
    """cpu or cuda: OELM_DEVICE as the runner sets it, else what there is."""
    asked = os.environ.get("OELM_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    if asked not in ("cpu", "cuda"):
        raise BadInput(f"OELM_DEVICE={asked}: write cpu or cuda.")
    if asked == "cuda" and not torch.cuda.is_available():
        raise Refused("this run was given a GPU but torch sees none; `oelm doctor` says why. On a CPU: --device cpu.")
    return asked


def shares_out(experiment: Experiment, ranks: Ranks, recorder: Recorder) -> bool:
    """Whether each rank is to hold only its part of the model; one alone holds it all, and is told so."""
    if experiment.train.shard and ranks.world == 1:
        message = "train.shard: one process has nobody to share the model out to, so it holds all of it"
        recorder.event(0, "shard", message)
    return bool(experiment.train.shard) and ranks.world > 1


def set_threads(experiment: Experiment, found: Checkpoint | None, recorder: Recorder) -> int:
    """CPU threads: sums depend on their number, so a resumed run keeps it unless another is asked for."""
    asked = os.environ.get("OELM_THREADS")
    before = found.state.threads if found else None
    threads = int(asked) if asked else before or experiment.train.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    if found and before != threads:
        message = f"continuing with {threads} threads instead of {before}: sums may round differently"
        recorder.event(found.step, "threads", message)
    return threads


# -- the model as it starts, and checks.json which proves what was done to it ------------------------------------------


def with_demo_encoder(experiment: Experiment, say: Callable[[str], None]) -> Experiment:
    """The demo's encoder has no download: it is pretrained here once, on the demo generator's text."""
    model = experiment.model
    if model.name != "demo-bert" or model.path is not None or experiment.start != "pretrained":
        return experiment
    from oelm_core.training.pretrain_demo import ensure_demo_encoder

    folder = ensure_demo_encoder(sets.cache_dir(), model.shape, say)
    settings = {**model.model_dump(), "path": str(folder)}
    return experiment.model_copy(update={"model": type(model).model_validate(settings)})


def check_positions(model: Any, experiment: Experiment) -> None:
    """Refuses sequences longer than the model's position table (RoBERTa spends two places of it on padding)."""
    positions = int(model.config.max_position_embeddings) - packing.first_position(model)
    if experiment.data.max_length > positions:
        raise BadInput(
            f"{experiment.id}: data.max_length {experiment.data.max_length} is longer than the model's {positions}"
            f" positions; write --set data.max_length={positions}."
        )


def apply_method(experiment: Experiment, model: nn.Module, task: Task[Any]) -> Checks:
    """Initialises Q/K as the method says, and notes from the weights themselves whether they were touched."""
    loaded = qk_fingerprint(model)
    source = model_fingerprint(experiment, model)
    initialisers.apply_method(model, experiment.method, torch.Generator().manual_seed(experiment.seed))
    report = initialisers.check_model(model, method=experiment.method)
    return Checks(
        orthogonality=report,
        qk_scale=QkScale(report.mean_row_norm),
        qk_untouched=qk_fingerprint(model) == loaded,
        model=ModelFacts(experiment.model.name, experiment.model.path, source),
        data=task.describe(),
    )


def complete_checks(folder: RunFolder, checks: Checks, model: nn.Module, frozen: Frozen, ranks: Ranks) -> Checks:
    """Adds census and freeze hash and writes checks.json; a resumed run keeps the one of its first start."""
    kept = folder.read(Checks)
    if kept is not None and kept.frozen is not None:
        return kept
    checks.census = census(model, frozen.thaws)
    checks.frozen = FrozenWeights(list(frozen.names), frozen.thaws, frozen.hash(model))
    if ranks.main:
        folder.write(checks)
    return checks


def model_fingerprint(experiment: Experiment, model: nn.Module) -> str:
    """Names what the arms of a comparison share: sizes from scratch, or pretrained weights, without their fresh head
    and without what a method adds (LoRA, adapters, extras)."""
    if experiment.start == "scratch":
        shape = experiment.model.shape
        sizes = {"arch": experiment.arch, "dropout": experiment.model.dropout, **(shape.model_dump() if shape else {})}
        return hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:16]
    fresh = {id(p) for _, module in head_modules(model) for p in module.parameters()}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if id(parameter) not in fresh and not ADDED & set(name.split(".")):
            digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def build_optimiser(model: nn.Module, experiment: Experiment, total: int) -> torch.optim.Optimizer:
    """AdamW, fused: on a CPU clip and step are 3.5-5x faster than the plain loop, on a GPU it never waits."""
    train = experiment.train
    groups = parameter_groups(model, experiment, total)
    return torch.optim.AdamW(
        groups, lr=train.lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay, fused=True
    )


# -- resuming ----------------------------------------------------------------------------------------------------------


def _find_checkpoint(folder: RunFolder, run: RunRecord, ranks: Ranks) -> Checkpoint | None:
    """Every rank takes the one that rank 0 has verified; what came after it is cut off."""
    found = None
    if ranks.main:
        checkpoint.clear_drafts(folder.checkpoints)
        found = checkpoint.newest(folder.checkpoints, say)
        if found is not None:
            checkpoint.check_owner(found, run.preset, run.config_hash)
        cut_after(folder, found.step if found else 0, found is not None and found.state.progress.eval_due)
    step = ranks.gather(found.step if found else None)[0]
    if step is not None and found is None:
        other = checkpoint.verify(folder.checkpoints / f"step-{step}")
        if not isinstance(other, Checkpoint):
            raise BadInput(f"{folder.checkpoints}/step-{step}: {other} (seen from rank {ranks.rank}).")
        found = other
    return found


def resume_from(s: Session, found: Checkpoint) -> None:
    """Puts weights, moments, clock and progress back to where the checkpoint left them."""
    state = found.state
    checkpoint.load_model(s.model, found.tensors("model"), found.path)
    checkpoint.load_optimiser(s.optimiser, s.model, found.tensors("optimiser"))
    s.times = StepTimes.from_tensors(found.tensors("clock"))
    s.progress = state.progress
    if s.scaler.is_enabled() and state.scaler:
        s.scaler.load_state_dict(state.scaler)
    s.checkpoint_bytes = sum(file.stat().st_size for file in found.path.iterdir())
    if s.ranks.main:
        checkpoint.tidy(s.folder.checkpoints, found.step, s.progress.best_step)
    if state.world_size != s.ranks.world:
        message = f"continuing with {s.ranks.world} processes instead of {state.world_size}: sums may round differently"
        s.recorder.event(found.step, "world_size", message)
    if state.precision not in (None, s.precision.name):
        message = f"continuing in {s.precision.name} instead of {state.precision}, which this device has not"
        s.recorder.event(found.step, "precision", message)
    s.recorder.event(found.step, "resumed", f"resumed from the checkpoint of step {found.step}")
    s.recorder.progress(found.step, force=True)
