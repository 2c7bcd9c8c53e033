"""Examples put into tensors: padded, or packed end to end so that no position is spent on padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oelm_core.data.classification import Examples

ROW = 128  # packed rows are at least this long: long enough to fill well, short enough that masks stay cheap

PACKABLE = ("bert", "roberta", "xlm-roberta", "camembert")  # transformers' names of models whose heads `logits` knows


@dataclass(frozen=True)
class Batch:
    """Examples of one forward pass. `firsts` is set when packed: where each example's first token stands."""

    tokens: Tensor  # int64 [rows, length]
    segments: Tensor  # int64 [rows, length]
    mask: Tensor | None  # int64 [rows, length], None where nothing is padded; packed: bool [rows, 1, length, length]
    labels: Tensor  # int64 [examples]
    positions: Tensor | None = None  # int64 [rows, length], counted anew in each example
    firsts: Tensor | None = None  # int64 [examples], index into rows x length

    def to(self, device: torch.device) -> Batch:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Batch:
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(self, **{name: change(tensor) for name, tensor in vars(self).items() if tensor is not None})


def pad(examples: Examples, chosen: np.ndarray, padding: int, length: int | None = None) -> Batch:
    """Each example in its own row, padded to the longest of them or to `length`."""
    lengths, index, within = examples.tokens_of(chosen)
    shape = (len(chosen), length or int(lengths.max()))
    places = np.repeat(np.arange(len(chosen)) * shape[1], lengths) + within
    full = len(places) == shape[0] * shape[1]  # known here: a model that looked at its mask would wait for the card
    return Batch(
        tokens=_spread(examples.tokens[index], places, shape, padding),
        segments=_spread(examples.segments[index], places, shape, 0),
        mask=None if full else _spread(1, places, shape, 0),
        labels=torch.from_numpy(examples.labels[chosen]),
    )


def _spread(values: np.ndarray | int, places: np.ndarray, shape: tuple[int, int], empty: int) -> Tensor:
    """An int64 `[rows, length]` with values at these places, counted row by row, and `empty` elsewhere."""
    flat = np.full(shape[0] * shape[1], empty, np.int64)
    flat[places] = values
    return torch.from_numpy(flat).view(shape)


def rows_for(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Which examples share a row of at most `capacity` tokens: as few rows as first-fit finds, filled evenly.

    Even rows let a batch be as narrow as can be: 428 tokens for 32 SST-2-like sentences, where first-fit alone has 490.

    >>> rows_for(np.array([5, 2, 3, 4]), 7)
    [[0, 1], [3, 2]]
    """
    longest_first = np.argsort(-lengths, kind="stable").tolist()
    sizes = lengths.tolist()
    rows = _first_fit(longest_first, sizes, capacity)
    even: list[list[int]] = [[] for _ in rows]
    filled = [0] * len(rows)
    for example in longest_first:
        row = filled.index(min(filled))
        even[row].append(example)
        filled[row] += sizes[example]
    return even if max(filled) <= max(sum(sizes[i] for i in row) for row in rows) else rows


def _first_fit(order: list[int], sizes: list[int], capacity: int) -> list[list[int]]:
    rows: list[list[int]] = []
    room: list[int] = []
    for example in order:
        row = next((row for row, free in enumerate(room) if sizes[example] <= free), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(capacity)
        rows[row].append(example)
        room[row] -= sizes[example]
    return rows


def pack(examples: Examples, chosen: np.ndarray, padding: int, first_position: int = 0) -> Batch:
    """The same examples sharing rows: a token sees only its own example, positions start anew in each."""
    lengths, index, within = examples.tokens_of(chosen)
    rows = rows_for(lengths, max(int(lengths.max()), ROW))
    shape = (len(rows), max(int(lengths[row].sum()) for row in rows))
    firsts = np.empty(len(chosen), np.int64)
    for row, members in enumerate(rows):
        firsts[members] = row * shape[1] + np.cumsum(lengths[members]) - lengths[members]
    places = np.repeat(firsts, lengths) + within
    owners = _spread(np.repeat(np.arange(len(chosen)), lengths), places, shape, -1)
    return Batch(
        tokens=_spread(examples.tokens[index], places, shape, padding),
        segments=_spread(examples.segments[index], places, shape, 0),
        mask=owners[:, None, :, None] == owners[:, None, None, :],  # padding sees padding: no row without a softmax
        labels=torch.from_numpy(examples.labels[chosen]),
        positions=_spread(within + first_position, places, shape, first_position),
        firsts=torch.from_numpy(firsts),
    )


def logits(model: Any, batch: Batch) -> Tensor:
    """Class scores `[examples, classes]` of a padded or packed batch."""
    inputs = inputs_of(model, batch)
    if batch.firsts is None:
        scores: Tensor = model(**inputs).logits
        return scores
    encoder = getattr(model, model.base_model_prefix)
    hidden = encoder(**inputs, position_ids=batch.positions).last_hidden_state
    first = hidden.flatten(0, 1).index_select(0, batch.firsts).unsqueeze(1)  # [examples, 1, d_model]
    pooler = getattr(encoder, "pooler", None)
    if pooler is None:  # RoBERTa: its head takes the first token itself
        return model.classifier(first)
    return model.classifier(model.dropout(pooler(first)))


def inputs_of(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """What a model takes of a batch: segments only where it tells them apart."""
    inputs = {"input_ids": batch.tokens}
    if batch.mask is not None:
        inputs["attention_mask"] = batch.mask
    if (getattr(getattr(model, "config", None), "type_vocab_size", 0) or 0) > 1:
        inputs["token_type_ids"] = batch.segments
    return inputs


def first_position(model: nn.Module) -> int:
    """Where a text's positions begin: RoBERTa's table keeps the places up to its padding index for padding."""
    table = next((module for name, module in model.named_modules() if name.endswith("position_embeddings")), None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def can_pack(model: nn.Module, examples: Examples, padding: int, tolerance: float = 1e-3) -> str | None:
    """None when packed and padded scores agree on a few examples; else why packing cannot be used."""
    kind = str(getattr(getattr(model, "config", None), "model_type", type(model).__name__))
    if kind not in PACKABLE:
        return f"packing is written for BERT and RoBERTa, not {kind}"
    chosen = np.arange(min(6, len(examples)))
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            packed = logits(model, pack(examples, chosen, padding, first_position(model)).to(device))
            padded = logits(model, pad(examples, chosen, padding).to(device))
        difference = float((packed.float() - padded.float()).abs().max())
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        return f"this model does not take packed rows ({type(error).__name__})"
    finally:
        model.train(was_training)
    return None if difference < tolerance else f"packed scores differ from padded ones by {difference:.1e}"
