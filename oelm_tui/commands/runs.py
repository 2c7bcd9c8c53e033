"""`oelm runs`, `logs`, `stop`, `resume`, `delete`, `import`: what happens to runs that exist."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oelm_core.formatting import count, duration, metric
from oelm_core.home import home
from oelm_tui.commands import completion
from oelm_tui.commands.options import AsJson, Slurm, Watch, catalogue, single
from oelm_tui.console import note, notes, print_json, print_once_or_watch, print_table
from oelm_tui.streams import say

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run id, any unambiguous beginning of one, or @last.", autocompletion=completion.runs
    ),
]

SECONDS_IN_SILENCE = 10.0
"""After so long without an end, `oelm stop` says that it waits."""


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
            _print(chosen, state)

    print_once_or_watch(show, watch, clear=not as_json)


def _as_json(run: Run) -> dict[str, Any]:
    plain = ("id", "preset", "method", "seed", "state", "reason", "message", "unreadable", "step", "total")
    return {
        **{key: getattr(run, key) for key in plain},
        "message": _message(run),
        "metric": {"name": run.metric_name, "value": run.metric_value},
        **{key: getattr(run, key) for key in ("devices", "host", "created")},
    }


def _print(chosen: list[Run], state: str | None) -> None:
    if not chosen:
        if state:
            note(f"no run in {home()} is {state}.")
        else:
            note(f"no runs in {home()} yet. Start one with: oelm run PRESET, or see: oelm presets.")
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
        return run.unreadable or ""
    unreadable = run.unreadable if run.unreadable != run.message else None
    return ": ".join(text for text in (run.reason, _message(run), unreadable) if text)


def _message(run: Run) -> str | None:
    """What the run says, or that it stands still or lost its numbers, as the screen says it."""
    if run.message or run.state != "running":
        return run.message
    from oelm_core.runs.schema import WorkerProgress
    from oelm_tui.snapshots.columns import MetricsTail
    from oelm_tui.snapshots.run_view import alarm_of

    progress, now = run.folder.read(WorkerProgress), time.time()
    alarm = alarm_of(run, MetricsTail(run.folder.metrics).read(), progress.t if progress else now, now)
    return alarm.words if alarm else None


def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing as the log grows.")] = False,
    lines: Annotated[int, typer.Option("-n", help="How many of the last lines.", min=0)] = 50,
    raw: Annotated[bool, typer.Option("--raw", help="Byte for byte, into a pipe or a file; a terminal obeys it.")] = (
        False
    ),
) -> None:
    """Show the end of a run's log.

    Progress bars are shown as they last stood; colours, titles and what else would steer a terminal are left out, also
    into a pipe, for that often ends in a terminal. --raw writes the bytes as they are in the file.
    """
    from oelm_core.errors import Refused
    from oelm_core.launch.launcher import find_run, log_path, read_run
    from oelm_core.small_files import open_plain_file
    from oelm_tui.logs.reader import tail, tail_bytes

    run = find_run(name)
    log = log_path(run)
    try:
        os.close(open_plain_file(log))
    except FileNotFoundError:
        note(f"{run.id} has written no log yet; it is {run.state}.")
    except OSError as error:
        raise Refused(f"{run.id}: unreadable: {log.name}, {error.strerror}.") from None

    def ended() -> bool:
        return read_run(run.folder).is_over

    if raw:
        sys.stdout.flush()
        for piece in tail_bytes(log, lines, follow=follow, ended=ended):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    for line in tail(log, lines, follow=follow, ended=ended):
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
    told, asked = False, time.monotonic()
    try:
        while not (ended := read_run(run.folder)).is_over and ended.state != "unknown":
            if not told and time.monotonic() - asked > SECONDS_IN_SILENCE:
                note(f"{run.id} is asked to stop and is {ended.state} still; waiting. Ctrl-C only stops waiting.")
                told = True
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
    per_run: Annotated[
        int | None, typer.Option(help="On so many cards (or CPU processes); else on as many as before.", min=1)
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="On so many nodes; Slurm only.", min=1)] = None,
    slurm: Slurm = None,
) -> None:
    """Continue from the newest complete checkpoint, in the same folder."""
    from oelm_core.launch import launcher

    run = launcher.find_run(name)
    launcher.resume(run, force=force, per_run=per_run, nodes=nodes, slurm_settings=slurm or ())
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
    """Turn output folders into read-only runs; importing twice changes nothing.

    Of the author's scripts, of transformers' Trainer, or logged by TensorBoard, W&B or MLflow.
    """
    from oelm_core.errors import BadInput
    from oelm_core.published.import_runs import import_folders as read_folders

    refusals = []
    for imported in read_folders(folders, catalogue(ctx)):
        if isinstance(imported, BadInput):
            refusals.append(imported)
            continue
        say(imported.run.id)
        for sentence in imported.notes:
            note(f"{imported.run.id}: {sentence}")
    notes([str(refusal) for refusal in refusals[:-1]], "oelm import FOLDER says what is wrong with one")
    if refusals:
        raise refusals[-1]


apps = {command.__name__: single(command) for command in (runs, logs, stop, resume, delete)}
apps["import"] = single(import_folders)
