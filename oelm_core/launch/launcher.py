"""One door to runs, wherever they run: this machine or Slurm. The command line and the screen come in here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.errors import BadInput
from oelm_core.launch import slurm
from oelm_core.runs import store
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.store import Run

if TYPE_CHECKING:
    from oelm_core.config import Experiment

LAUNCHERS = ("local", "slurm")


def check_launcher(name: str, site: Iterable[str] = ()) -> None:
    if name not in LAUNCHERS:
        raise BadInput(f"--launcher {name}: write local or slurm.")
    if name == "local" and list(site):
        raise BadInput("--slurm settings go with --launcher slurm.")


def start(launcher: str, experiment: Experiment, *, site: Iterable[str] = (), **options: Any) -> RunFolder:
    """Starts one run; `options` as in local.start, `site` the texts of --slurm."""
    check_launcher(launcher, site)
    if launcher == "slurm":
        return slurm.start(experiment, overrides=list(site), **options)
    from oelm_core.launch import local

    return local.start(experiment, **options)


def start_study(
    launcher: str,
    study_id: str,
    arms: Sequence[Experiment],
    seeds: Sequence[int],
    *,
    site: Iterable[str] = (),
    **options: Any,
) -> list[RunFolder]:
    """Starts every arm of every seed, interleaved; `options` as in study.start_study."""
    check_launcher(launcher, site)
    if launcher == "slurm":
        return slurm.start_study(study_id, arms, seeds, overrides=list(site), **options)
    from oelm_core.launch import study

    return study.start_study(study_id, arms, seeds, **options)


def _launcher(run: Run) -> Any:
    """The module that runs it. `local` is imported on use: listing runs must not pay for the preset schema."""
    if run.launcher == "slurm":
        return slurm
    from oelm_core.launch import local

    return local


def stop(run: Run, now: bool = False) -> None:
    _launcher(run).stop(run, now=now)


def resume(run: Run, force: bool = False, *, site: Iterable[str] = ()) -> None:
    """`site` are texts of --slurm: with any, the job script is written anew."""
    if run.launcher == "slurm":
        slurm.resume(run, force=force, overrides=site)
    elif list(site):
        raise BadInput(f"{run.id} does not run under Slurm; leave --slurm out.")
    else:
        _launcher(run).resume(run, force=force)


def delete(run: Run) -> None:
    _launcher(run).delete(run)


def log_path(run: Run) -> Path:
    """The log that tells how it went: Slurm's own for a job that ended before its worker could write one."""
    if run.launcher == "slurm" and run.is_over and not run.folder.log.exists():
        of_job = run.folder.path / "slurm" / "job.log"
        return of_job if of_job.exists() else run.folder.log
    return run.folder.log


def list_runs() -> list[Run]:
    """Every run, newest first, with Slurm's word on those it has."""
    return with_slurms_word(store.list_runs())


def find_run(text: str) -> Run:
    return with_slurms_word([store.find_run(text)])[0]


def read_run(folder: RunFolder) -> Run:
    return with_slurms_word([store.read_run(folder)])[0]


def with_slurms_word(runs: list[Run]) -> list[Run]:
    """Asks Slurm only when a run of its is under way, in one call, at most every few seconds."""
    return slurm.overlay(runs) if any(run.launcher == "slurm" for run in runs) else runs
