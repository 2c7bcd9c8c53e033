"""The process that trains one run: `python -m oelm_core.training.worker --run-folder=PATH`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.data import hub
from oelm_core.runs.folder import RunFolder
from oelm_core.training import watch
from oelm_core.training.signals import REQUEUE_EXIT, StopRequest
from oelm_core.training.waiting import wait_politely

if TYPE_CHECKING:
    from oelm_core.training.session import Session


def main(arguments: list[str] | None = None) -> int:
    """0 finished or stopped, 1 failed, 75 asked to be queued again. outcome.json says which."""
    parser = argparse.ArgumentParser(prog="oelm_core.training.worker", description="Trains the run of one folder.")
    parser.add_argument("--run-folder", required=True, type=Path)
    folder = RunFolder(parser.parse_args(arguments).run_folder)
    watched = watch.guard(folder.path)  # before torch: nothing heavy may outlive the runner
    wait_politely()
    stop = StopRequest()
    stop.install()
    watched.start(stop.request)
    rank = int(os.environ.get("RANK", "0"))
    if rank == 0:
        (folder.path / "outcome.json").unlink(missing_ok=True)
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} worker {os.getpid()} starts {folder.id}", flush=True)
    if hub.needs_hub((folder.read_dict("run") or {}).get("config") or {}):
        hub.stay_offline_if_unreachable()
    outcome, code = train_run(folder, stop)
    if rank == 0:
        with contextlib.suppress(OSError):  # a full disk: the runner then goes by the exit code
            folder.write_dict("outcome", outcome)
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {outcome['state']}: {outcome['message']}", flush=True)
    return code


def train_run(folder: RunFolder, stop: StopRequest) -> tuple[dict[str, Any], int]:
    """One attempt from set-up to result. Returns (outcome.json, exit code)."""
    from transformers.utils import logging

    from oelm_core.training.failures import outcome_of
    from oelm_core.training.finishing import finish
    from oelm_core.training.loop import Loop
    from oelm_core.training.session import set_up

    logging.disable_progress_bar()  # carriage returns have no place in a log
    session: Session | None = None
    try:
        session = set_up(folder, stop)
        session.records.say(_start_line(session))
        asked = Loop(session).fit()
        step = session.progress.step
        if asked:
            return _stopped(folder, asked, step, session.total)
        if session.ranks.main:
            finish(session)
        session.ranks.barrier()
        return {"state": "finished", "reason": "completed", "message": _summary(session), "step": step}, 0
    except Exception as error:
        reason, message, unexpected = outcome_of(error, session.experiment.train if session else None)
        if unexpected:
            traceback.print_exc()
            sys.stderr.flush()
        step = session.progress.step if session else 0
        if session:
            with contextlib.suppress(OSError):
                session.records.event(step, "failed", message)
        return {"state": "failed", "reason": reason, "message": message, "step": step}, 1
    finally:
        if session:
            session.records.close()
            with contextlib.suppress(Exception):
                session.ranks.close()


def _stopped(folder: RunFolder, asked: int, step: int, total: int) -> tuple[dict[str, Any], int]:
    if asked == signal.SIGUSR2:
        message = f"interrupted at step {step} of {total} with a checkpoint, to be queued again"
        return {"state": "stopped", "reason": "preempted", "message": message, "step": step}, REQUEUE_EXIT
    by_user = (folder.path / "stop.json").exists()  # only a stop.json makes it the user's wish
    message = f"stopped at step {step} of {total}" + (" with a checkpoint" if step else ", before its first step")
    return {"state": "stopped", "reason": "user" if by_user else "signal", "message": message, "step": step}, 0


def _start_line(session: Session) -> str:
    census = session.checks["census"]
    return (
        f"{session.experiment.id} seed {session.experiment.seed}: {census['total']:,} parameters,"
        f" {census['trainable']:,} train, {census['frozen']:,} frozen; {session.total} steps of"
        f" {session.task.plan.effective_batch} on {session.ranks.world} x {session.ranks.device.type},"
        f" {session.precision.name}, {session.threads} threads"
    )


def _summary(session: Session) -> str:
    metric, best = session.experiment.metric, session.progress.best
    return f"best {metric} {best[metric]:.4f} at step {best['step']}" if best else "completed"


if __name__ == "__main__":
    sys.exit(main())
