"""`torch.cuda` answering as if there were one card. The library must have been loaded before torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tests.pretend_cuda import A5000, Capability

CARD = torch.device("cuda", 0)
PINNED = "pretend_pinned"
"""The attribute of a tensor in memory that a card could read by itself."""


@contextlib.contextmanager
def pretend_card(capability: Capability = A5000, waited: Callable[[str], None] = lambda what: None) -> Iterator[None]:
    """`torch.cuda` with one card of this generation. `waited` hears of every wait that is asked for by name."""
    if str(torch.accelerator.current_accelerator()) != "cuda":
        raise RuntimeError("torch was loaded before the pretend card: see tests/pretend_cuda/library.py")

    class Event:
        """Work that is still under way until it is waited for, as it is when a step has just been launched."""

        def __init__(self, enable_timing: bool = False) -> None: ...

        def record(self) -> None: ...

        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            waited("Event.synchronize")

        def elapsed_time(self, end: Event) -> float:
            waited("Event.elapsed_time")
            return 1.0

    major, minor = capability
    answers: dict[str, object] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: f"Pretend sm_{major}{minor}",
        "get_device_properties": lambda device=None: SimpleNamespace(
            major=major, minor=minor, multi_processor_count=64
        ),
        "is_bf16_supported": lambda including_emulation=True: major >= 8 or including_emulation,
        "is_current_stream_capturing": lambda: False,
        "manual_seed": lambda seed: None,
        "synchronize": lambda device=None: waited("cuda.synchronize"),
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "Event": Event,
    }
    with contextlib.ExitStack() as patches:
        for name, answer in answers.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, answer))
        patches.enter_context(mock.patch.object(Tensor, "pin_memory", _pinned))
        patches.enter_context(mock.patch.object(torch, "tensor", _tensor))
        yield


def _pinned(tensor: Tensor) -> Tensor:
    copy = tensor.clone()
    setattr(copy, PINNED, True)
    return copy


def _tensor(
    data: Any, *, device: torch.device | str | None = None, made: Any = torch.tensor, **settings: Any
) -> Tensor:
    """torch's own goes to the card where no mode can follow."""
    tensor: Tensor = made(data, **settings)
    return tensor if device is None else tensor.to(device)
