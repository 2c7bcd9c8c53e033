"""Threads behind the screen: each does one kind of slow work, only the newest request of it, and gives way to keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

REST = 0.06
"""Seconds: longer than a key takes to be answered, shorter than anybody would notice in a file that takes seconds."""
_pressed = float("-inf")


def key_pressed() -> None:
    global _pressed
    _pressed = time.monotonic()


def give_way() -> None:
    """Returns when no key has been pressed for REST seconds; at once, as a rule.

    Python lets one thread compute at a time: two that both have work slow each other to half. So a thread with much to
    read rests after each key, and the key's answer has the core for itself.
    """
    while (left := _pressed + REST - time.monotonic()) > 0:
        time.sleep(left)


class BackgroundThread(Generic[Request, Answer]):
    """`work` runs in the thread for the newest request, and again every `every` seconds; `deliver` gets its answer.

    None is not delivered: nothing changed. An error of `work` is reported once and the thread continues: a hanging or
    broken disk must never take the screen with it.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Request], Answer | None],
        deliver: Callable[[Answer], object],
        every: float | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        self._work, self._deliver, self._on_error = work, deliver, on_error
        self.every = every
        self._request: Request | None = None
        self._asked = False
        self._busy = False
        self._closed = False
        self._wake = threading.Condition()
        self._last_error = ""
        self._thread = threading.Thread(target=self._serve, name=f"oelm-{name}", daemon=True)
        self._started = False

    def ask(self, request: Request) -> None:
        """Replaces whatever was asked and not yet begun."""
        with self._wake:
            self._request, self._asked = request, True
            if not self._started:
                self._started = True
                self._thread.start()
            self._wake.notify()

    def close(self) -> None:
        """The thread ends after what it is doing; nobody waits for it, since that may be a hanging disk."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    @property
    def idle(self) -> bool:
        with self._wake:
            return not (self._asked or self._busy)

    def _serve(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                if not self._asked and not self._closed:
                    self._wake.wait(self.every)
                if self._closed:
                    return
                if not self._asked and self.every is None:
                    continue
                request, self._asked, self._busy = self._request, False, True
            try:
                answer = self._work(request)  # type: ignore[arg-type]
                if answer is not None and not self._closed:
                    self._deliver(answer)
                self._last_error = ""
            except Exception as error:  # whatever it was, the next round must come
                self._report(error)

    def _report(self, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"
        if self._on_error is not None and words != self._last_error and not self._closed:
            self._on_error(error)
        self._last_error = words
