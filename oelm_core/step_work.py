"""What an optimiser step computes, moves, launches and keeps, by arithmetic on the preset. No torch, no measurement."""

from __future__ import annotations

from typing import NamedTuple

from oelm_core.config import Experiment
from oelm_core.config.sections import Shape
from oelm_core.data.sets import find_set
from oelm_core.method.flops import StepSizes, expected
from oelm_core.method.parameter_count import parameters

FLOAT = 4
HALF = 2
ADAM = 2 * FLOAT
"""Adam's two moments of a trained weight."""

# Rows of d_model and of d_ff that a layer reads and writes for each token, forward and backward, when nothing stays in
# a cache. Held against what the pretend card counts, in tests/integration/test_pretend_cuda.py.
OF_PRODUCTS = (30, 6)
OF_THE_REST = {"gpt": (50, 10), "bert": (54, 6)}
"""Attention, norms, dropout, residuals, activation, the sums of gradients; GPT drops inside the feed-forward part too,
and has no biases in attention."""
LOGIT_OF_PRODUCTS, LOGIT_OF_THE_REST = 3, 9
"""Numbers for each token and word of the vocabulary: the head's; softmax, exponential, mask, casts of the loss."""
PER_TRAINED = 10 * FLOAT
"""Bytes of a trained weight: AdamW reads four numbers and writes three; the norm reads one, clipping one and back."""
LAUNCHES = {"gpt": {"fp32": (84, 40), "half": (85, 50)}, "bert": {"fp32": (58, 46), "half": (65, 57)}}
"""Functions that torch starts in a step: around the layers, and in each. Counted on the pretend card."""
LOGITS_AT_ONCE = 2048
"""Tokens whose logits a card holds at one time: models/loss.py."""


class StepWork(NamedTuple):
    flops: float
    product_bytes: float
    """Read and written by matrix products."""
    other_bytes: float
    """By all the rest, which a device does as fast as it can read."""
    launches: int


def flops_per_step(experiment: Experiment, length: int | None = None) -> float | None:
    """Of one optimiser step, every sequence at full length unless said; None where the preset has no shape."""
    shape, data, train = experiment.model.shape, experiment.data, experiment.train
    if shape is None:
        return None
    network = shape.model_dump(exclude={"positions"})
    sizes = StepSizes(**network, batch=train.batch_size, length=length or data.max_length)
    all_trained = sum(expected(sizes, frozen=False, classifier=data.classes is not None).values())
    _, frozen = parameters(experiment)
    # A frozen weight of a layer spares the product that its gradient is; a frozen embedding has none.
    spared = 2 * sizes.tokens * min(frozen or 0, _in_layers(shape))
    return float((all_trained - spared) * train.accumulate)


def _in_layers(shape: Shape) -> int:
    """Weights of all layers' products."""
    return shape.layers * (4 * shape.d_model**2 + 2 * shape.d_model * shape.d_ff)


def work_of(experiment: Experiment, number_format: str = "fp32") -> StepWork | None:
    """Of one optimiser step; None where the preset has no shape, or is a decoder of transformers."""
    shape, train = experiment.model.shape, experiment.train
    length = tokens_of_example(experiment) or experiment.data.max_length
    flops, (total, frozen) = flops_per_step(experiment, length), parameters(experiment)
    if shape is None or flops is None or total is None or experiment.family not in LAUNCHES:
        return None
    tokens = train.effective_batch * length
    width = HALF if number_format in ("bf16", "fp16") else FLOAT
    logits = tokens * shape.vocab if experiment.data.classes is None else 0
    products, rest = (
        tokens * shape.layers * (rows * shape.d_model + wide * shape.d_ff)
        for rows, wide in (OF_PRODUCTS, OF_THE_REST[experiment.family])
    )
    in_layers = _in_layers(shape)
    products += 3 * in_layers * train.accumulate  # each weight read twice, its gradient written
    product_bytes = float(products + logits * LOGIT_OF_PRODUCTS) * width
    # What autocast saves by halving rows it spends on casting them: the pretend card counts the same bytes in both.
    other_bytes = (rest + logits * LOGIT_OF_THE_REST) * FLOAT + (total - (frozen or 0)) * PER_TRAINED
    if width == HALF:  # weights become half, and their gradients whole: read four bytes, write two, and back
        other_bytes += in_layers * 2 * (FLOAT + HALF)
    around, each = LAUNCHES[experiment.family]["half" if width == HALF else "fp32"]
    launches = (around + each * shape.layers) * train.accumulate
    if train.checkpoint_activations:  # a third of the work is done once more
        flops, product_bytes, launches = flops * 4 / 3, product_bytes * 4 / 3, launches * 4 // 3
    return StepWork(flops, product_bytes, other_bytes, launches)


def tokens_of_example(experiment: Experiment) -> int | None:
    """What a step computes for each example, in the mean; None where nobody has counted it.

    A padded batch is computed at full length, and so is text for a language model. A packed one has no padding, so a
    step is as long as the data set's sentences are.
    """
    data, batching = experiment.data, experiment.train.batching
    if data.classes is None or batching == "padded":
        return data.max_length
    known = find_set(data.name) if experiment.family == "bert" and batching == "packed" and not data.path else None
    return min(known.mean_tokens, data.max_length) if known and known.mean_tokens else None


def bytes_needed(experiment: Experiment, number_format: str = "fp32", on_card: bool = False) -> float | None:
    """Weights, gradients, Adam's moments, and what the backward pass keeps of a full batch.

    Kept per token and layer: about 8 rows of d_model (both norms and what enters them, query, key, value, the mixed
    values) and 2 of d_ff (around the activation); with checkpoint_activations of one layer at a time, and of the others
    what enters them. In half precision rows are half as wide, and each weight is there a second time. Logits are left
    out but on a card, where a chunk of them counts; and so are the room that torch and a driver take for themselves
    and the attention weights that a slow kernel would keep.
    """
    count, frozen = parameters(experiment)
    shape = experiment.model.shape
    if count is None or frozen is None or shape is None:
        return None
    half = number_format in ("bf16", "fp16")
    weights = count * (FLOAT + HALF * half) + (count - frozen) * (FLOAT + ADAM)
    tokens = experiment.train.batch_size * experiment.data.max_length
    of_layer = 8 * shape.d_model + 2 * shape.d_ff
    rows = shape.layers * of_layer
    if experiment.train.checkpoint_activations:
        rows = shape.layers * shape.d_model + of_layer
    logits = min(tokens, LOGITS_AT_ONCE) * shape.vocab if on_card and experiment.data.classes is None else 0
    return float(weights + tokens * rows * (HALF if half else FLOAT) + logits * 3 * FLOAT)
