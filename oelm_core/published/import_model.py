"""Recognises a network by the shapes of its tensors: family, sizes, and its name where the catalogue has it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

Shapes = Mapping[str, tuple[int, ...]]
_NUMBERED = re.compile(r"^(.*?)\.?\b(\d+)\.(.+)$")
_QK_BIAS = re.compile(r"(query|key|q_lin|k_lin|q_proj|k_proj|W_q|W_k)\.bias$")


@dataclass(frozen=True)
class Network:
    """Sizes of a network; None for what its tensors do not show. Heads never show: they are only a way of reading Q."""

    family: str | None = None
    layers: int | None = None
    d_model: int | None = None
    heads: int | None = None
    d_ff: int | None = None
    vocab: int | None = None
    positions: int | None = None
    classes: int | None = None

    @property
    def shape(self) -> dict[str, int]:
        sizes = {name: size for name, size in asdict(self).items() if name not in ("family", "classes")}
        return {name: size for name, size in sizes.items() if size is not None}


def recognise(shapes: Shapes) -> Network | None:
    """The network that these tensors are of; None where there is no stack of equal layers."""
    stacks: dict[str, dict[int, dict[str, tuple[int, ...]]]] = {}
    for name, shape in shapes.items():
        if found := _NUMBERED.match(name):
            stacks.setdefault(found[1], {}).setdefault(int(found[2]), {})[found[3]] = shape
    if not stacks:
        return None
    prefix, layers = max(stacks.items(), key=lambda stack: sum(len(layer) for layer in stack[1].values()))
    inside = [(name, shape) for layer in layers.values() for name, shape in layer.items()]
    matrices = {shape for _, shape in inside if len(shape) == 2}
    if set(layers) != set(range(len(layers))) or not matrices:
        return None
    width = Counter(size for _, shape in inside for size in set(shape)).most_common(1)[0][0]
    widths = [a for a, b in matrices if b == width and a != width and (b, a) in matrices]
    tables = {
        name: shape[0]
        for name, shape in shapes.items()
        if not name.startswith(f"{prefix}.") and len(shape) == 2 and shape[1] == width
    }
    positions = {name: n for name, n in tables.items() if re.search(r"pos|wpe", name, re.I)}
    classes = {name: n for name, n in tables.items() if re.search(r"classif|score", name)}
    return Network(
        family=_family(tables, [name for name, _ in inside], shapes),
        layers=len(layers),
        d_model=width,
        d_ff=max(widths, default=None),
        vocab=max((n for name, n in tables.items() if n != width and name not in {*positions, *classes}), default=None),
        positions=max(positions.values(), default=None),
        classes=min(classes.values(), default=None),
    )


def _has_bias(name: str, shapes: Shapes) -> bool:
    return name.removesuffix("weight") + "bias" in shapes


def _family(tables: Mapping[str, int], inside: list[str], shapes: Shapes) -> str | None:
    """bert: a table of segments, or biases on Q and K. gpt: a head that reads the vocabulary out, learned positions."""
    if any(n <= 2 and not _has_bias(name, shapes) for name, n in tables.items()):
        return "bert"
    if any("lm_head" in name for name in tables):
        return "gpt"
    if any(_QK_BIAS.search(name) for name in inside):
        return "bert"
    return "gpt" if any(re.search(r"pos|wpe", name, re.I) for name in tables) else None


def model_section(network: Network, catalogue: Catalogue) -> tuple[str | None, dict[str, Any]]:
    """(family, `model` of a configuration): with name and heads where a network of the catalogue has these sizes."""
    shape = network.shape
    for experiment in catalogue.experiments.values():
        known = experiment.model.shape.model_dump() if experiment.model.shape else {}
        fits = {"layers", "d_model", "vocab"} <= set(shape) and shape.items() <= known.items()
        if fits and network.family in (None, experiment.family):
            return experiment.family, {"name": experiment.model.name, "shape": known}
    if network.family is None or "layers" not in shape:
        return network.family, {"shape": shape} if shape else {}
    return network.family, {"name": f"{network.family}-{network.layers}x{network.d_model}", "shape": shape}
