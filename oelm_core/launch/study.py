"""A study's runs: arms interleaved A B A B, those to be compared on one and the same device, with a pause between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from oelm_core.config import Experiment
from oelm_core.launch.local import start
from oelm_core.runs.folder import RunFolder


def start_study(
    study: str,
    arms: Sequence[Experiment],
    seeds: Sequence[int],
    *,
    device: str = "auto",
    per_run: int = 1,
    pause: float = 0.0,
    after: str | None = None,
    after_any: bool = False,
    command: list[str] | None = None,
    root: Path | None = None,
    started: Callable[[RunFolder], None] = lambda folder: None,
) -> list[RunFolder]:
    """Queues every arm of every seed. `started` hears of each run as it is queued.

    The line keeps the order of arrival, so a device works through seed 42's arms, then the next seed's. The arms of one
    comparison and seed follow the first of them onto its device: no arm always gets the better card, and the machine's
    state before and after each stands in its attempt.
    """
    folders = []
    for seed in seeds:
        first: dict[str, str] = {}
        for arm in arms:
            group = (arm.baseline or arm.id).lower()
            folder = start(
                arm,
                seed=seed,
                device=device,
                per_run=per_run,
                study=study,
                after=after,
                after_any=after_any,
                pause=pause,
                beside=first.get(group),
                command=command,
                root=root,
            )
            first.setdefault(group, folder.id)
            folders.append(folder)
            started(folder)
    return folders
