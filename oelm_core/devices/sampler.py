"""One thread that looks at the machine again and again, so that no reader ever waits for a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from oelm_core.devices.machine import MachineSnapshot, snapshot, without_gpus


class DeviceSampler:
    """`latest` is always there at once; `age` tells how old it is, for a driver may hang for minutes."""

    def __init__(self, every: float = 1.0, look: Callable[[], MachineSnapshot] = snapshot) -> None:
        self._every = every
        self._look = look
        self._latest: MachineSnapshot | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem: str | None = None
        """Why the last look failed, if it did; sampling continues."""

    def start(self) -> DeviceSampler:
        if self._thread is None:
            self._wake.clear()
            self._thread = threading.Thread(target=self._run, name="device sampler", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread at its next breath; does not wait for a driver that hangs."""
        self._wake.set()
        self._thread = None

    @property
    def latest(self) -> MachineSnapshot:
        """The newest snapshot; before the first one is complete, the machine without its cards."""
        return self._latest or without_gpus()

    @property
    def age(self) -> float:
        """Seconds since the newest snapshot was taken."""
        return 0.0 if self._latest is None else time.time() - self._latest.t

    def _run(self) -> None:
        wake = self._wake
        while not wake.is_set():
            try:
                self._latest = self._look()
                self.problem = None
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"
            wake.wait(self._every)

    def __enter__(self) -> DeviceSampler:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
