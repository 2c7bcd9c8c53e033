"""How many weights a network has and how many a method freezes, by arithmetic on the preset: no torch, no waiting.

`census` counts the real network; a test holds both against each other for every preset that is shipped.
"""

from __future__ import annotations

from oelm_core.config import Experiment, layer_numbers
from oelm_core.config.sections import Shape
from oelm_core.registry import family_of


def parameters(experiment: Experiment) -> tuple[int | None, int | None]:
    """(total, frozen); None where the preset does not say it: without a shape, or for a decoder of transformers."""
    shape, family = experiment.model.shape, family_of(experiment.arch)
    if shape is None or family.name == "decoder":  # each of those has its own norms, gates, biases and shared weights
        return None, None
    method, d = experiment.method, shape.d_model
    projection = d * d + (d if family.qk_bias else 0)
    of_layer = 4 * projection + _ffn(shape) + shape.d_ff + d + 4 * d
    extras, added = _extras(experiment, shape), _peer(experiment, shape)
    total = (shape.vocab + shape.positions) * d + shape.layers * (of_layer + extras) + added
    total += _head(experiment, shape, tied=True)
    total += 2 * d if family.language else (2 + (1 if experiment.arch == "roberta" else 2)) * d  # norm, token types
    if method.peer is not None:
        if method.freeze or extras:
            return total, None
        trains = added + _head(experiment, shape, tied=False)
        if method.peer.kind == "bitfit":
            attention = 4 * d if family.qk_bias else 0
            trains += shape.layers * (attention + shape.d_ff + d + 2 * d) + d
        return total, total - trains
    held = d * d if method.extras.qk_bias else projection
    frozen = sum(name in method.freeze for name in ("query", "key")) * held + _ffn(shape) * ("ffn" in method.freeze)
    return total, frozen * len(layer_numbers(method.layers, shape.layers))


def _ffn(shape: Shape) -> int:
    return 2 * shape.d_model * shape.d_ff


def _head(experiment: Experiment, shape: Shape, *, tied: bool) -> int:
    """What stands behind the layers. `tied`: a language model's head is its embedding, counted there."""
    d, classes = shape.d_model, experiment.data.classes
    if family_of(experiment.arch).language:
        return (0 if tied else shape.vocab * d) if classes is None else d * classes
    return d * d + d + d * (classes or 2) + (classes or 2)


def _extras(experiment: Experiment, shape: Shape) -> int:
    """What `method.extras` adds to a layer."""
    extras, family = experiment.method.extras, family_of(experiment.arch)
    d, reach = shape.d_model, extras.position_bias
    distances = (reach + 1 if family.language else 2 * reach + 1) if reach else 0
    biases = 2 * d if extras.qk_bias and not family.qk_bias else 0
    return shape.heads * (distances + extras.temperature) + d * extras.gain + biases + 4 * d * (extras.low_rank or 0)


def _peer(experiment: Experiment, shape: Shape) -> int:
    """What a peer adds to all layers: LoRA to query and value, an adapter behind the feed-forward part."""
    peer, d = experiment.method.peer, shape.d_model
    if peer is None or peer.kind == "bitfit":
        return 0
    return shape.layers * (2 * 2 * d * peer.rank if peer.kind == "lora" else 2 * d * peer.rank + peer.rank + d)
