"""One way to runs, wherever they run: this machine or Slurm. The command line and the screen come in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oelm_core.errors import BadInput
from oelm_core.runs import store
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import is_draw
from oelm_core.runs.store import Run

if TYPE_CHECKING:
    from oelm_core.launch.request import RunRequest

LAUNCHERS = ("local", "slurm")


def check_launcher(name: str, slurm_settings: Iterable[str] = (), nodes: int | None = None) -> None:
    if name not in LAUNCHERS:
        raise BadInput(f"--launcher {name}: write local or slurm.")
    if nodes is not None and nodes < 1:
        raise BadInput(f"--nodes {nodes}: a run needs at least one node.")
    if name == "local" and nodes is not None and nodes > 1:
        raise BadInput(f"--nodes {nodes}: only Slurm gives a run more than one node; write --launcher slurm.")
    if name == "local" and list(slurm_settings):
        raise BadInput("--slurm settings go with --launcher slurm.")


def start(launcher: str, request: RunRequest) -> RunFolder:
    """Starts one run and returns at once."""
    check_launcher(launcher, request.slurm, request.nodes)
    if launcher == "slurm":
        from oelm_core.launch.slurm import submit

        return submit.start(request)
    from oelm_core.launch import local

    return local.start(request)


def start_all(
    launcher: str, requests: Sequence[RunRequest], started: Callable[[RunFolder], object] = lambda folder: None
) -> list[RunFolder]:
    """Starts every run in order; `started` hears of each as it is queued.

    Within a study, the arms of one comparison and seed go where the first of them goes: no arm always gets the better
    card, and the machine's state before and after each stands in its attempt. Draws of a tuning, whose times nobody
    compares, take whatever is free.
    """
    for request in requests:
        check_launcher(launcher, request.slurm, request.nodes)
    if launcher == "slurm":
        from oelm_core.launch.slurm import submit

        return submit.start_all(requests, started)
    from oelm_core.launch import local

    for device, per_run in dict.fromkeys((request.device, request.per_run) for request in requests):
        local.check_request(device, per_run)
    folders: list[RunFolder] = []
    first: dict[tuple[str, int], str] = {}
    for request in requests:
        arm = request.experiment
        group = ((arm.baseline or arm.id).lower(), request.seed)
        beside = first.get(group) if request.study and not is_draw(request.tuning) else None
        folder = local.start(replace(request, beside=beside), checked=True)
        first.setdefault(group, folder.id)
        folders.append(folder)
        started(folder)
    return folders


# Imported on use: listing runs must not pay for the preset schema, nor a machine without Slurm for Slurm.


def stop(run: Run, now: bool = False) -> None:
    if run.launcher == "slurm":
        from oelm_core.launch.slurm import cancel

        cancel.stop(run.folder, now=now)
    else:
        from oelm_core.launch import local

        local.stop(run.folder, now=now)


def resume(
    run: Run,
    force: bool = False,
    *,
    per_run: int | None = None,
    nodes: int | None = None,
    slurm_settings: Iterable[str] = (),
) -> None:
    """`slurm_settings` are texts of --slurm. With any, or with `per_run` or `nodes`, the job script is written anew."""
    slurm_settings = [*slurm_settings, *([] if nodes is None else [f"nodes={nodes}"])]
    if run.launcher == "slurm":
        from oelm_core.launch.slurm import submit

        submit.resume(run.folder, force, slurm_settings, per_run)
        return
    from oelm_core.launch import local

    if slurm_settings:
        raise BadInput(f"{run.id} does not run under Slurm; leave {'--slurm' if nodes is None else '--nodes'} out.")
    local.resume(run.folder, force, per_run)


def delete(run: Run) -> None:
    if run.launcher == "slurm":
        from oelm_core.launch.slurm import cancel

        cancel.delete(run.folder)
    else:
        from oelm_core.launch import local

        local.delete(run.folder)


def log_path(run: Run) -> Path:
    """The log that tells how it went: Slurm's own for a job that ended before its worker could write one."""
    if run.launcher == "slurm" and run.is_over and not run.folder.log.exists():
        of_job = run.folder.path / "slurm" / "job.log"
        return of_job if of_job.exists() else run.folder.log
    return run.folder.log


def list_runs() -> list[Run]:
    """Every run, newest first, with what Slurm says about its own."""
    return with_job_states(store.list_runs())


def find_run(text: str) -> Run:
    return with_job_states([store.find_run(text)])[0]


def read_run(folder: RunFolder) -> Run:
    return with_job_states([store.read_run(folder)])[0]


def with_job_states(runs: list[Run]) -> list[Run]:
    """Asks Slurm only when one of its runs is under way, in one call, at most every few seconds."""
    if not any(run.launcher == "slurm" for run in runs):
        return runs
    from oelm_core.launch.slurm import job_states

    return job_states.overlay(runs)


def slurm_problem() -> str | None:
    """Why Slurm gave no answer when it was last asked; None when it answered or was not asked."""
    from oelm_core.launch.slurm import job_states

    return job_states.problem()
