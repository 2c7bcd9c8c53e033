"""What `oelm doctor` finds of a Slurm cluster, and the site file it proposes from that."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from oelm_core.launch.slurm.command import call


class Partition(NamedTuple):
    """One line of sinfo: nodes of one kind in one partition."""

    name: str
    default: bool
    up: bool
    limit: str
    nodes: int
    gres: str
    cpus: int
    memory: int
    """Megabytes of one node."""


class Discovery(NamedTuple):
    """What was found, in sentences, and a slurm.yaml to start from ("" where there is no Slurm)."""

    proposal: str
    findings: list[str]
    partitions: list[Partition]
    problem: str | None = None
    """Why nothing could be found, when Slurm is here but does not answer."""


def discover() -> Discovery:
    """Asks sinfo; never raises."""
    if not (shutil.which("sbatch") and shutil.which("sinfo")):
        return Discovery("", ["no Slurm here (only needed for --launcher slurm)"], [])
    answer = call("sinfo", "-h", "-o", "%P|%a|%l|%D|%G|%c|%m", patience=15)
    if not answer.ok:
        return Discovery("", [], [], answer.error or "sinfo failed")
    partitions = parse_sinfo(answer.out)
    findings = [_sentence(one) for one in partitions]
    accounting = shutil.which("sacct") and call("sacct", "-n", "-X", "-j", "1", patience=15).ok
    findings.append(
        "sacct answers" if accounting else "no sacct: how a job ended is known for a few minutes, unless seen"
    )
    return Discovery(propose(partitions), findings, partitions)


def parse_sinfo(text: str) -> list[Partition]:
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 7:
            continue
        name, up, limit, nodes, gres, cpus, memory = parts
        found.append(
            Partition(
                name.rstrip("*"),
                name.endswith("*"),
                up == "up",
                limit,
                _whole(nodes),
                "" if gres in ("(null)", "") else gres,
                _whole(cpus),
                _whole(memory),
            )
        )
    return found


def propose(partitions: list[Partition]) -> str:
    """A slurm.yaml for the likeliest partition: one that is up and has cards, the default one first."""
    usable = [one for one in partitions if one.up] or partitions
    if not usable:
        return ""
    best = max(usable, key=lambda one: ("gpu" in one.gres, one.default, one.nodes))
    kind, cards = card_kind(best.gres)
    lines = [
        "# Settings for `oelm run --launcher slurm`; for one command: --slurm time=2:00:00; for a preset: slurm: {...}",
        f"partition: {best.name}",
        f"gres: {kind or 'none'}{'' if kind else '  # no cards in this partition'}",
        f"cpus: {max(1, best.cpus // max(1, cards))}  # cores for each card: a node has {best.cpus}",
    ]
    if best.memory > 1:
        lines.append(f"memory: {int(best.memory / max(1, cards) * 0.9)}M  # a card's share of a node, with room left")
    if best.limit not in ("infinite", "n/a"):
        lines.append(f"time: {best.limit}  # the partition's limit; a run that needs longer saves and queues again")
    else:
        lines.append("time: 1-00:00:00  # at the limit a run saves and queues again")
    lines += [
        "# account: ...",
        "# qos: ...",
        "# max_jobs: 2        # how many of your jobs may run at once; the others wait in chains",
        "# setup:             # shell lines before the run",
        "#   - module load cuda",
        "# extra:             # further options of sbatch",
        "#   - --exclude=node3",
    ]
    return "\n".join(lines) + "\n"


def card_kind(gres: str) -> tuple[str | None, int]:
    """The kind and number of cards of a node.

    >>> card_kind("gpu:a100:4(S:0-1),nvme:1")
    ('gpu:a100', 4)
    """
    for one in gres.split(","):
        parts = one.partition("(")[0].split(":")
        if parts[0] == "gpu":
            count = int(parts[-1]) if parts[-1].isdigit() else 1
            return ":".join(part for part in parts if not part.isdigit()), count
    return None, 0


def _sentence(one: Partition) -> str:
    state = "" if one.up else " (down)"
    cards = one.gres or "no cards"
    nodes = f"{one.nodes} node{'s' if one.nodes != 1 else ''}"
    return f"partition {one.name}{state}: {nodes} with {cards}, {one.cpus} cores, time limit {one.limit}"


def _whole(text: str) -> int:
    digits = text.rstrip("+")
    return int(digits) if digits.isdigit() else 0
