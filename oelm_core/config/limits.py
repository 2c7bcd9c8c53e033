"""What bounds a method before anything is loaded: the sizes of the network, the steps of training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from oelm_core.config.sections import Data, Model, Train, Unfreeze
from oelm_core.data.test_source import held_out_share
from oelm_core.small_files import read_small_file

# What transformers and our GPT call their sizes in a model folder's config.json.
_LAYERS = ("num_hidden_layers", "n_layers", "layers")
_WIDTH = ("hidden_size", "dim", "d_model")
_HEADS = ("num_attention_heads", "n_heads", "heads")
_POSITIONS = ("max_position_embeddings", "positions")


class Sizes(NamedTuple):
    """None where it is not known without loading the model."""

    layers: int | None
    positions: int | None


def sizes_of(model: Model) -> Sizes:
    """The sizes of a network: a folder's own when model.path is one, else those of model.shape.

    ValueError when the folder's heads do not divide its width.
    """
    found = _folder_config(model.path)
    if found is not None:
        width, heads = _number(found, _WIDTH), _number(found, _HEADS)
        own_head_dim = found.get("head_dim") is not None  # then width and heads need not fit
        if width and heads and width % heads and not own_head_dim:
            raise ValueError(f"model.path {model.path}: its width {width} cannot be split into {heads} equal heads")
        return Sizes(_number(found, _LAYERS), _number(found, _POSITIONS))
    shape = model.shape
    return Sizes(shape.layers, shape.positions) if shape else Sizes(None, None)


def _folder_config(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        found = json.loads(read_small_file(Path(path).expanduser() / "config.json", follow=True))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(found: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found[name] for name in names if isinstance(found.get(name), int)), None)


def planned_steps(train: Train, data: Data) -> int | None:
    """Optimiser steps of a recipe; None when it gives epochs of data whose size is not known yet."""
    if train.max_steps is not None or train.epochs is None:
        return train.max_steps
    examples = known_examples(data)
    return None if examples is None else steps_in_epochs(train.epochs, examples, train.effective_batch)


def known_examples(data: Data) -> int | None:
    """Training examples of a recipe; None where they are counted when the data is read."""
    if data.train_examples is None or data.path is not None or data.classes is None:
        return None
    left = data.train_examples - round(data.train_examples * (held_out_share(data.test) or 0))
    return min(left, data.limit or left)


def steps_in_epochs(epochs: float, examples: int, effective_batch: int) -> int:
    """Optimiser steps; the last of an epoch may see fewer examples, and a begun part of an epoch counts.

    >>> steps_in_epochs(0.1, 67_349, 32)
    211
    """
    return math.ceil(epochs * math.ceil(examples / effective_batch))


def unfreezing_starts(unfreeze: Unfreeze, layers: list[int], total: int) -> dict[int, int]:
    """The step, counted from 0, at which each layer begins to train; it may be past the end."""
    first = _steps(unfreeze.at, total)
    order = sorted(layers, reverse=True)  # from the top down
    if unfreeze.order == "together":
        return dict.fromkeys(order, first)
    # Unless said, the layers share what is left of training evenly.
    gap = _steps(unfreeze.every, total) if unfreeze.every else max(1, (total - first) // max(1, len(order)))
    return {layer: first + place * gap for place, layer in enumerate(order)}


def _steps(value: float, total: int) -> int:
    return round(value * total) if value < 1 else round(value)
