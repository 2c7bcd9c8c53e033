"""`max_jobs`: runs stand in so many lanes, each a chain of jobs, so that no more than that many run at once."""

from __future__ import annotations

from pathlib import Path

from oelm_core.launch.slurm import job_states, submission
from oelm_core.runs.status import ENDED
from oelm_core.runs.store import list_runs


def choose(max_jobs: int | None, root: Path, own: str) -> tuple[int | None, list[str]]:
    """(lane, jobs to wait for): the shortest lane, behind everything in it. (None, []) without a cap.

    A job waits for all jobs of its lane, not only for the last: when that one is cancelled while it is pending,
    those before it still hold the lane.
    """
    if max_jobs is None:
        return None, []
    lanes: dict[int, list[str]] = {number: [] for number in range(max_jobs)}
    for lane, job in _jobs_under_way(root, own):
        lanes[lane % max_jobs].append(job)
    shortest = min(lanes, key=lambda number: len(lanes[number]))
    return shortest, lanes[shortest]


def _jobs_under_way(root: Path, own: str) -> list[tuple[int, str]]:
    """(lane, job) of every run of this folder that Slurm still has, oldest first."""
    ours = [run for run in reversed(list_runs(root)) if run.launcher == "slurm" and run.id != own]
    found = []
    for run in job_states.overlay(ours, job_states.Desk()):
        handed = submission.last(run.folder) if run.state not in ENDED else None
        if handed is not None and handed.job is not None:
            found.append((handed.lane or 0, handed.job))
    return found
