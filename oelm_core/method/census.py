"""Counts parameters: total, trainable, frozen, by component and by layer; and the bytes a checkpoint will take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from oelm_core.method.facts import Census, CensusBytes, Count

if TYPE_CHECKING:
    from torch import nn

    from oelm_core.config import Experiment

ADAM_BYTES = 8
"""Two fp32 moments per trained parameter. Adam's step counts and file headers, some KiB, are left out."""


def census(model: nn.Module, thaws: Collection[str] = ()) -> Census:
    """Parameters of a model by component and by layer ("0", "1", ..., "outside"); a tied weight is counted once.

    bytes are those of the last checkpoint's tensors: parameters named in `thaws` are frozen now and have moments then.
    """
    component, layer = _places(model)
    whole, sizes = Count(), CensusBytes()
    by_component: dict[str, Count] = defaultdict(Count)
    by_layer: dict[str, Count] = defaultdict(Count)
    for name, parameter in model.named_parameters():  # named_parameters gives a shared tensor once
        count, trains = parameter.numel(), parameter.requires_grad
        sizes.weights += count * parameter.element_size()
        sizes.optimiser += ADAM_BYTES * count if trains or name in thaws else 0
        place = layer.get(id(parameter), "outside")
        parts = component[id(parameter)]
        shares = [(by_component[label], count * rows // sum(parts.values())) for label, rows in parts.items()]
        for row, share in ((whole, count), (by_layer[place], count), *shares):
            row.total += share
            row.trainable += share if trains else 0
            row.frozen += 0 if trains else share
    sizes.checkpoint = sizes.weights + sizes.optimiser
    return Census(
        total=whole.total,
        trainable=whole.trainable,
        frozen=whole.frozen,
        by_component=dict(by_component),
        by_layer=dict(by_layer),
        bytes=sizes,
    )


def census_of(experiment: Experiment) -> Census:
    """The census of an experiment as it will start, on the meta device: no network, no weights, no memory."""
    from oelm_core.models.loading import load_libraries

    load_libraries()
    from oelm_core.method.freezing import apply_freezing
    from oelm_core.models import build

    model = build(experiment, device="meta", seed=experiment.seed)
    frozen = apply_freezing(model, experiment.method)
    return census(model, frozen.thaws)


def _places(model: nn.Module) -> tuple[dict[int, dict[str, int]], dict[int, str]]:
    """For each parameter (by identity): what it belongs to, with rows of each where it is fused, and in which layer."""
    from torch import nn

    from oelm_core.models.projections import pieces
    from oelm_core.models.structure import ADDED, attention_layers, head_modules

    component: dict[int, dict[str, int]] = {}

    def place(label: str, parameters: Iterable[nn.Parameter]) -> None:
        component.update((id(p), {label: 1}) for p in parameters)

    layer_of: dict[int, str] = {}
    for name, module in head_modules(model):
        label = name.rpartition(".")[2]
        place("classifier" if label in ("score", "pre_classifier") else label, module.parameters())
    for layer in attention_layers(model):
        for label, modules in (("ffn", layer.ffn), ("output", (layer.output,) if layer.output is not None else ())):
            for module in modules:
                place(label, module.parameters(recurse=False))
        for label, projection in (("query", layer.query), ("key", layer.key), ("value", layer.value)):
            place(label, projection.apart)
            for parameter, rows in (piece for name in ("weight", "bias") for piece in pieces(projection.owner, name)):
                own = rows if projection.rows is None else rows & set(projection.rows)
                if own:
                    component.setdefault(id(parameter), {})[label] = len(own)
        for parameter in layer.block.parameters():
            layer_of[id(parameter)] = str(layer.index)
    for module in model.modules():
        if "Norm" in type(module).__name__:
            place("norm", module.parameters(recurse=False))
        elif isinstance(module, nn.Embedding):
            place("embeddings", module.parameters(recurse=False))
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if ADDED & set(parts):
            place(_added(parts), (parameter,))
        elif "embed" in name:
            place("embeddings", (parameter,))  # a tied head counts here: it is the same tensor
        component.setdefault(id(parameter), {"other": 1})
    return component, layer_of


def _added(parts: list[str]) -> str:
    if "extras" in parts:
        return parts[parts.index("extras") + 1]
    return "adapter" if "adapter" in parts else "lora"
