"""`oelm runs`, `logs`, `stop`, `resume`, `delete`, `import`: what happens to runs that exist."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oelm_core.formatting import count, duration, metric
from oelm_tui.commands.options import AsJson, Slurm, Watch, catalogue, single
from oelm_tui.console import note, print_json, print_once_or_watch, print_table

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run id, any unambiguous beginning of one, or @last.")]


def runs(
    state: Annotated[str | None, typer.Option(help="Only runs in this state.")] = None,
    as_json: AsJson = False,
    watch: Watch = False,
) -> None:
    """List the runs, newest first."""
    from oelm_core.errors import BadInput
    from oelm_core.launch.launcher import list_runs
    from oelm_core.runs.status import STATES

    if state and state not in STATES:
        raise BadInput(f"--state {state}: is none of {', '.join(STATES)}.")

    def show() -> None:
        chosen = [run for run in list_runs() if state in (None, run.state)]
        if as_json:
            print_json([_as_json(run) for run in chosen])
        else:
            _print(chosen)

    print_once_or_watch(show, watch, clear=not as_json)


def _as_json(run: Run) -> dict[str, Any]:
    plain = ("id", "preset", "method", "seed", "state", "reason", "message", "step", "total")
    return {
        **{key: getattr(run, key) for key in plain},
        "metric": {"name": run.metric_name, "value": run.metric_value},
        **{key: getattr(run, key) for key in ("devices", "host", "created")},
    }


def _print(chosen: list[Run]) -> None:
    if not chosen:
        note("no runs here yet. Start one with: oelm run PRESET, or see: oelm presets")
        return
    now = time.time()
    print_table(
        ["STATE", "RUN", "METHOD", "DEVICE", "STEP", "METRIC", "AGE", "WHY"],
        [
            [
                run.state,
                run.id,
                run.method,
                ",".join(run.devices) or "-",
                f"{count(run.step)}/{count(run.total)}",
                metric(run.metric_name, run.metric_value),
                duration(now - run.created) if run.created else "-",
                _why(run),
            ]
            for run in chosen
        ],
        right=("STEP", "AGE"),
        drop=("DEVICE", "METHOD", "AGE", "METRIC"),
    )


def _why(run: Run) -> str:
    if run.state == "finished":
        return ""
    return ": ".join(text for text in (run.reason, run.message) if text)


def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing as the log grows.")] = False,
    lines: Annotated[int, typer.Option("-n", help="How many of the last lines.", min=0)] = 50,
) -> None:
    """Show the end of a run's log."""
    from oelm_core.launch.launcher import find_run, log_path, read_run
    from oelm_tui.logs.reader import tail

    run = find_run(name)
    log = log_path(run)
    if not log.exists():
        note(f"{run.id} has written no log yet; it is {run.state}.")
    for line in tail(log, lines, follow=follow, ended=lambda: read_run(run.folder).is_over):
        print(line, flush=follow)


def stop(
    name: RunName,
    now: Annotated[bool, typer.Option("--now", help="Kill at once, without a checkpoint.")] = False,
) -> None:
    """Stop a run, after a checkpoint unless --now, and wait until it has ended. Ctrl-C only stops waiting."""
    from oelm_core.launch.launcher import find_run, read_run
    from oelm_core.launch.launcher import stop as stop_run

    run = find_run(name)
    stop_run(run, now=now)
    try:
        while not (ended := read_run(run.folder)).is_over and ended.state != "unknown":
            time.sleep(0.1)
    except KeyboardInterrupt:
        note(f"{run.id} was asked to stop and will.")
        raise
    if ended.state == "unknown":
        note(f"{run.id} was asked to stop; whether it did cannot be seen from here: {ended.message}")
    else:
        note(f"{run.id} is {ended.state} at step {ended.step}.")


def resume(
    name: RunName,
    force: Annotated[bool, typer.Option("--force", help="Even if its state is unknown.")] = False,
    slurm: Slurm = None,
) -> None:
    """Continue from the newest complete checkpoint, in the same folder."""
    from oelm_core.launch import launcher

    run = launcher.find_run(name)
    launcher.resume(run, force=force, slurm_settings=slurm or ())
    print(run.id)


def delete(
    name: RunName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a run's folder. A live run is never deleted."""
    from oelm_core.launch import launcher

    run = launcher.find_run(name)
    if not yes and not _agreed(f"Delete {run.folder.path} with its log, metrics and checkpoints?"):
        note("nothing was deleted.")
        return
    launcher.delete(run)
    note(f"{run.id} is deleted.")


def _agreed(question: str) -> bool:
    """The answer of whoever sits there; Ctrl-C, Ctrl-D and nobody at all are a refusal."""
    from oelm_core.errors import Refused

    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        print(file=sys.stderr)  # the question has no line end
        raise Refused("nothing was deleted; --yes deletes without asking.") from None


def import_folders(ctx: typer.Context, folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...")]) -> None:
    """Turn output folders of the author's scripts into read-only runs; importing twice changes nothing."""
    from oelm_core.errors import BadInput
    from oelm_core.published.import_runs import import_folders as read_folders

    refusals = []
    for imported in read_folders(folders, catalogue(ctx)):
        if isinstance(imported, BadInput):
            refusals.append(imported)
            continue
        print(imported.run.id)
        for sentence in imported.notes:
            note(f"{imported.run.id}: {sentence}")
    for refusal in refusals[:-1]:
        note(str(refusal))
    if refusals:
        raise refusals[-1]


apps = {command.__name__: single(command) for command in (runs, logs, stop, resume, delete)}
apps["import"] = single(import_folders)
