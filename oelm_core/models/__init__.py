"""Builds the network of an experiment. torch and transformers are imported when first needed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oelm_core.registry import family_of

if TYPE_CHECKING:
    from torch import nn

    from oelm_core.config import Experiment

__all__ = ["build", "seeded"]


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
        if experiment.method.peer is not None:
            attach_peer(model, experiment.method.peer)
    return model if meta else model.to(device)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """torch's CPU generator set to the seed inside, and put back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
