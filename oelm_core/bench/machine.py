"""The machine a table belongs to: its name, its load, and how fast it multiplies matrices."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe(threads: int) -> dict[str, Any]:
    """What has to be known to read the figures. Imports nothing heavy."""
    from importlib import metadata

    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": _gpu_name(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "tokenizers", "datasets")},
        "load": os.getloadavg()[0],
    }


def _cpu_name() -> str:
    with open("/proc/cpuinfo") as info:
        names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _gpu_name() -> str | None:
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    for card in cards[:1]:
        for line in card.read_text().splitlines():
            if line.startswith("Model"):
                return line.partition(":")[2].strip()
    return None


class Gemm:
    """A square product in fp32: the fastest this machine can be, in the same rounds as the variants."""

    def __init__(self, size: int) -> None:
        import torch

        place = "cuda" if torch.cuda.is_available() else "cpu"
        self._a, self._b = torch.randn(size, size, device=place), torch.randn(size, size, device=place)
        self.about = {"flops": 2 * size**3}

    def __call__(self) -> None:
        self._a @ self._b
