"""The job script of a run: what it asks of Slurm, what the runner must know on the node, and the runner itself."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from oelm_core.config.slurm import Site
from oelm_core.errors import refusing
from oelm_core.home import home
from oelm_core.launch.slurm import submission
from oelm_core.launch.slurm.job import CARDS_ASKED, NODE_PYTHON
from oelm_core.launch.spawn import importable
from oelm_core.runs.folder import RunFolder


def write_script(folder: RunFolder, site: Site, device: str, per_run: int, cwd: Path) -> None:
    """slurm/job.sh of a run."""
    text = render_script(site, folder, device=device, per_run=per_run, cwd=cwd)
    path = submission.script_path(folder)
    with refusing(f"cannot write {path}"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


def render_script(
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
    interpreter = shlex.split(site.python) if site.python else [python]
    command = [*interpreter, "-m", "oelm_core.launch.runner", f"--run-folder={folder.path}", f"--per-run={per_run}"]
    cards = cards_of(site, device, per_run)
    output = str(folder.path / "slurm" / "job.log")
    options = sbatch_options(site, name=folder.id, output=output, cards=cards, per_run=per_run, cwd=cwd)
    lines = [
        "#!/bin/bash",
        f"# Run {folder.id} of OELM Lab. Edit it and submit it again with `oelm resume {folder.id}`,",
        "# or by hand with sbatch: it continues from the newest checkpoint.",
        *(f"#SBATCH {option}" for option in options),
        "",
        *(f"export {key}={shlex.quote(value)}" for key, value in _variables(site, folder, cards, environment).items()),
        *([""] if site.setup else []),
        *site.setup,
        "",
        "# exec: the runner takes this shell's place, so Slurm's signals reach it",
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def cards_of(site: Site, device: str, per_run: int) -> int:
    """Cards of one node; 0 for a run on processors."""
    return per_run if device != "cpu" and site.gres else 0


def sbatch_options(site: Site, *, name: str, output: str, cards: int, per_run: int, cwd: Path) -> list[str]:
    """`cards`: of one node; 0 for a run on processors."""
    options = [
        f"--job-name={name}",
        f"--chdir={_quoted(str(cwd))}",
        f"--output={_quoted(output.replace('%', '%%'))}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR2@{site.signal_seconds}",
        "--kill-on-invalid-dep=yes",
        f"--nodes={site.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus * per_run}",
    ]
    if cards:
        options.append(_cards_option(site, cards))
    if site.memory_per_card:
        options.append(_memory_option(site.memory_per_card, cards, per_run, by_card=site.cards_by != "gres"))
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


def _cards_option(site: Site, cards: int) -> str:
    """As the site has it; a type written as gpu:a100 is a100:2 for --gpus, which knows of nothing but cards."""
    if site.cards_by == "gres":
        return f"--gres={site.gres}:{cards}"
    kind = (site.gres or "").partition(":")[2]
    count = cards * site.nodes if site.cards_by == "gpus" else cards
    return f"--{site.cards_by}={kind + ':' if kind else ''}{count}"


def _memory_option(amount: str, cards: int, per_run: int, *, by_card: bool) -> str:
    """--mem-per-gpu where cards are asked for by --gpus; --mem counts for a node, so there it is multiplied out."""
    if cards and by_card:
        return f"--mem-per-gpu={amount}"
    digits = amount.rstrip("KMGT")
    return f"--mem={int(digits) * per_run}{amount[len(digits) :]}"


def _variables(site: Site, folder: RunFolder, cards: int, environment: dict[str, str] | None) -> dict[str, str]:
    """What the runner must know on the node, whoever submits the script and from where."""
    ours = importable(dict(os.environ) if environment is None else environment)
    variables: dict[str, str] = {key: ours[key] for key in ("PYTHONPATH", "PYTHONSAFEPATH") if key in ours}
    variables["OELM_HOME"] = str(home())
    variables["OELM_JOB_OF"] = folder.id
    variables["OELM_MAX_REQUEUES"] = str(site.max_requeues)
    variables[CARDS_ASKED] = str(cards)
    if site.python:
        variables[NODE_PYTHON] = site.python
    if site.interface:
        variables |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), site.interface)
    return variables


def _quoted(text: str) -> str:
    """sbatch reads quotes in its option lines, but knows nothing of a shell."""
    return f'"{text}"' if any(letter.isspace() or letter in "#'" for letter in text) else text
