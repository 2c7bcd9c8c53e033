"""Work and memory of one training step by arithmetic on the preset: parameters, FLOPs, bytes. Nothing measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm_core.registry import family_of

if TYPE_CHECKING:
    from oelm_core.config import Experiment

FLOAT = 4
ADAM = 2 * FLOAT
"""Adam's two moments of a trained weight."""


def parameters(experiment: Experiment) -> tuple[int | None, int | None]:
    """(total, frozen) by arithmetic on the shape; None where the preset does not say it.

    A peer such as LoRA adds weights of its own and freezes most others: only the network's own total is known then.
    """
    shape = experiment.model.shape
    if shape is None:
        return None, None
    from oelm_core.config import layer_numbers

    d, ff = shape.d_model, shape.d_ff
    family = family_of(experiment.arch)
    bias = d if family.qk_bias else 0
    projections = 4 * (d * d + bias)
    layer = projections + 2 * d * ff + ff + d + 4 * d
    total = shape.vocab * d + shape.positions * d + shape.layers * layer
    classes = experiment.data.classes or 0
    total += 2 * d if family.language else 4 * d + d * d + d + d * classes + classes
    of_layer = sum(name in experiment.method.freeze for name in ("query", "key")) * (d * d + bias)
    of_layer += (2 * d * ff + ff + d) * ("ffn" in experiment.method.freeze)
    if experiment.method.peer is not None:
        return total, None
    return total, of_layer * len(layer_numbers(experiment.method.layers, shape.layers))


def flops_per_step(experiment: Experiment) -> float | None:
    """Of one optimiser step, every sequence counted at full length; None where the preset has no shape."""
    shape, data, train = experiment.model.shape, experiment.data, experiment.train
    if shape is None:
        return None
    from oelm_core.method.flops import StepSizes, expected

    sizes = StepSizes(
        vocab=shape.vocab,
        d_model=shape.d_model,
        layers=shape.layers,
        heads=shape.heads,
        d_ff=shape.d_ff,
        batch=train.batch_size,
        length=data.max_length,
    )
    frozen = {"query", "key"} <= set(experiment.method.freeze) and experiment.method.layers == "all"
    classifier = data.classes is not None
    return float(expected(sizes, frozen=frozen, classifier=classifier).total * train.accumulate)


def bytes_needed(experiment: Experiment) -> float | None:
    """Weights, gradients, Adam's moments, and what the backward pass keeps of a full batch, all in fp32.

    Kept per token and layer: about 8 rows of d_model (both norms and what enters them, query, key, value, the mixed
    values) and 2 of d_ff (around the activation). Logits are left out (they are made in chunks), and so are the room
    that torch and a driver take for themselves and the attention weights that a slow kernel would keep.
    """
    count, frozen = parameters(experiment)
    shape = experiment.model.shape
    if count is None or frozen is None or shape is None:
        return None
    weights = count * FLOAT + (count - frozen) * (FLOAT + ADAM)
    tokens = experiment.train.batch_size * experiment.data.max_length
    kept = tokens * shape.layers * (8 * shape.d_model + 2 * shape.d_ff) * FLOAT
    return float(weights + kept)
