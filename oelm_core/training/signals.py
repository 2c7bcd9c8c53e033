"""Asking a run to stop: TERM and INT checkpoint and stop, USR2 checkpoints and asks to be queued again."""

from __future__ import annotations

import signal
import threading
from types import FrameType

REQUEUE_EXIT = 75


class StopRequest:
    """Set by a signal, read by the loop between steps. The first signal decides; USR2 gives way to TERM."""

    def __init__(self) -> None:
        self._signal = 0
        self.asked = threading.Event()

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.request(number)

    def request(self, number: int) -> None:
        if self._signal in (0, signal.SIGUSR2):
            self._signal = number
        self.asked.set()

    @property
    def number(self) -> int:
        """The signal's number, 0 while nobody asked. What ranks agree upon."""
        return self._signal


class Interrupted(Exception):
    """Leaves an evaluation that a stop request came into."""
