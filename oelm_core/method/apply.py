"""The method in one's own script: apply it to a model, and prove later that nothing frozen moved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import ValidationError
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from oelm_core import config
from oelm_core.config.validation import first_problem
from oelm_core.errors import BadInput
from oelm_core.formatting import percent
from oelm_core.method.census import census
from oelm_core.method.facts import Census, Orthogonality
from oelm_core.method.freezing import FrozenChanged, UnfreezeSchedule, apply_freezing, apply_unfreezing, digest
from oelm_core.method.initialisers import apply_method, check_model, chosen_layers, touched
from oelm_core.models.extras import attach_extras
from oelm_core.models.projections import join_rows
from oelm_core.models.structure import AttentionLayer, attention_layers
from oelm_core.registry import INITIALISERS


class Method(config.Method):
    """How query and key start and what is frozen, with the keys of a preset's `method`; a name is not needed here."""

    name: str = "custom"
    source: Literal["pretrained", "gaussian"] = "pretrained"  # presets say `from`, which Python cannot

    if not TYPE_CHECKING:  # what a type checker sees is the fields themselves

        def __init__(self, **keys: Any) -> None:
            if "from" in keys:
                keys["source"] = keys.pop("from")
            try:
                super().__init__(**keys)
            except ValidationError as error:
                raise BadInput(f"Method: {first_problem(error, type(self))}") from None


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
    """SHA-256 of each frozen weight and bias: "layer 0 query weight" and so on."""

    def __str__(self) -> str:
        total, frozen = self.census.total or 0, self.census.frozen or 0
        layers = len({entry.layer for entry in self.orthogonality.layers})
        chosen = chosen_layers(self.method, layers)
        on = f"{len(chosen)} layers" if len(chosen) == layers else f"{len(chosen)} of {layers} layers"
        said = (
            f"{self.method.init} on {on} of attention: {frozen:,} of {total:,} parameters "
            f"frozen ({percent(frozen / max(total, 1), 1)})"
        )
        made = [
            error
            for entry in self.orthogonality.layers
            if entry.layer in chosen and entry.projection in touched(self.method)
            for error in entry.shape
        ]
        if not made or not INITIALISERS[self.method.init].orthonormal:
            return f"{said}."
        return f"{said}; their heads are orthogonal to {max(made):.0e}."


def apply(model: nn.Module, method: Method, *, seed: int = 42) -> Report:
    """Gives query and key of a model the method's start, freezes what it freezes, and says what was done.

    Any encoder or decoder of transformers, or a model built like one; a refusal (BadInput) says what is in the way.
    Fused projections are split inside: their state dict keeps its names and its tensors.
    """
    if method.peer is not None:
        raise BadInput("apply: method.peer belongs to presets; use peft on your model instead.")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise BadInput(f"apply: {type(model).__name__} is on the meta device and has no values yet; load them first.")
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

    Also of a model loaded again from what was saved. With `unfreeze` nothing is frozen for good; there OelmCallback
    proves each layer as it lets it go.
    """
    if report.method.unfreeze is None:
        _compare(report.hashes, _frozen_hashes(model, report.method))


def _compare(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    moved = [name for name, was in before.items() if now.get(name) != was]
    if moved:
        more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        raise FrozenChanged(f"{moved[0]}{more} changed, although frozen.")


def _frozen_hashes(model: nn.Module, method: Method, only: Collection[int] | None = None) -> dict[str, str]:
    layers = attention_layers(model)
    chosen = (layers[index] for index in chosen_layers(method, len(layers)) if only is None or index in only)
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

    Another loop calls `begin(model, optimiser)`, `step(model, step, total)` before each step (counted from 0), and
    `end(model)`. What a schedule lets go must be in the optimiser from the start.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    def begin(self, model: nn.Module, optimiser: torch.optim.Optimizer | None = None) -> None:
        """Freezes what waits; a refusal where the optimiser would never move it."""
        groups = optimiser.param_groups if optimiser is not None else []
        taken = {id(parameter) for group in groups for parameter in group["params"]}
        known = [name for name, parameter in model.named_parameters() if id(parameter) in taken]
        left = [name for name in self.report.thaws if name not in known]
        if known and left:  # one that knows none of them keeps them in a form of its own
            raise BadInput(
                f"method.unfreeze: {left[0]} is to be let go and is not in the optimiser. Make that of "
                "model.parameters(), or give OelmCallback to Trainer(callbacks=[...]) and leave the optimiser to it."
            )
        self._waiting(model, trains=False)

    def step(self, model: nn.Module, step: int, total: int) -> None:
        method = self.report.method
        schedule = UnfreezeSchedule.of_method(method, len(attention_layers(model)), total, "OelmCallback")
        if schedule is None:
            return
        if going := [layer for layer, start in schedule.starts.items() if start == step]:
            now = _frozen_hashes(model, method, going)
            _compare({name: self.report.hashes[name] for name in now}, now)
        apply_unfreezing(model, method, schedule, step)

    def end(self, model: nn.Module) -> None:
        verify(model, self.report)

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
        self.begin(more["model"], more.get("optimizer"))

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self.step(more["model"], state.global_step, state.max_steps)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self.end(more["model"])
