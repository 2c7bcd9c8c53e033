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
from typing import TYPE_CHECKING, NoReturn

from oelm_core.data import hub
from oelm_core.launch.worker_exit import DISK_EXIT_CODE, REQUEUE_EXIT_CODE
from oelm_core.models.loading import load_libraries
from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunRecord, Stop
from oelm_core.training.supervision import Interrupted, StopRequest, guard

if TYPE_CHECKING:
    from oelm_core.training.session import Session

SPIN = "1000"
"""Turns of libgomp's waiting loop before a thread of torch sleeps, some 40 µs: where the system puts the threads of a
step on one core, they are lost at each of its parallel parts (20000 of them took 0.7 ms of each part's CPU time)."""


def main(arguments: list[str] | None = None) -> int:
    """0 finished or stopped, 1 failed, 74 no room for the last word, 75 asked to be queued again.

    outcome.json says which (outcome-rankN.json).
    """
    parser = argparse.ArgumentParser(prog="oelm_core.training.worker", description="Trains the run of one folder.")
    parser.add_argument("--run-folder", required=True, type=Path)
    folder = RunFolder(parser.parse_args(arguments).run_folder)
    watchdog = guard(folder)  # before torch: nothing heavy may outlive the runner
    limit_spinning()
    stop = StopRequest()
    stop.install()
    watchdog.start(stop.request)
    rank = int(os.environ.get("RANK", "0"))
    outcomes.path_of(folder, rank).unlink(missing_ok=True)
    if rank == 0:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} worker {os.getpid()} starts {folder.id}", flush=True)
    run = folder.read(RunRecord)
    hub.prepare_for(run.config if run else {})
    load_libraries()
    outcome, code = train_run(folder, stop)
    outcome.t = time.time()
    failed = outcome.state == "failed"
    try:
        outcomes.write(folder, rank, outcome)
    except OSError:  # the runner then goes by the exit code
        code = DISK_EXIT_CODE if failed and outcome.reason == "disk" else code
    if rank == 0 or failed:
        with contextlib.suppress(OSError):
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {outcome.state}: {outcome.message}", flush=True)
    if failed:
        leave(code)
    return code if rank == 0 else 0  # 75 once: srun ends every rank at the first that is not 0


def leave(code: int) -> NoReturn:
    """Ends this process without closing anything: with a peer that does not answer, closing may wait half an hour."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def limit_spinning() -> None:
    """To be called before torch is loaded. What the environment says already stands.

    libgomp's default takes the core from the very thread that is waited for when the machine is busy; sleeping at once
    makes every small operation wait for a wake-up. `python -m benchmarks loop` measures all three.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPIN


def train_run(folder: RunFolder, stop: StopRequest) -> tuple[Outcome, int]:
    """One attempt from set-up to results. Returns (outcome.json, exit code)."""
    from transformers.utils import logging

    from oelm_core.training.loop import Loop
    from oelm_core.training.results import write_results
    from oelm_core.training.session import set_up

    logging.disable_progress_bar()  # carriage returns have no place in a log
    session: Session | None = None
    try:
        session = set_up(folder, stop)
        session.recorder.say(_start_line(session))
        stopped_by = Loop(session).fit()
        if not stopped_by:
            try:
                with session.whole():
                    write_results(session)
            except Interrupted:  # in the test text: the last checkpoint is there, a resume scores it
                stopped_by = session.ranks.agree(stop.number)
        session.ranks.barrier()  # nobody leaves before the first rank has saved
        step = session.progress.step
        ended = Outcome("finished", "completed", _summary(session), step), 0
        if stopped_by:
            ended = _stopped(folder, stopped_by, step, session.total)
        session.recorder.close()
        session.ranks.close()
        return ended
    except (Exception, SystemExit) as error:
        return _failed(error, session), 1


def _failed(error: Exception | SystemExit, session: Session | None) -> Outcome:
    """What is said of a failure. Nothing is closed but the recorder: see `leave`."""
    from oelm_core.training.distributed import lost_peer
    from oelm_core.training.failures import NonFinite, failure_of

    step = session.progress.step if session else 0
    lost = lost_peer(error)
    if lost is not None:
        outcome = Outcome("failed", lost.reason, lost.message, step, consequence=True)
    else:
        failure = failure_of(error, session.experiment.train if session else None)
        if failure.unexpected:
            traceback.print_exc()
            sys.stderr.flush()
        elsewhere = isinstance(error, NonFinite) and error.elsewhere
        outcome = Outcome("failed", failure.reason, failure.message, step, consequence=elsewhere)
    if session:
        with contextlib.suppress(OSError):
            session.recorder.event(step, "failed", outcome.message or "")
            session.recorder.close()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not _shared(outcome):
        outcome.message = f"rank {os.environ.get('RANK')}: {outcome.message}"
    return outcome


def _shared(outcome: Outcome) -> bool:
    """Whether every rank fails so: all read the same settings, and on one machine the same files."""
    on_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    return outcome.reason == "config" or (outcome.reason == "data" and on_one_machine)


def _stopped(folder: RunFolder, number: int, step: int, total: int) -> tuple[Outcome, int]:
    if number == signal.SIGUSR2:
        message = f"interrupted at step {step} of {total} with a checkpoint, to be queued again"
        return Outcome("stopped", "preempted", message, step), REQUEUE_EXIT_CODE
    by_user = (folder.path / Stop.FILE).exists()  # only a stop.json makes it the user's wish
    message = f"stopped at step {step} of {total}" + (" with a checkpoint" if step else ", before its first step")
    return Outcome("stopped", "user" if by_user else "signal", message, step), 0


def _start_line(s: Session) -> str:
    census = s.checks.census
    return (
        f"{s.experiment.id} seed {s.experiment.seed}: {census.total:,} parameters,"
        f" {census.trainable:,} train, {census.frozen:,} frozen; {s.total} steps of"
        f" {s.task.plan.effective_batch} on {s.ranks.world} x {s.ranks.device.type}{', sharded' if s.shards else ''},"
        f" {s.precision.name}, {s.threads} threads"
    )


def _summary(s: Session) -> str:
    metric, best = s.experiment.metric, s.progress.best or {}
    value = best.get(metric)
    return "completed" if value is None else f"best {metric} {value:.4f} at step {best['step']}"


if __name__ == "__main__":
    sys.exit(main())
