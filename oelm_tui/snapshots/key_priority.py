"""Keys first: a thread with much to read rests for a moment after each key, so that its answer need not share the core.

Python lets one thread compute at a time. Two that both have work slow each other to half.
"""

from __future__ import annotations

import time

REST = 0.06
"""Seconds: longer than a key takes to be answered, shorter than anybody would notice in a file that takes seconds."""

_pressed = float("-inf")


def key_pressed() -> None:
    global _pressed
    _pressed = time.monotonic()


def give_way() -> None:
    """Returns when no key has been pressed for REST seconds; at once, as a rule."""
    while (left := _pressed + REST - time.monotonic()) > 0:
        time.sleep(left)
