"""Follows runs to their end with progress bars on stderr. Leaving it leaves the runs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oelm_core.formatting import metric

if TYPE_CHECKING:
    from oelm_core.runs.folder import RunFolder
    from oelm_core.runs.store import Run


def follow(folders: Sequence[RunFolder], read: Callable[[RunFolder], Run] | None = None) -> list[Run]:
    """Waits until every run has ended, showing how far each is, and returns them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from oelm_core.launch.launcher import read_run

    read = read or read_run
    columns = (
        TextColumn("{task.fields[state]:<9}"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[metric]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        tasks = {
            f.id: progress.add_task(f.id.rsplit("-", 3)[0], total=None, state="queued", metric="") for f in folders
        }
        while True:
            runs = [read(folder) for folder in folders]
            for run in runs:
                shown = run.message or run.reason or "" if run.state in ("failed", "waiting") else ""
                progress.update(
                    tasks[run.id],
                    completed=run.step,
                    total=run.total,
                    state=run.state,
                    metric=shown or metric(run.metric_name, run.metric_value),
                )
            if all(run.is_over for run in runs):
                return runs
            time.sleep(0.3)
