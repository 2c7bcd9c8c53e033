"""A lab of its own for tests that start real runners: its home, its leases, the stand-in worker, and a clean end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from oelm_core.config import Experiment, build_experiment
from oelm_core.launch import local
from oelm_core.launch.request import RunRequest
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunState, WorkerProgress
from oelm_core.runs.status import ENDED, RunStatus, run_status

STAND_IN = Path(__file__).resolve().parents[1] / "stand_in_worker.py"


def experiment(
    name: str = "stand-in", steps: int = 10, threads: int | None = 1, baseline: str | None = None
) -> Experiment:
    """Small and valid; the stand-in reads only its steps."""
    return build_experiment(
        {
            "id": name,
            "title": name,
            "family": "gpt",
            "baseline": baseline,
            "model": {
                "name": "tiny",
                "shape": {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "vocab": 32, "positions": 16},
            },
            "data": {"name": "synthetic-stories", "max_length": 16, "metric": "accuracy"},
            "method": {"name": "baseline" if baseline is None else "other"},
            "train": {"max_steps": steps, "batch_size": 1, "lr": 1e-3, "threads": threads},
        },
        name,
    )


class Lab:
    """Everything of one test under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "home" / "runs"
        self.leases = folder / "leases"

    @property
    def environment(self) -> dict[str, str]:
        home, leases = str(self.folder / "home"), str(self.leases)
        return {"OELM_HOME": home, "OELM_LEASES": leases, "OELM_WORKER": str(STAND_IN), "OELM_GRACE": "20"}

    def start(self, steps: int = 10, **options: Any) -> RunFolder:
        arm = options.pop("arm", None) or experiment(steps=steps)
        return local.start(RunRequest(arm, **{"seed": 1, "device": "cpu", "command": ("test",), **options}))

    def end(self, run: RunFolder, timeout: float = 60.0) -> RunStatus:
        """Its status once it is over, or when the time is up."""
        deadline = time.monotonic() + timeout
        while (status := run_status(run)).state not in ENDED and time.monotonic() < deadline:
            time.sleep(0.1)
        return status

    def until(self, condition: Callable[[], Any], timeout: float = 60.0, what: str = "it") -> Any:
        """Waits for the thing itself."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what} did not happen in {timeout:.0f} s"
            time.sleep(0.02)
        return value

    def step(self, run: RunFolder) -> int:
        progress = run.read(WorkerProgress)
        return progress.step if progress else 0

    def state(self, run: RunFolder) -> RunState:
        found = run.read(RunState)
        assert found is not None
        return found

    def worker(self, run: RunFolder) -> int:
        """The pid of a run's worker once it trains."""
        self.until(lambda: self.step(run) > 0, what="the first step")
        return self.state(run).workers[0].pid

    def runner(self, run: RunFolder) -> int:
        return int(self.until(lambda: self.state(run).pid, what="the runner"))

    def processes(self) -> list[int]:
        """Every live process that belongs to a run of this lab."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                line = process.read_text(f"/proc/{name}/cmdline")
                if f"--run-folder={self.folder}" in line and process.birth(int(name)) is not None:
                    found.append(int(name))
        return found

    def all_gone(self) -> bool:
        """Whether the last process has left; a runner that wrote its last word needs a moment."""
        return bool(self.until(lambda: not self.processes(), 20, "the end of every process"))

    def held(self) -> list[str]:
        """Devices whose lease somebody still holds."""
        from oelm_core.launch import lease

        return [path.stem for path in self.leases.glob("*.lease") if lease.holder(path.stem, self.leases)]

    def close(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.all_gone()


def states(lab: Lab) -> dict[str, RunStatus]:
    return {path.name: run_status(RunFolder(path)) for path in lab.root.iterdir() if not path.name.startswith(".")}


@contextlib.contextmanager
def open_lab(folder: Path) -> Iterator[Lab]:
    """A lab whose settings are in this process's environment while it is open."""
    lab = Lab(folder)
    with mock.patch.dict(os.environ, lab.environment):
        try:
            yield lab
        finally:
            lab.close()
