"""Job arrays: many runs with the same requirements as one submission, each a task with its own script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from oelm_core.config.slurm import Site
from oelm_core.errors import refusing
from oelm_core.launch.slurm import submission
from oelm_core.launch.slurm.commands import call
from oelm_core.launch.slurm.script import cards_of, sbatch_options
from oelm_core.runs.folder import RunFolder

_LIMITS = re.compile(r"^MaxArraySize\s*=\s*(\d+)|\bmax_array_tasks=(\d+)", re.MULTILINE)


def array_limit() -> int:
    """How many tasks an array may have here; 0 where Slurm does not say, or has no arrays."""
    answer = call("scontrol", "show", "config", patience=15)
    return parse_limit(answer.out) if answer.ok else 0


def parse_limit(config: str) -> int:
    """From `scontrol show config`. MaxArraySize is one more than the largest number of a task, and we begin at 0.

    >>> parse_limit("MaxArraySize            = 1001\\nSchedulerParameters     = bf_interval=1,max_array_tasks=500")
    500
    """
    found = [int(size or tasks) for size, tasks in _LIMITS.findall(config)]
    return min(found) if re.search(r"^MaxArraySize", config, re.MULTILINE) else 0


def write_array(folders: Sequence[RunFolder], site: Site, device: str, per_run: int, cwd: Path) -> Path:
    """slurm/array.sh in the first run's folder. Slurm keeps a copy, so no other run needs it there."""
    text = render_array(folders, site, device=device, per_run=per_run, cwd=cwd)
    path = submission.slurm_dir(folders[0]) / "array.sh"
    with refusing(f"cannot write {path}"):
        path.write_text(text, encoding="utf-8")
    return path


def render_array(folders: Sequence[RunFolder], site: Site, *, device: str, per_run: int, cwd: Path) -> str:
    """Task N takes the place of the Nth run's own script, whose settings for sbatch are the same as these."""
    cards = cards_of(site, device, per_run)
    options = sbatch_options(site, name=folders[0].id, output="/dev/null", cards=cards, per_run=per_run, cwd=cwd)
    at_once = f"%{site.max_jobs}" if site.max_jobs else ""
    lines = [
        "#!/bin/bash",
        f"# {len(folders)} runs of OELM Lab as one job array. Each task is the script slurm/job.sh of its run.",
        *(f"#SBATCH {option}" for option in options),
        f"#SBATCH --array=0-{len(folders) - 1}{at_once}",
        "",
        "runs=(",
        *(f"  {shlex.quote(str(folder.path))}" for folder in folders),
        ")",
        "run=${runs[$SLURM_ARRAY_TASK_ID]}",
        'exec >> "$run/slurm/job.log" 2>&1',
        'exec bash "$run/slurm/job.sh"',
    ]
    return "\n".join(lines) + "\n"
