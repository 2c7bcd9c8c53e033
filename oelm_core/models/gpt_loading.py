"""Our GPT from an experiment: from its shape, or from a folder it was saved to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from oelm_core.config import Experiment
from oelm_core.errors import BadInput, NotFound
from oelm_core.models.gpt import OelmGPTForCausalLM, OelmGPTForSequenceClassification
from oelm_core.models.gpt_config import OelmGPTConfig


def build_gpt(experiment: Experiment, *, meta: bool) -> nn.Module:
    """A language model, or a classifier when the data has classes."""
    classes = experiment.data.classes
    kind: Any = OelmGPTForCausalLM if classes is None else OelmGPTForSequenceClassification
    config = gpt_config(experiment)
    if experiment.start == "scratch" or meta:
        model: nn.Module = kind(config)
        return model
    source = experiment.model.path or experiment.model.name
    try:
        loaded: nn.Module = kind.from_pretrained(source, config=config)
    except (OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise NotFound(
            f"{experiment.id}: model {source} could not be loaded ({first}); "
            "write as model.path a folder that our GPT was saved to."
        ) from error
    return loaded


def gpt_config(experiment: Experiment) -> OelmGPTConfig:
    """Sizes from model.path when it is a folder, else from model.shape; extras always from the method."""
    model = experiment.model
    extras = experiment.method.extras.model_dump(exclude_defaults=True)
    asked: dict[str, Any] = {"dropout": model.dropout, "extras": extras}
    if experiment.data.classes is not None:
        asked["num_labels"] = experiment.data.classes
    folder = Path(model.path).expanduser() if model.path else None
    if folder is not None and (folder / "config.json").is_file():
        kind = json.loads((folder / "config.json").read_text()).get("model_type")
        if kind != OelmGPTConfig.model_type:
            raise BadInput(f"{experiment.id}: {folder} holds a {kind} model, not this project's GPT.")
        return OelmGPTConfig.from_pretrained(str(folder), **asked)
    if model.shape is None:
        raise BadInput(f"{experiment.id}: model.shape is missing and model.path is no folder with a config.json.")
    shape = model.shape
    return OelmGPTConfig(
        vocab_size=shape.vocab,
        positions=shape.positions,
        d_model=shape.d_model,
        layers=shape.layers,
        heads=shape.heads,
        d_ff=shape.d_ff,
        **asked,
    )
