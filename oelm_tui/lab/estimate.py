"""What a launch will cost: steps, time from earlier runs, memory from earlier runs or from the model's sizes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_tui.lab.view import RunView

if TYPE_CHECKING:
    from oelm_core.config import Experiment

BYTES = 4
ADAM = 8
ACTIVATIONS = 60
"""Bytes kept for the backward pass, per token, layer and channel: measured order of magnitude in fp32."""


@dataclass(frozen=True)
class Estimate:
    steps: int | None
    steps_from: str
    seconds: float | None
    seconds_from: str
    memory: float | None
    memory_from: str
    parameters: int | None = None
    frozen: int | None = None


def estimate(experiment: Experiment, views: Sequence[RunView]) -> Estimate:
    """From runs of the same preset if there are any, else of the same model, data and batch."""
    same = [view for view in views if view.run.preset.lower() == experiment.id.lower() and view.run.config]
    alike = [view for view in views if _alike(view, experiment)]
    steps, steps_from = experiment.train.max_steps, "by the recipe"
    if steps is None:
        steps = next((view.run.total for view in alike if view.run.total and _same_length(view, experiment)), None)
        counted = f"{experiment.train.epochs:g} epochs, counted when the data is read"
        steps_from = "as in earlier runs" if steps else counted
    seconds, seconds_from = None, "no earlier run of this model, data and batch to judge by"
    paces = [pace for view in same + alike if (pace := seconds_per_step(view)) is not None]
    if paces and steps:
        seconds, seconds_from = statistics.median(paces[:5]) * steps, f"from {min(5, len(paces))} earlier runs"
    count, frozen = parameters(experiment)
    memory = _memory(experiment, count, frozen)
    return Estimate(steps, steps_from, seconds, seconds_from, memory, "estimated from the sizes", count, frozen)


def seconds_per_step(view: RunView) -> float | None:
    """By the wall clock of the run as a whole, evaluations included."""
    if view.pace:
        return 1 / view.pace
    run = view.run
    if run.state == "finished" and view.took and run.step:
        return view.took / run.step
    return None


def _alike(view: RunView, experiment: Experiment) -> bool:
    model, train = view.run.config.get("model"), view.run.config.get("train")
    return (
        isinstance(model, dict)
        and isinstance(train, dict)
        and view.run.dataset == experiment.data.name
        and model.get("name") == experiment.model.name
        and train.get("batch_size") == experiment.train.batch_size
        and train.get("accumulate") == experiment.train.accumulate
    )


def _same_length(view: RunView, experiment: Experiment) -> bool:
    train = view.run.config.get("train") or {}
    return bool(train.get("epochs") == experiment.train.epochs and train.get("max_steps") is None)


def parameters(experiment: Experiment) -> tuple[int | None, int | None]:
    """(total, frozen) by arithmetic on the shape; None where the preset does not say it. Peers' additions left out."""
    shape = experiment.model.shape
    if shape is None:
        return None, None
    from oelm_core.config import layer_numbers

    d, ff = shape.d_model, shape.d_ff
    gpt = experiment.arch == "gpt"
    projections = 4 * d * d + (0 if gpt else 4 * d)
    layer = projections + 2 * d * ff + ff + d + 4 * d
    total = shape.vocab * d + shape.positions * d + shape.layers * layer
    classes = experiment.data.classes or 0
    total += 2 * d if gpt else 4 * d + d * d + d + d * classes + classes
    of_layer = sum(name in experiment.method.freeze for name in ("query", "key")) * (d * d + (0 if gpt else d))
    of_layer += (2 * d * ff + ff + d) * ("ffn" in experiment.method.freeze)
    return total, of_layer * len(layer_numbers(experiment.method.layers, shape.layers))


def _memory(experiment: Experiment, count: int | None, frozen: int | None) -> float | None:
    shape = experiment.model.shape
    if count is None or frozen is None or shape is None:
        return None
    state = count * BYTES + (count - frozen) * (BYTES + ADAM)
    tokens = experiment.train.batch_size * experiment.data.max_length
    return float(state + tokens * shape.layers * shape.d_model * ACTIVATIONS + tokens * shape.d_model * BYTES)
