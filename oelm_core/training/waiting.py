"""How long torch's threads spin before they sleep while they wait for one another."""

from __future__ import annotations

import os

SPIN = "20000"
"""Turns of libgomp's waiting loop, some tens of microseconds."""


def wait_politely() -> None:
    """To be called before torch is loaded. What the environment says already stands.

    libgomp's default takes the core from the very thread that is waited for when the machine is busy; sleeping at once
    makes every small operation wait for a wake-up. `oelm bench loop` prints all three.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPIN
