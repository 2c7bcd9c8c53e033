"""A query, key or value projection: a module of its own, or rows of a fused one, which can be held still by a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers.pytorch_utils import Conv1D

PROJECTIONS = (nn.Linear, Conv1D)
"""Conv1D is GPT-2's Linear with its weight transposed."""


@dataclass(frozen=True)
class Projection:
    """Seen as a Linear with a weight `[heads * head_dim, d_model]`, wherever its rows lie."""

    owner: nn.Module
    heads: int
    rows: tuple[int, ...] | None = None
    """Which outputs of a fused owner are its; None: all."""
    apart: tuple[nn.Parameter, ...] = ()
    """Biases that the attention keeps beside the owner."""

    @property
    def transposed(self) -> bool:
        return isinstance(self.owner, Conv1D)

    @property
    def weight(self) -> Tensor:
        """The parameter itself; a copy of its rows where the owner is fused."""
        whole = self.owner.weight
        assert isinstance(whole, Tensor)
        if self.rows is None and not self.transposed:
            return whole
        seen = whole.detach().T if self.transposed else whole.detach()
        return seen if self.rows is None else seen[list(self.rows)]

    @property
    def bias(self) -> Tensor | None:
        whole = self.owner.bias
        if whole is None or self.rows is None:
            return whole  # type: ignore[return-value]
        assert isinstance(whole, Tensor)
        return whole.detach()[list(self.rows)]

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]

    def of_output(self, output: Tensor) -> Tensor:
        """Its part of what the owner gives."""
        return output if self.rows is None else output[..., list(self.rows)]

    def write_(self, weight: Tensor) -> None:
        """Puts a weight `[heads * head_dim, d_model]` into the owner, before anything is split off it."""
        whole = self.owner.weight
        assert isinstance(whole, nn.Parameter)
        with torch.no_grad():
            seen = whole.T if self.transposed else whole
            if self.rows is None:
                seen.copy_(weight)
            else:
                seen[list(self.rows)] = weight.to(seen)

    def parameters(self, *, bias: bool = True) -> list[nn.Parameter]:
        """What is its alone: the owner's, or what was split off a fused owner; nothing while that is in one piece."""
        names = ("weight", "bias") if bias else ("weight",)
        found = [self._own(name) for name in names]
        return [one for one in found if one is not None] + (list(self.apart) if bias else [])

    def _own(self, name: str) -> nn.Parameter | None:
        if self.rows is None:
            whole = getattr(self.owner, name)
            return whole if isinstance(whole, nn.Parameter) else None
        held = held_part(self.owner, name)
        return held[0] if held is not None and set(self.rows) & held[1] else None


class _Joined(nn.Module):
    """A parameter put together from rows that are held still and rows that train, in the order they had."""

    def __init__(self, held: list[int], size: int, dim: int) -> None:
        super().__init__()
        self.held, self.dim = held, dim
        order = [*held, *(row for row in range(size) if row not in set(held))]
        places = torch.empty(size, dtype=torch.long, device="cpu")
        places[torch.tensor(order, device="cpu")] = torch.arange(size, device="cpu")
        self.order, self.places = torch.tensor(order, device="cpu"), places

    def forward(self, held: Tensor, rest: Tensor) -> Tensor:
        return torch.cat([held, rest], self.dim).index_select(self.dim, self.places.to(held.device))

    def right_inverse(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        ordered = whole.index_select(self.dim, self.order.to(whole.device))
        held, rest = ordered.split([len(self.held), whole.shape[self.dim] - len(self.held)], self.dim)
        return held.contiguous(), rest.contiguous()


def split_rows(owner: nn.Module, rows: list[int], *, bias: bool = True) -> None:
    """Makes these rows of a fused owner a parameter of their own, which can be frozen without the others.

    A mask on the gradient would leave them to weight decay, and to an optimiser's moments. State dicts keep the owner's
    names and whole tensors, bit-equal, both ways.
    """
    if parametrize.is_parametrized(owner):
        return
    dim = 1 if isinstance(owner, Conv1D) else 0
    for name, along in (("weight", dim), ("bias", 0)):
        whole = getattr(owner, name)
        if whole is None or (name == "bias" and not bias):
            continue
        joined = _Joined(rows, whole.shape[along], along)
        # `unsafe` skips a trial run that forbids what meta tensors cannot prove.
        parametrize.register_parametrization(owner, name, joined, unsafe=True)
    owner.register_state_dict_post_hook(_whole)
    owner.register_load_state_dict_pre_hook(_split)


def join_rows(model: nn.Module) -> None:
    """Every split owner in one piece again, bit-equal; all of it then trains or not as its weight says."""
    for module in model.modules():
        if parametrize.is_parametrized(module) and any(isinstance(one[0], _Joined) for one in _joints(module).values()):
            for name in list(_joints(module)):
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
            for hooks, ours in ((module._state_dict_hooks, _whole), (module._load_state_dict_pre_hooks, _split)):
                for key in [key for key, hook in hooks.items() if getattr(hook, "hook", hook) is ours]:
                    del hooks[key]


def pieces(owner: nn.Module, name: str) -> list[tuple[nn.Parameter, set[int]]]:
    """The parameters that make up a weight or bias, each with the rows it has."""
    dim = 1 if name == "weight" and isinstance(owner, Conv1D) else 0
    whole = getattr(owner, name)
    if whole is None:
        return []
    rows = set(range(whole.shape[dim]))
    held = held_part(owner, name)
    return [(whole, rows)] if held is None else [held, (_joints(owner)[name].original1, rows - held[1])]


def held_part(owner: nn.Module, name: str) -> tuple[nn.Parameter, set[int]] | None:
    """The parameter that was split off, and which rows it holds."""
    if not parametrize.is_parametrized(owner, name):
        return None
    joint = _joints(owner)[name]
    held, joined = joint.original0, joint[0]
    assert isinstance(held, nn.Parameter)
    assert isinstance(joined, _Joined)
    return held, set(joined.held)


def _joints(module: nn.Module) -> dict[str, Any]:
    return dict(module.parametrizations.items())  # type: ignore[operator,union-attr]


def _whole(module: nn.Module, state: dict[str, Tensor], prefix: str, _metadata: Any) -> None:
    for name, joint in _joints(module).items():
        inner = f"{prefix}parametrizations.{name}.original"
        with torch.no_grad():
            state[f"{prefix}{name}"] = joint[0](state.pop(f"{inner}0"), state.pop(f"{inner}1"))


def _split(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    for name, joint in _joints(module).items():
        if f"{prefix}{name}" in state:
            inner = f"{prefix}parametrizations.{name}.original"
            state[f"{inner}0"], state[f"{inner}1"] = joint[0].right_inverse(state.pop(f"{prefix}{name}"))
