"""What a stretch of code asks of the card: its launches, its casts, the bytes they touch, and where the host waits."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tests.pretend_cuda import StepCount, library
from tests.pretend_cuda.card import PINNED

ROOMS = ("oelm_core", "transformers", "tests")
"""Packages whose lines name the place of a wait; the innermost of them is shown."""
COPIES = ("aten::_to_copy", "aten::copy_")
ALLOCATE = (
    "aten::empty",
    "aten::_unsafe_view",
    "aten::new_empty",
    "aten::resize_",
    "aten::set_",
    "aten::detach",
    "aten::lift_fresh",
)
"""What reserves memory or names it anew. Together with views, what the card never hears of."""
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
OVERWRITING = ("aten::copy_", "aten::_foreach_copy_")
PICKING = ("aten::embedding", "aten::gather", *INDEXING)
HOST_DECIDES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""torch's own marks of functions whose answer, or its size, the host must know before it goes on."""


class HostMustKnow(RuntimeError):
    """A wait whose answer cannot be made up: it decides the size of what follows."""


class Counting(TorchDispatchMode):
    """Watches what goes to the pretend card. To be entered inside of the mode in which tensors have no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.forget()

    def forget(self) -> None:
        """Counts from here on."""
        self.functions: Counter[str] = Counter()
        self.casts = self.bytes_moved = 0
        self.host_waits: list[str] = []
        self._before = library.waits_below_python()

    def waited(self, what: str) -> None:
        self.host_waits.append(f"{what} at {_place()}")

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name.startswith("prim::"):  # a look at a tensor's device
            return func(*args, **kwargs)
        if name in OPDEFS:  # a function of torch's own that is written in Python: what it is made of counts
            with self:
                return OPDEFS[name]._init_fn(*args, **kwargs)
        given = list(_tensors([*args, *kwargs.values()]))
        on_card = any(map(_on_card, given))
        if on_card and _decided_by_the_host(func, args):
            self.waited(name.removeprefix("aten::"))
        call = tree_map_only(Tensor, self._without_numbers, (tuple(args), dict(kwargs)))
        try:
            result = func(*call[0], **call[1])
        except DataDependentOutputException:
            result = _made_up(given[0])
        except DynamicOutputShapeException as error:
            raise HostMustKnow(self.host_waits[-1]) from error
        made = list(_tensors([result]))
        if not on_card and not any(map(_on_card, made)):
            return result
        if name in COPIES:
            self._copied(func, args, kwargs, made[0])
        if not func.is_view and not name.startswith(ALLOCATE):
            self.functions[name.removeprefix("aten::")] += 1
            if name in OVERWRITING:
                given = list(_tensors(args[1:]))
            if name in PICKING:  # of the table that comes first some rows are touched, as many as the rest is long
                given, made = given[1:], [tensor for tensor in made if tensor is not given[0]]
                self.bytes_moved += _bytes_of(given) + _bytes_of(made)
            else:
                self.bytes_moved += _bytes_of(given) + _bytes_of([*made, *_changed_in_place(func, args, kwargs)])
        return result

    def _without_numbers(self, tensor: Tensor) -> Tensor:
        """A batch has numbers as long as it is on the host."""
        return tensor if isinstance(tensor, FakeTensor) else self.fake.from_tensor(tensor)

    def _copied(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], target: Tensor) -> None:
        source = args[0] if func._schema.name == COPIES[0] else args[1]
        asynchronous = kwargs.get("non_blocking") or (func._schema.name == COPIES[1] and len(args) > 2 and args[2])
        if _on_card(source) and _on_card(target):
            self.casts += source.dtype != target.dtype
        elif not asynchronous:
            self.waited("a blocking copy to the card" if _on_card(target) else "a blocking copy to the host")
        elif _on_card(target) and not getattr(source, PINNED, False):
            self.waited("a copy from memory that is not pinned")

    def found(self, precision: str = "") -> StepCount:
        by_number = dict(self.functions.most_common())
        launches = sum(by_number.values())
        below = ["a wait inside of torch's C++"] * (library.waits_below_python() - self._before)
        return StepCount(launches, self.casts, self.host_waits + below, self.bytes_moved, by_number, precision)


def _decided_by_the_host(func: OpOverload, args: Sequence[Any]) -> bool:
    if func._schema.name in INDEXING:  # by a mask: its true places are looked for first
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return any(tag in func.tags for tag in HOST_DECIDES)


def _changed_in_place(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """What it reads and writes: many such functions, fused AdamW among them, return nothing."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            yield from _tensors([args[number] if number < len(args) else kwargs.get(argument.name)])


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())


def _on_card(tensor: Tensor) -> bool:
    device = tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device
    return device.type == "cuda"


def _made_up(tensor: Tensor) -> bool | int | float:
    """An answer to go on with."""
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else 1


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _place() -> str:
    """The innermost line of ours or of transformers, as package/file.py:line. A backward pass has none."""
    for frame in reversed(traceback.extract_stack()):
        parts = Path(frame.filename).parts
        room = next((room for room in ROOMS if room in parts), None)
        if room is not None and frame.filename != __file__ and Path(frame.filename).name != "card.py":
            return f"{'/'.join(parts[parts.index(room) :])}:{frame.lineno}"
    return "a backward pass"
