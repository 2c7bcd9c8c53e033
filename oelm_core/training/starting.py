"""The state a run starts from: the method applied to the weights, and checks.json which proves what was done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import nn

from oelm_core.config import Experiment
from oelm_core.data import packing, sets
from oelm_core.errors import BadInput
from oelm_core.method import initialisers
from oelm_core.method.census import census
from oelm_core.method.freezing import Frozen, qk_fingerprint
from oelm_core.models.structure import ADDED, head_modules
from oelm_core.runs.folder import RunFolder
from oelm_core.training.distributed import Ranks
from oelm_core.training.tasks import Task


def with_demo_encoder(experiment: Experiment, say: Callable[[str], None]) -> Experiment:
    """The demo's encoder has no download: it is pretrained here once, on the demo generator's text."""
    model = experiment.model
    if model.name != "demo-bert" or model.path is not None or experiment.start != "pretrained":
        return experiment
    from oelm_core.training.pretrain_demo import ensure_demo_encoder

    folder = ensure_demo_encoder(sets.cache_dir(), model.shape, say)
    settings = {**model.model_dump(), "path": str(folder)}
    return experiment.model_copy(update={"model": type(model).model_validate(settings)})


def vocabulary_size(model: nn.Module) -> int:
    return int(model.config.vocab_size)  # type: ignore[union-attr,arg-type]


def check_positions(model: nn.Module, experiment: Experiment) -> None:
    """Refuses sequences longer than the model's position table (RoBERTa spends two places of it on padding)."""
    config: Any = model.config
    positions = int(config.max_position_embeddings) - packing.first_position(model)
    if experiment.data.max_length > positions:
        raise BadInput(
            f"{experiment.id}: data.max_length {experiment.data.max_length} is longer than the model's {positions}"
            f" positions; write --set data.max_length={positions}."
        )


def apply_method(
    folder: RunFolder, run: dict[str, Any], experiment: Experiment, model: nn.Module, task: Task, ranks: Ranks
) -> dict[str, Any]:
    """Initialises Q/K as the method says, and notes from the weights themselves whether they were touched."""
    loaded = qk_fingerprint(model)
    source = model_fingerprint(experiment, model)
    initialisers.apply_method(model, experiment.method, torch.Generator().manual_seed(experiment.seed))
    report = msgspec.to_builtins(initialisers.check_model(model, method=experiment.method))
    return {
        "orthogonality": report,
        "qk_scale": {"mean_row_norm": report["mean_row_norm"]},
        "true_baseline": qk_fingerprint(model) == loaded,
        "model": {"name": experiment.model.name, "path": experiment.model.path, "fingerprint": source},
        "data": task.describe(),
    }


def complete_checks(
    folder: RunFolder, checks: dict[str, Any], model: nn.Module, frozen: Frozen, ranks: Ranks
) -> dict[str, Any]:
    """Adds census and freeze hash and writes checks.json; a resumed run keeps the one of its first start."""
    kept = folder.read_dict("checks")
    if kept is not None and "frozen" in kept:
        return kept
    checks = {
        **checks,
        "census": msgspec.to_builtins(census(model, frozen.thaws)),
        "frozen": {"names": list(frozen.names), "thaws": frozen.thaws, "hash": frozen.hash(model)},
    }
    if ranks.main:
        folder.write_dict("checks", checks)
    return checks


def model_fingerprint(experiment: Experiment, model: nn.Module) -> str:
    """Names what the arms of a comparison share: sizes from scratch, or pretrained weights, without their fresh head
    and without what a method adds (LoRA, adapters, extras)."""
    if experiment.start == "scratch":
        shape = experiment.model.shape
        sizes = {"arch": experiment.arch, "dropout": experiment.model.dropout, **(shape.model_dump() if shape else {})}
        return hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:16]
    fresh = {id(p) for _, module in head_modules(model) for p in module.parameters()}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if id(parameter) not in fresh and not ADDED & set(name.split(".")):
            digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
