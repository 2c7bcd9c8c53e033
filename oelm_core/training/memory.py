"""The most memory that training held. Evaluation takes what a GPU has left, so its share there is kept apart."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass
class PeakMemory:
    """Of this process, and of its GPU if it has one."""

    device: torch.device
    _before: int = 0

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """What is taken meanwhile does not count, and goes back to the card for its other users."""
        if self.device.type != "cuda":
            yield
            return
        self._before = self._on_card()
        try:
            yield
        finally:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def as_dict(self) -> dict[str, int | None]:
        """Bytes; Linux counts the host's in KiB."""
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)
        return {"device_peak": self._on_card() if self.device.type == "cuda" else None, "host_peak": host}

    def _on_card(self) -> int:
        return max(self._before, torch.cuda.max_memory_allocated(self.device))
