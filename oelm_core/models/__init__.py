"""Builds the network of an experiment. torch and transformers are imported when first needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from oelm_core.config import Experiment
    from oelm_core.models.structure import AttentionLayer

__all__ = ["attention_layers", "build", "register", "seeded"]


def build(experiment: Experiment, *, device: str = "cpu", seed: int) -> nn.Module:
    """The network of an experiment, with its extras and its peer's modules, before any method touches Q/K.

    device "meta" builds from `model.shape` without network and without weights. What is drawn at random (all of a
    model from scratch, the head of a pretrained one) depends on the seed alone, and not on extras or peer: arms of
    one seed start from the same weights.
    """
    import torch

    from oelm_core.models.extras import attach_extras
    from oelm_core.models.peers import attach_peer

    meta = device == "meta"
    with seeded(seed), torch.device("meta" if meta else "cpu"):
        model = _build(experiment, meta=meta)
        if experiment.arch != "gpt":  # our GPT brings its extras along, so that it can be saved and loaded with them
            attach_extras(model, experiment.method.extras)
        if experiment.method.peer is not None:
            attach_peer(model, experiment.method.peer)
    return model if meta else model.to(device)


def _build(experiment: Experiment, *, meta: bool) -> nn.Module:
    if experiment.arch == "gpt":
        from oelm_core.models.gpt_loading import build_gpt

        register()
        return build_gpt(experiment, meta=meta)
    from oelm_core.models.bert import build_encoder

    return build_encoder(experiment, meta=meta)


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """The self-attention layers of a model, from the input upwards; a refusal when none can be found."""
    from oelm_core.models import structure

    return structure.attention_layers(model)


def register() -> None:
    """Makes transformers' Auto classes know our GPT."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

    from oelm_core.models import gpt
    from oelm_core.models.gpt_config import OelmGPTConfig

    AutoConfig.register(OelmGPTConfig.model_type, OelmGPTConfig, exist_ok=True)
    AutoModel.register(OelmGPTConfig, gpt.OelmGPTModel, exist_ok=True)
    AutoModelForCausalLM.register(OelmGPTConfig, gpt.OelmGPTForCausalLM, exist_ok=True)
    AutoModelForSequenceClassification.register(OelmGPTConfig, gpt.OelmGPTForSequenceClassification, exist_ok=True)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """torch's CPU generator set to the seed inside, and put back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
