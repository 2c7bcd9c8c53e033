"""The sbatch script of a run: readable, editable, and good for submitting again by hand."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from oelm_core.config.slurm import Site
from oelm_core.launch.spawn import importable
from oelm_core.runs.folder import RunFolder, home


def render(
    site: Site,
    folder: RunFolder,
    *,
    device: str,
    per_run: int,
    cwd: Path,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
) -> str:
    """The script; `device` is auto or cpu, for Slurm picks the cards."""
    options = _options(site, folder, device, per_run, cwd)
    command = [site.python or python, "-m", "oelm_core.launch.runner", f"--run-folder={folder.path}"]
    lines = [
        "#!/bin/bash",
        f"# Run {folder.id} of OELM Lab. Edit it and submit it again with `oelm resume {folder.id}`,",
        "# or by hand with sbatch: it goes on from the newest checkpoint.",
        *(f"#SBATCH {option}" for option in options),
        "",
        *(f"export {key}={shlex.quote(value)}" for key, value in _variables(site, folder, environment).items()),
        *([""] if site.setup else []),
        *site.setup,
        "",
        "# exec: the runner takes this shell's place, so Slurm's signals reach it",
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def _options(site: Site, folder: RunFolder, device: str, per_run: int, cwd: Path) -> list[str]:
    output = str(folder.path / "slurm" / "job.log").replace("%", "%%")
    options = [
        f"--job-name={folder.id}",
        f"--chdir={_quoted(str(cwd))}",
        f"--output={_quoted(output)}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR2@{site.signal_seconds}",
        "--kill-on-invalid-dep=yes",
        f"--nodes={site.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus * per_run}",
    ]
    if device != "cpu" and site.gres:
        options.append(f"--gres={site.gres}:{per_run}")
    for name, value in (
        ("partition", site.partition),
        ("account", site.account),
        ("qos", site.qos),
        ("constraint", site.constraint),
        ("mem", site.memory),
        ("time", site.time),
    ):
        if value is not None:
            options.append(f"--{name}={_quoted(value)}")
    return [*options, *site.extra]


def _variables(site: Site, folder: RunFolder, environment: dict[str, str] | None) -> dict[str, str]:
    """What the runner must know on the node, whoever submits the script and from where."""
    ours = importable(dict(os.environ) if environment is None else environment)
    variables: dict[str, str] = {key: ours[key] for key in ("PYTHONPATH", "PYTHONSAFEPATH") if key in ours}
    variables["OELM_HOME"] = str(home())
    variables["OELM_JOB_OF"] = folder.id
    variables["OELM_MAX_REQUEUES"] = str(site.max_requeues)
    return variables


def _quoted(text: str) -> str:
    """sbatch reads quotes in its option lines, but knows nothing of a shell."""
    return f'"{text}"' if any(letter.isspace() or letter in "#'" for letter in text) else text
