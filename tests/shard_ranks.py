"""What ranks see of a model that FSDP2 shares out among them, against the same model whole; for `gradient_ranks`."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from oelm_core.method.freezing import frozen_hash
from oelm_core.models.recompute import checkpoint_activations
from oelm_core.training.checkpoint import load_model, model_tensors
from oelm_core.training.distributed import Ranks
from oelm_core.training.gradients import Gradients, TaskLoss
from oelm_core.training.precision import choose_precision
from oelm_core.training.sharding import Shards, joined
from oelm_core.training.tasks import ClassificationTask


def compare_shards(model: nn.Module, task: ClassificationTask, ranks: Ranks) -> dict[str, Any]:
    """model: frozen in part, with a weight that has no part in the loss."""
    same, halved, at_once = (copy.deepcopy(model) for _ in range(3))
    checkpoint_activations(model)
    shards, gradients = _shared_out(model, task, ranks)
    found: dict[str, Any] = {}
    with shards.whole():
        found["the same before the first step"] = _hash(model) == _hash(same)
    found["held"] = sum(_mine(p).numel() for p in model.parameters()) / sum(p.numel() for p in same.parameters())
    found["frozen"] = difference(gradients, model, same, task, ranks)
    found["apart"] = _apart(shards, model, same, task, ranks)
    for network in (model, same, halved):
        network.requires_grad_(True)
    found["unfrozen"] = difference(gradients, model, same, task, ranks)
    found["bf16"] = difference(_shared_out(halved, task, ranks, "bf16")[1], halved, same, task, ranks)
    found["scaled"] = _scaled_steps(_shared_out(at_once, task, ranks)[1], at_once, task, ranks)
    return found


def _shared_out(
    model: nn.Module, task: ClassificationTask, ranks: Ranks, compression: str | None = None
) -> tuple[Shards, Gradients]:
    shards = Shards(TaskLoss(model, task), ranks, compression)
    return shards, Gradients(model, task, ranks, choose_precision("fp32", ranks.device), compression, shards)


def _hash(model: nn.Module) -> str:
    return frozen_hash(model, dict(model.named_parameters()))


def _mine(tensor: torch.Tensor) -> torch.Tensor:
    assert isinstance(tensor, DTensor)
    return tensor.to_local()


def _apart(
    shards: Shards, model: nn.Module, same: nn.Module, task: ClassificationTask, ranks: Ranks
) -> dict[str, float | bool]:
    """Inside `whole` the second rank goes forward, alone, and all load other weights: the parts are as they were."""
    difference, other = 0.0, {name: tensor + 1 for name, tensor in model_tensors(same).items()}
    with shards.whole(), torch.no_grad():
        for step in range(3 * ranks.rank):
            part = task.load(step + 1, ranks).parts[0]
            difference = max(difference, float((task.loss(model, part, 1) - task.loss(same, part, 1)).abs()))
        load_model(model, other, Path())
        loaded = all(torch.equal(tensor, other[name]) for name, tensor in model_tensors(model).items())
    with shards.whole():
        kept = _hash(model) == _hash(same)
    return {
        "difference": ranks.sum_(torch.tensor(difference)).item(),
        "kept": not ranks.agree(int(not kept)),
        "loaded": loaded,
    }


def difference(
    gradients: Gradients, model: nn.Module, same: nn.Module, task: ClassificationTask, ranks: Ranks
) -> dict[str, float]:
    """Of three steps of two passes, as DDP lays out its buckets with the first; and of the norm over all weights."""
    largest, scale, with_gradient, of_norm = 0.0, 0.0, 0, 0.0
    for step in (1, 2, 3):
        batch: Any = task.load(step, ranks)
        gradients.prepare(batch)
        for number, part in enumerate(batch.parts):
            with gradients.pass_of(batch, number):
                gradients.loss(part, batch.units).backward()
            task.loss(same, part, batch.units).backward()
        for parameter in same.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        for ours, plain in zip(model.parameters(), same.parameters(), strict=True):
            assert (ours.grad is None) == (plain.grad is None)
            if ours.grad is not None and plain.grad is not None:
                with_gradient += 1
                largest = max(largest, float((joined(ours.grad) - plain.grad).abs().max()))
                scale = max(scale, float(plain.grad.abs().max()))
        norms = [joined(nn.utils.clip_grad_norm_(network.parameters(), 1e-3)) for network in (model, same)]
        of_norm = max(of_norm, float((norms[0] - norms[1]).abs() / norms[1]))
        for network in (model, same):
            network.zero_grad(set_to_none=True)
    return {"difference": largest, "largest": scale, "tensors": with_gradient, "of norm": of_norm}


def _scaled_steps(
    gradients: Gradients, model: nn.Module, task: ClassificationTask, ranks: Ranks
) -> dict[str, list[float]]:
    """How far three steps under loss scaling move the weights, the second with an overflow in one rank's part."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    moved, scales = [], []
    for step in (1, 2, 3):
        before = [_mine(p.detach()).clone() for p in model.parameters()]
        batch: Any = task.load(step, ranks)
        for part in batch.parts:
            scaler.scale(gradients.loss(part, batch.units)).backward()
        if step == 2 and ranks.rank == 1:
            _mine(next(p.grad for p in model.parameters() if p.grad is not None))[0] = math.inf
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        far = max(
            float((_mine(p.detach()) - old).abs().max()) for p, old in zip(model.parameters(), before, strict=True)
        )
        moved.append(max(ranks.gather(far)))
        scales.append(scaler.get_scale())
    held = sum(_mine(state["exp_avg"]).numel() for state in optimiser.state.values())
    return {"moved": moved, "scale": scales, "held": [held / sum(p.numel() for p in optimiser.state)]}
