"""The libraries that every network needs, loaded for good: light until it is asked."""

from __future__ import annotations

import gc
import sys


def load_libraries() -> None:
    """torch and transformers, in some three quarters of the time that importing them takes.

    Nobody looks for garbage among what stays, then or later: that was a quarter of a worker's start. And scipy's
    solvers, which only losses of boxes need, were more than a tenth: this process can compute no such loss.
    """
    if "transformers.modeling_utils" in sys.modules:
        return  # garbage that is there by now would stay for good too
    collected = gc.isenabled()
    gc.disable()
    try:
        from transformers import utils

        available: object = vars(utils)["is_scipy_available"]
        vars(utils)["is_scipy_available"] = lambda: False
        try:
            from transformers import PreTrainedModel  # noqa: F401 - every network is one
        finally:
            vars(utils)["is_scipy_available"] = available
    finally:
        gc.freeze()
        if collected:
            gc.enable()
