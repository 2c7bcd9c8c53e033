"""A worker whose second rank fails at its third step: what the runner then says is a check."""

from __future__ import annotations

import os
import sys

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome
from oelm_core.training import worker
from oelm_core.training.supervision import StopRequest

AT = 3
_as_usual = worker.train_run


def _train_run(folder: RunFolder, stop: StopRequest) -> tuple[Outcome, int]:
    from oelm_core.training.loop import Loop

    as_usual = Loop._step

    def failing(self: Loop, step: int) -> None:
        if step == AT and os.environ.get("RANK") == "1":
            raise RuntimeError("this rank was told to fail")
        as_usual(self, step)

    Loop._step = failing  # type: ignore[method-assign]
    return _as_usual(folder, stop)


if __name__ == "__main__":
    worker.train_run = _train_run
    sys.exit(worker.main())
