"""Number formats: what the device does fast, autocast around the forward pass, and loss scaling for fp16."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oelm_core.errors import BadInput

# Formats by the card's generation (compute capability): what its matrix units multiply.
_ON_GPU = (
    (8, "bf16", "multiplies in bf16, which needs no loss scaling"),
    (7, "fp16", "multiplies in fp16 but not in bf16"),
    (0, "fp32", "has no units for half precision"),
)
_SINCE = {"bf16": 8, "tf32": 8}
"""Generations of cards that have a format at all; the others all have."""
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_BF16_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 BF16"}
"""Instructions that multiply in bf16; without them such products are up to 100x slower than in fp32."""


@dataclass(frozen=True)
class Precision:
    """The format really used, and a sentence when it is not the one asked for."""

    name: str
    device: torch.device
    note: str | None = None

    @property
    def half(self) -> torch.dtype | None:
        """What autocast computes in; None where there is none."""
        return _DTYPES.get(self.name)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Used in training and in evaluation alike."""
        return contextlib.nullcontext() if self.half is None else torch.autocast(self.device.type, self.half)

    def scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")

    def engage(self) -> None:
        """Products of fp32 numbers: exact, unless tf32 was asked for. Whatever the environment had set is undone."""
        torch.set_float32_matmul_precision("high" if self.name == "tf32" else "highest")


def choose_precision(asked: str, device: torch.device, before: str | None = None) -> Precision:
    """fp32, tf32, bf16 or fp16; `amp` picks by device, and keeps what the run's earlier attempts used (`before`)."""
    if asked != "amp":
        _refuse_missing(asked, device)
        return Precision(asked, device)
    best, why = _fastest(device)
    if before is not None and before != best and _has(device, before):
        return Precision(before, device, f"train.precision amp: {before} is used, as when this run began")
    return Precision(best, device, f"train.precision amp: {_name(device)} {why}, so {best} is used")


def _fastest(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda":
        generation = torch.cuda.get_device_capability(device)[0]
        return next((name, why) for least, name, why in _ON_GPU if generation >= least)
    units = bf16_units()
    return ("bf16", f"has {units}, which multiplies in bf16") if units else ("fp32", "has no instructions for bf16")


def bf16_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's instructions that make bf16 fast, by name; None where it has none or torch does not use them."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    except OSError:
        return None
    return next((name for flag, name in _BF16_FLAGS.items() if flag in flags), None)


def _has(device: torch.device, name: str) -> bool:
    if device.type != "cuda":
        return name in ("fp32", "bf16")
    return torch.cuda.get_device_capability(device)[0] >= _SINCE.get(name, 0)


def _refuse_missing(asked: str, device: torch.device) -> None:
    if _has(device, asked):
        return
    if device.type != "cuda":
        raise BadInput(f"train.precision {asked} needs a GPU; write fp32 or amp.")
    raise BadInput(f"train.precision {asked}: {torch.cuda.get_device_name(device)} has no {asked}; write fp16 or fp32.")


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"
