"""Why Slurm refused a submission: its own words, and what to change."""

from __future__ import annotations

import re

from oelm_core.config.slurm import Site
from oelm_core.launch.slurm.discovery import discover

_HINTS: tuple[tuple[str, str], ...] = (
    (r"invalid partition", "set partition in slurm.yaml or with --slurm partition=..."),
    (r"generic resource|invalid gres|\bgres\b", "set gres in slurm.yaml or with --slurm gres=..., or use --device cpu"),
    (r"memory specification", "lower memory in slurm.yaml or with --slurm memory=..."),
    (
        r"node configuration is not available|more processors than permitted|node count specification|cpu count",
        "no node has all that was asked for: change gres, cpus, memory, nodes or --per-run, or use --device cpu",
    ),
    (r"invalid account|account/partition", "set account in slurm.yaml or with --slurm account=..."),
    (r"invalid qos", "set qos in slurm.yaml or with --slurm qos=..."),
    (
        r"submit ?job|maxsubmit|policy|joblimit|job limit|too many",
        "your quota of jobs is reached: wait for some to end",
    ),
    (r"time limit|--time", "set time in slurm.yaml or with --slurm time=..."),
    (r"invalid feature|constraint", "set constraint in slurm.yaml or with --slurm constraint=..."),
    (r"unrecognized option|invalid option|option requires", "correct extra in slurm.yaml"),
    (r"dependency", "the run it is to wait for is no longer known to Slurm: leave --after out"),
    (r"unable to contact|connection refused|connect failure|timed out|no answer", "try again when slurmctld is up"),
)


def explain(words: str, site: Site) -> str:
    """One sentence: Slurm's words, then what to change, with the names this cluster has."""
    hint = next((text for pattern, text in _HINTS if re.search(pattern, words, re.IGNORECASE)), "")
    said = f"Slurm refused the job: {words or 'sbatch failed without a word'}"
    if not hint:
        return f"{said}. The script is made from slurm.yaml; change what it complains about."
    return f"{said}; {hint}{_names_here(hint, site)}."


def _names_here(hint: str, site: Site) -> str:
    if not hint.startswith(("set partition", "set gres", "no node")):
        return ""
    partitions = discover().partitions
    if hint.startswith("set partition"):
        names = list(dict.fromkeys(one.name for one in partitions))
        return f" (here: {', '.join(names)})" if names else ""
    kinds = list(dict.fromkeys(one.gres for one in partitions if one.gres and site.partition in (None, one.name)))
    return f" (cards of a node here: {', '.join(kinds) or 'none'})" if partitions else ""
