"""The method in one's own script: apply it to a model, and prove later that nothing frozen moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from oelm_core import config
from oelm_core.config.limits import unfreezing_starts
from oelm_core.errors import BadInput
from oelm_core.formatting import percent
from oelm_core.method.census import census
from oelm_core.method.facts import Census, Orthogonality
from oelm_core.method.freezing import FrozenChanged, UnfreezeSchedule, apply_freezing, apply_unfreezing, digest
from oelm_core.method.initialisers import apply_method, check_model, chosen_layers
from oelm_core.models.extras import attach_extras
from oelm_core.models.projections import join_rows
from oelm_core.models.structure import AttentionLayer, attention_layers


class Method(config.Method):
    """How query and key start and what is frozen, with the keys of a preset's `method`; a name is not needed here."""

    name: str = "custom"


@dataclass(frozen=True)
class Report:
    """What `apply` did to a model."""

    method: Method
    census: Census
    """Parameters: total, trainable, frozen, by component and by layer."""
    orthogonality: Orthogonality
    """How far each head of each query and key is from orthonormal."""
    frozen: tuple[str, ...]
    """Names of the frozen parameters, as `named_parameters` has them."""
    thaws: tuple[str, ...]
    """Of these, the ones that a schedule lets go."""
    hashes: dict[str, str]
    """SHA-256 of each weight and bias that must never move: "layer 0 query weight" and so on."""

    def __str__(self) -> str:
        total, frozen = self.census.total or 0, self.census.frozen or 0
        worst = self.orthogonality.worst_shape
        layers = len({entry.layer for entry in self.orthogonality.layers})
        return (
            f"{self.method.init} on {layers} layers of attention: {frozen:,} of {total:,} parameters "
            f"frozen ({percent(frozen / max(total, 1), 1)}); heads are orthogonal to {worst:.0e}."
        )


def apply(model: nn.Module, method: Method, *, seed: int = 42) -> Report:
    """Gives query and key of a model the method's start, freezes what it freezes, and says what was done.

    Any encoder or decoder of transformers, or a model built like one; a refusal (BadInput) says what is in the way.
    Fused projections are split inside: their state dict keeps its names and its tensors.
    """
    if method.peer is not None:
        raise BadInput("apply: method.peer belongs to presets; use peft on your model instead.")
    join_rows(model)
    attach_extras(model, method.extras)
    apply_method(model, method, torch.Generator().manual_seed(seed))
    found = check_model(model, method)
    frozen = apply_freezing(model, method)
    return Report(
        method, census(model, frozen.thaws), found, frozen.names, tuple(frozen.thaws), _frozen_hashes(model, method)
    )


def verify(model: nn.Module, report: Report) -> None:
    """FrozenChanged, naming what moved, unless all that was frozen for good is bit-equal to how `apply` left it.

    Also of a model loaded again from what was saved.
    """
    now = _frozen_hashes(model, report.method)
    moved = [name for name, was in report.hashes.items() if now.get(name) != was]
    if moved:
        more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        raise FrozenChanged(f"{moved[0]}{more} changed, although frozen.")


def _frozen_hashes(model: nn.Module, method: Method) -> dict[str, str]:
    if method.unfreeze is not None:
        return {}  # all that is frozen is let go in time
    layers = attention_layers(model)
    chosen = (layers[index] for index in chosen_layers(method, len(layers)))
    named = (item for layer in chosen for item in _frozen_tensors(layer, method))
    return {name: digest([(name, tensor)]) for name, tensor in named}


def _frozen_tensors(layer: AttentionLayer, method: Method) -> list[tuple[str, torch.Tensor]]:
    found = []
    for name, projection in layer.projections().items():
        if name in method.freeze:
            biases = [] if method.extras.qk_bias else [projection.bias, *projection.apart]
            found += [(f"layer {layer.index} {name} weight", projection.weight)]
            found += [(f"layer {layer.index} {name} bias", bias) for bias in biases if bias is not None]
    if "ffn" in method.freeze:
        weights = enumerate(module.weight for module in layer.ffn)
        found += [(f"layer {layer.index} ffn {place}", w) for place, w in weights if isinstance(w, torch.Tensor)]
    return found


class OelmCallback(TrainerCallback):
    """For `transformers.Trainer`: proves at the end that nothing frozen moved, and lets layers go as the method says.

    Another loop calls `begin(model)` after it has made its optimiser, `step(model, step, total)` before each step
    (counted from 0), and `end(model)`.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    def begin(self, model: nn.Module) -> None:
        """Freezes what waits. Before this, weights that a schedule lets go can be given to an optimiser."""
        self._waiting(model, trains=False)

    def step(self, model: nn.Module, step: int, total: int) -> None:
        method = self.report.method
        if method.unfreeze is not None:
            apply_unfreezing(model, method, self._schedule(model, total), step)

    def end(self, model: nn.Module) -> None:
        verify(model, self.report)

    def _schedule(self, model: nn.Module, total: int) -> UnfreezeSchedule:
        unfreeze = self.report.method.unfreeze
        assert unfreeze is not None
        chosen = chosen_layers(self.report.method, len(attention_layers(model)))
        return UnfreezeSchedule(unfreezing_starts(unfreeze, chosen, total), unfreeze.warmup)

    def _waiting(self, model: nn.Module, *, trains: bool) -> None:
        waiting = set(self.report.thaws)
        for name, parameter in model.named_parameters():
            if name in waiting:
                parameter.requires_grad_(trains)

    # What Trainer calls.

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self._waiting(more["model"], trains=True)  # an optimiser takes only what trains when it is made

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        self.begin(more["model"])

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self.step(more["model"], state.global_step, state.max_steps)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self.end(more["model"])
