"""Number formats: what the device does fast, autocast around the forward pass, and loss scaling for fp16."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from oelm_core.errors import BadInput

# Formats by the card's generation (compute capability): what its matrix units multiply.
_ON_GPU = (
    (8, "bf16", "multiplies in bf16, which needs no loss scaling"),
    (7, "fp16", "multiplies in fp16 but not in bf16"),
    (0, "fp32", "has no units for half precision"),
)
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """The format really used, and a sentence when it is not the one asked for."""

    name: str
    device: torch.device
    note: str | None = None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Used in training and in evaluation alike."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, _DTYPES[self.name])

    def scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")


def choose_precision(asked: str, device: torch.device) -> Precision:
    """fp32, bf16 or fp16; `amp` picks by device. On a CPU, bf16 products are up to 100x slower than fp32."""
    if device.type != "cuda":
        if asked == "fp16":
            raise BadInput("train.precision fp16 needs a GPU; write fp32 or amp.")
        if asked == "amp":
            name, why = ("bf16", "has AMX, which multiplies in bf16") if _has_amx() else ("fp32", "has no AMX for bf16")
            return Precision(name, device, f"train.precision amp: this CPU {why}, so {name} is used")
        return Precision(asked, device)
    if asked != "amp":
        if asked == "bf16" and torch.cuda.get_device_capability(device)[0] < 8:
            raise BadInput(f"train.precision bf16: {torch.cuda.get_device_name()} has no bf16; write fp16 or fp32.")
        return Precision(asked, device)
    generation, _ = torch.cuda.get_device_capability(device)
    best, why = next((name, why) for least, name, why in _ON_GPU if generation >= least)
    return Precision(best, device, f"train.precision amp: {torch.cuda.get_device_name()} {why}, so {best} is used")


def _has_amx() -> bool:
    """Whether bf16 products are done by matrix units; without them they are far slower than fp32 ones."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(ask and ask())
