"""What trains and when: freezing of Q/K, the integrity of heads, hashes, unfreezing, and the optimiser's groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from oelm_core.config import Experiment, Method
from oelm_core.config.limits import unfreezing_starts
from oelm_core.errors import BadInput, LabError
from oelm_core.method.initialisers import chosen_layers
from oelm_core.models.peers import trains_under
from oelm_core.models.projections import join_rows, split_rows
from oelm_core.models.structure import AttentionLayer, attention_layers, head_modules


class FrozenChanged(LabError):
    """A tensor that should have stayed as it was did not; the run's result means nothing."""


@dataclass(frozen=True)
class Frozen:
    """What a method froze: the names of parameters, and of those the ones that a schedule lets go later."""

    names: tuple[str, ...]
    """Frozen at the start, in the model's order."""
    thaws: dict[str, int]
    """Of these, the ones that will train, each with its layer."""

    @property
    def for_good(self) -> tuple[str, ...]:
        """Names that must be bit-equal at the end of training."""
        return tuple(name for name in self.names if name not in self.thaws)

    def hash(self, model: nn.Module) -> str:
        """Of the tensors frozen for good: take it before and after training."""
        return frozen_hash(model, self.for_good)

    def verify(self, model: nn.Module, before: str) -> None:
        """FrozenChanged when a tensor frozen for good is not what it was."""
        if self.hash(model) != before:
            raise FrozenChanged("a frozen weight changed during training; its hash is not the one taken at the start.")


def apply_freezing(model: nn.Module, method: Method) -> Frozen:
    """Sets `requires_grad` of every parameter as the method says, and returns what it froze.

    query and key are frozen with their biases (unless extras.qk_bias learns those), ffn without. A peer method freezes
    everything but its own parameters and the heads.
    """
    join_rows(model)
    model.requires_grad_(True)
    layers = attention_layers(model)
    chosen = chosen_layers(method, len(layers))
    for index in chosen:
        _split_fused(layers[index], method)
    layer_of = {
        id(p): layer.index for layer in layers if layer.index in chosen for p in frozen_parameters(layer, method)
    }
    frozen = _peer_frozen(model, method) | layer_of.keys()
    for parameter in model.parameters():
        if id(parameter) in frozen:
            parameter.requires_grad_(False)
    check_integrity(model)
    named = list(model.named_parameters())
    thaws = {name: layer_of[id(p)] for name, p in named if id(p) in layer_of} if method.unfreeze else {}
    return Frozen(tuple(name for name, p in named if id(p) in frozen), thaws)


def frozen_parameters(layer: AttentionLayer, method: Method) -> list[torch.Tensor]:
    """The parameters of one layer that the method freezes."""
    named = layer.projections().items()
    wanted = (p.parameters(bias=not method.extras.qk_bias) for name, p in named if name in method.freeze)
    found: list[torch.Tensor] = [one for parameters in wanted for one in parameters]
    if "ffn" in method.freeze:
        found += [module.weight for module in layer.ffn if isinstance(module.weight, torch.Tensor)]
    return found


def _split_fused(layer: AttentionLayer, method: Method) -> None:
    """Query and key of a fused projection are split off as far as the method freezes them."""
    rows = [row for name, p in layer.projections().items() if name in method.freeze for row in p.rows or ()]
    if rows:
        split_rows(layer.query.owner, rows, bias=not method.extras.qk_bias)


def _peer_frozen(model: nn.Module, method: Method) -> set[int]:
    """All but the peer's own parameters, the heads, and what method.extras lets attention learn."""
    if method.peer is None:
        return set()
    kept = {id(p) for _, module in head_modules(model) for p in module.parameters()}
    if method.extras.qk_bias:
        kept |= {id(p.bias) for layer in attention_layers(model) for p in layer.projections().values()}
    for name, parameter in model.named_parameters():
        if "extras" in name.split(".") or trains_under(method.peer, name):
            kept.add(id(parameter))
    return {id(p) for p in model.parameters()} - kept


def check_integrity(model: nn.Module) -> None:
    """Refuses a model whose pooler, classifier or language-model head would not train."""
    for name, module in head_modules(model):
        for parameter_name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                raise BadInput(
                    f"{name}.{parameter_name} is frozen; pooler, classifier and language-model head must always train."
                )


def freeze_model_parameters(model: nn.Module, freeze_mode: bool = True) -> Frozen:
    """The author's switch: freeze all query and key projections with their biases, or make everything train."""
    frozen = ["query", "key"] if freeze_mode else []
    return apply_freezing(model, Method.model_validate({"name": "freeze", "freeze": frozen}))


def frozen_hash(model: nn.Module, names: Iterable[str]) -> str:
    """SHA-256 over name, dtype, shape and bytes of the named parameters."""
    parameters = dict(model.named_parameters())
    return digest((name, parameters[name]) for name in names)


def qk_fingerprint(model: nn.Module) -> str:
    """SHA-256 of all query and key weights and biases: equal before and after set-up only in an untouched baseline."""
    tensors = []
    for layer in attention_layers(model):
        for name, projection in layer.projections().items():
            parts = {"weight": projection.weight, "bias": projection.bias}
            tensors += [(f"{layer.index}.{name}.{part}", one) for part, one in parts.items() if one is not None]
    return digest(tensors)


def digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over name, dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        # A copy: numpy keeps hold of the storage it looks into, and that of a sharded model's weights must be freed.
        raw = tensor.detach().to("cpu", copy=True).contiguous()
        digest.update(f"{name} {raw.dtype} {list(raw.shape)}\n".encode())
        digest.update(raw.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class UnfreezeSchedule:
    """When frozen layers begin to train: a function of the step alone, so a resumed run needs no memory of it.

    Steps are counted from 0: at step `starts[layer]` the layer takes part for the first time.
    """

    starts: dict[int, int]
    warmup: int

    @classmethod
    def of(cls, experiment: Experiment, layers: int, total_steps: int | None = None) -> UnfreezeSchedule | None:
        """The schedule of an experiment, or None; refused when a layer would start past the end of training."""
        if experiment.method.unfreeze is None:
            return None
        total = total_steps or experiment.train.max_steps
        if total is None:
            raise BadInput(f"{experiment.id}: method.unfreeze needs the number of steps; give train.max_steps.")
        return cls.of_method(experiment.method, layers, total, experiment.id)

    @classmethod
    def of_method(cls, method: Method, layers: int, total: int, where: str) -> UnfreezeSchedule | None:
        unfreeze = method.unfreeze
        if unfreeze is None:
            return None
        starts = unfreezing_starts(unfreeze, chosen_layers(method, layers), total)
        late = [layer for layer, start in starts.items() if start >= total]
        if late:
            raise BadInput(
                f"{where}: method.unfreeze lets layer {late[0]} go at step {starts[late[0]]}, "
                f"but training ends at step {total}; start earlier or make `every` smaller."
            )
        return cls(starts, unfreeze.warmup)

    def trains(self, step: int) -> frozenset[int]:
        """The layers let go by this step."""
        return frozenset(layer for layer, start in self.starts.items() if step >= start)

    def changes_at(self, step: int) -> bool:
        """Whether a layer is let go exactly at this step."""
        return step in self.starts.values()

    @staticmethod
    def ramp(step: int, start: int, warmup: int) -> float:
        """Own warm-up of a layer: 0 while frozen, then growing to 1."""
        return 0.0 if step < start else min(1.0, (step - start + 1) / max(1, warmup))


def parameter_groups(model: nn.Module, experiment: Experiment, total_steps: int | None = None) -> list[dict[str, Any]]:
    """Groups for the optimiser: everything that trains or will, with weight decay as in the recipe.

    Beside torch's own keys a group has `name`, `lr_scale` (layer_decay and qk_lr) and, where its weights are let go
    later, `starts` and `warmup` in steps; `group_lr` turns them into the rate at a step. Weights still frozen have no
    gradient, so the optimiser passes them by: no decay, no state. total_steps is needed for schedules in fractions
    when the recipe gives epochs.
    """
    method, train = experiment.method, experiment.train
    layers = attention_layers(model)
    depth = {id(p): layer.index for layer in layers for p in layer.block.parameters()}
    heads = {id(p) for _, module in head_modules(model) for p in module.parameters()}
    qk = {id(p) for layer in layers for projection in layer.projections().values() for p in projection.parameters()}
    schedule = UnfreezeSchedule.of(experiment, len(layers), total_steps)
    waiting = [layer for layer in layers if schedule is not None and layer.index in schedule.starts]
    thawing = {id(p) for layer in waiting for p in frozen_parameters(layer, method)}
    groups: dict[str, dict[str, Any]] = {}
    outside = -1  # embeddings lie below the first layer; what follows the layers, such as a last norm, above the top
    for parameter in model.parameters():
        if id(parameter) in depth:
            outside = len(layers) - 1
        waits = id(parameter) in thawing and not parameter.requires_grad
        if not (parameter.requires_grad or waits):
            continue
        index = depth.get(id(parameter), len(layers) - 1 if id(parameter) in heads else outside)
        scale = method.layer_decay ** (len(layers) - 1 - index) * (method.qk_lr if id(parameter) in qk else 1.0)
        own = method.qk_lr != 1.0 and id(parameter) in qk
        name = f"unfreezing layer {index}" if waits else ("query and key" if own else "rest")
        group = groups.setdefault(
            f"{name} {scale:.12g}",
            {"params": [], "name": name, "lr": train.lr * scale, "lr_scale": scale, "weight_decay": train.weight_decay},
        )
        if waits and schedule is not None:
            group.update(starts=schedule.starts[index], warmup=schedule.warmup)
        group["params"].append(parameter)
    return list(groups.values())


def group_lr(group: dict[str, Any], base_lr: float, step: int) -> float:
    """The rate of a group at a step (counted from 0): the schedule's rate, its own scale, and its own warm-up."""
    rate = base_lr * float(group.get("lr_scale", 1.0))
    if "starts" not in group:
        return rate
    return rate * UnfreezeSchedule.ramp(step, int(group["starts"]), int(group["warmup"]))


def apply_unfreezing(model: nn.Module, method: Method, schedule: UnfreezeSchedule, step: int) -> None:
    """Lets go of the layers that train at a step. A function of the step alone, so a resumed run needs nothing else."""
    training = schedule.trains(step)
    for layer in attention_layers(model):
        if layer.index in schedule.starts:
            for parameter in frozen_parameters(layer, method):
                parameter.requires_grad_(layer.index in training)
