"""The weights of linear layers in autocast's format: cast once a step, all together, and frozen ones once for all.

Autocast casts every weight at every forward pass, and every gradient back, one launch each: most of the launches of a
step in half precision. Here a pass reads copies, which are leaves of its graph, and its gradients are handed over in
one piece. The numbers are autocast's to the last bit. What is kept, hashed, clipped and trained stays in fp32.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oelm_core.models.structure import ADDED


@dataclass
class _Place:
    """Where a weight is, and its copy."""

    module: nn.Linear
    name: str
    weight: nn.Parameter
    copy: nn.Parameter
    copied: bool = False


class HalfWeights:
    def __init__(self, model: nn.Module, number_format: torch.dtype) -> None:
        self._places = [
            _Place(module, name, weight, nn.Parameter(torch.empty_like(weight, dtype=number_format), False))
            for module, name, weight in _linear_weights(model)
        ]

    @torch.no_grad()
    def cast(self) -> None:
        """Before a step: what trains has changed since the last one; what is frozen was cast when it was first met."""
        for place in self._places:
            place.copy.requires_grad_(place.weight.requires_grad)
        stale = [place for place in self._places if not place.copied or place.weight.requires_grad]
        if stale:
            torch._foreach_copy_([place.copy for place in stale], [place.weight for place in stale])
        for place in stale:
            place.copied = not place.weight.requires_grad  # a step changes what trains

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Around forward and backward of one pass; leaves the gradients with the weights themselves."""
        for place in self._places:
            place.module._parameters[place.name] = place.copy
        try:
            yield
        finally:
            for place in self._places:
                place.module._parameters[place.name] = place.weight
        self._hand_over()

    @torch.no_grad()
    def _hand_over(self) -> None:
        """As autocast does it: each pass's gradient becomes fp32 before passes are added."""
        found = [(place, place.copy.grad) for place in self._places]
        reached = [(place, gradient) for place, gradient in found if gradient is not None]
        if not reached:
            return
        gradients = [torch.empty_like(place.weight) for place, _ in reached]
        torch._foreach_copy_(gradients, [gradient for _, gradient in reached])
        sums: list[Tensor] = []
        added: list[Tensor] = []
        for (place, _), gradient in zip(reached, gradients, strict=True):
            place.copy.grad = None
            if place.weight.grad is None:
                place.weight.grad = gradient
            else:
                sums.append(place.weight.grad)
                added.append(gradient)
        if sums:
            torch._foreach_add_(sums, added)


def _linear_weights(model: nn.Module) -> Iterator[tuple[nn.Linear, str, nn.Parameter]]:
    """Of layers that autocast runs in half precision: not a head, whose loss casts it, nor what a method added."""
    uses = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    )
    head = getattr(model, "get_output_embeddings", lambda: None)()
    for path, module in model.named_modules():
        if type(module) is not nn.Linear or module is head or ADDED & set(path.split(".")):
            continue
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.dtype == torch.float32 and uses[id(parameter)] == 1:
                yield module, name, parameter
