"""The process that makes checks: `python -m oelm_core.proof NAME...` writes one line of JSON a check."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from pkgutil import resolve_name

import msgspec
import torch

from oelm_core.proof.checks import CHECKS, Check
from oelm_core.proof.finding import Finding
from oelm_core.proof.record import CheckResult
from oelm_core.training.failures import failure_of
from oelm_core.training.worker import limit_spinning


def main(names: list[str]) -> int:
    limit_spinning()
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print is no result
    device = torch.device("cuda:0" if os.environ.get("OELM_DEVICE") == "cuda" else "cpu")
    for name in names:
        result = make(CHECKS[name], device)
        results.write(msgspec.json.encode(result) + b"\n")
        if result.ok is False and device.type == "cuda":
            return 0  # after a card's error the process may be of no use: the rest gets a new one
    return 0


def make(check: Check, device: torch.device) -> CheckResult:
    """One check with whatever it raises as its result."""
    began = time.monotonic()
    try:
        function: Callable[[torch.device], Finding] = resolve_name(f"oelm_core.proof.{check.function}")
        found = function(device)
    except Exception as error:
        traceback.print_exc()
        found = Finding(False, failure_of(error, None).message)
    fix = found.fix or (check.fix if found.ok is False else "")
    seconds = round(time.monotonic() - began, 2)
    return CheckResult(check.name, found.ok, found.measured, found.bound, fix, found.figures, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
