"""Builds the network of an experiment. torch and transformers are imported when first needed."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from oelm_core.errors import BadInput
from oelm_core.formatting import listed
from oelm_core.registry import family_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from oelm_core.config import Experiment

__all__ = ["LanguageModel", "build", "seeded"]


class LanguageModel(Protocol):
    """What training asks of a network whose data have no classes, beside what every `nn.Module` has."""

    config: Any
    """Says at least `vocab_size`, and `max_position_embeddings` where positions are limited."""

    def forward(self, *, input_ids: Tensor, shift_labels: Tensor, num_items_in_batch: int) -> Any:
        """`.loss` of the output: summed over shift_labels `[B, T]`, the next tokens, divided by num_items_in_batch."""

    def token_losses(self, input_ids: Tensor, targets: Tensor) -> Tensor:
        """-log p of each target, `[B, T]`."""

    def generate(self, inputs: Tensor, **settings: Any) -> Tensor:
        """Prompt and continuation, with the settings of transformers' `generate`."""


def build(experiment: Experiment, *, device: str = "cpu", seed: int) -> nn.Module:
    """The network of an experiment, with its extras and its peer's modules, before any method touches Q/K.

    device "meta" builds from `model.shape` without network and without weights. What is drawn at random (all of a
    model from scratch, the head of a pretrained one) depends on the seed alone, and not on extras or peer: arms of
    one seed start from the same weights.
    """
    import torch

    from oelm_core.models.peers import attach_peer

    family = importlib.import_module(f"oelm_core.models.{family_of(experiment.arch).name}")
    meta = device == "meta"
    with seeded(seed), torch.device("meta" if meta else "cpu"):
        model: nn.Module = family.build(experiment, meta=meta)
        if experiment.data.classes is None:
            _require_language_model(model, experiment)
        if experiment.method.peer is not None:
            attach_peer(model, experiment.method.peer)
    return model if meta else model.to(device)


def _require_language_model(model: nn.Module, experiment: Experiment) -> None:
    taken = inspect.signature(model.forward).parameters
    missing = [f"{name}()" for name in ("token_losses", "generate") if not callable(getattr(model, name, None))]
    missing += [f"forward's {name}" for name in ("shift_labels", "num_items_in_batch") if name not in taken]
    if missing:
        raise BadInput(
            f"{experiment.id}: {type(model).__name__} cannot be trained as a language model, for it has no"
            f" {listed(missing)}; see LanguageModel in oelm_core/models/__init__.py."
        )


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """torch's CPU generator set to the seed inside, and put back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
