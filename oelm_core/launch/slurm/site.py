"""The site: `$OELM_HOME/slurm.yaml`, what doctor finds of a cluster and proposes for it, and why sbatch refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from oelm_core.config.plain_yaml import read_setting, read_yaml, read_yaml_file
from oelm_core.config.slurm import Site
from oelm_core.config.validation import validated
from oelm_core.errors import BadInput, Refused
from oelm_core.home import home
from oelm_core.launch.slurm.commands import call, is_unreachable


def site_file() -> Path:
    return home() / "slurm.yaml"


def load_site(preset: Mapping[str, Any] | None = None, overrides: Iterable[str] = ()) -> Site:
    """slurm.yaml, then the preset's `slurm:`, then `--slurm key=value`; the later wins. No file means defaults."""
    path = site_file()
    written = _read(path)
    validated(Site, written, str(path))
    with_preset = validated(Site, _changed(written, preset or {}), "the preset's slurm:")
    changes = parse_overrides(overrides)
    return validated(Site, _changed(with_preset.model_dump(), changes), "--slurm") if changes else with_preset


def _changed(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What is said later counts: also of the two ways to say how much memory."""
    both = ("memory", "memory_per_card")
    replaced = both if any(key in changes for key in both) else ()
    return {**{key: value for key, value in settings.items() if key not in replaced}, **changes}


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`["time=2:00:00"]` -> `{"time": "2:00:00"}`. One line given for `setup` or `extra` stands for a list of one."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise BadInput(f"--slurm {text}: write it as key=value, for example --slurm partition=gpu.")
        one_line = key in ("setup", "extra") and not raw.lstrip().startswith("[")
        found[key] = [raw] if one_line else read_setting(raw)
    return found


def _read(path: Path) -> dict[str, Any]:
    content = read_yaml_file(path, read_yaml) if path.exists() else None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadInput(f"{path}: expected keys such as partition and time, found {type(content).__name__}.")
    return content


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


def check_nodes(site: Site) -> None:
    """Refuses more nodes than the partition has: many a Slurm would let such a job wait for ever."""
    if site.nodes == 1:
        return
    partitions = discover().partitions
    named = (site.partition or "").split(",") if site.partition else [one.name for one in partitions if one.default]
    there = [sum(one.nodes for one in partitions if one.name == name) for name in named]
    if any(there) and site.nodes > max(there):
        nodes = f"{max(there)} node{'s' if max(there) != 1 else ''}"
        raise Refused(f"--nodes {site.nodes} is more than the {nodes} of partition {', '.join(named)}; write fewer.")


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
        share = int(best.memory / max(1, cards) * 0.9)
        lines.append(f"memory_per_card: {share}M  # a card's share of a node, with room left")
    if best.limit not in ("infinite", "n/a"):
        lines.append(f"time: {best.limit}  # the partition's limit; a run that needs longer saves and queues again")
    else:
        lines.append("time: 1-00:00:00  # at the limit a run saves and queues again")
    lines += [
        "# cards_by: gpus-per-node  # where the site wants --gpus-per-node or --gpus instead of --gres",
        "# account: ...",
        "# qos: ...",
        "# max_jobs: 2        # how many of your jobs may run at once; the others wait",
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


class _Hint(NamedTuple):
    """What to change after a refusal whose words match."""

    pattern: str
    text: str
    lists: Literal["", "partitions", "cards"] = ""
    """Which names of this cluster help to choose."""


_HINTS = (
    _Hint(r"invalid partition", "set partition in slurm.yaml or with --slurm partition=...", "partitions"),
    _Hint(
        r"generic resource|invalid gres|\bgres\b",
        "set gres in slurm.yaml or with --slurm gres=..., or use --device cpu",
        "cards",
    ),
    _Hint(r"memory specification", "lower memory or memory_per_card in slurm.yaml or with --slurm memory=..."),
    _Hint(
        r"node configuration is not available|more processors than permitted|node count specification|cpu count",
        "no node has all that was asked for: change gres, cpus, memory, nodes or --per-run, or use --device cpu",
        "cards",
    ),
    _Hint(r"invalid account|account/partition", "set account in slurm.yaml or with --slurm account=..."),
    _Hint(r"invalid qos", "set qos in slurm.yaml or with --slurm qos=..."),
    _Hint(
        r"submit ?job|maxsubmit|policy|joblimit|job limit|too many",
        "your quota of jobs is reached: wait for some to end",
    ),
    _Hint(r"time limit|--time", "set time in slurm.yaml or with --slurm time=..."),
    _Hint(r"invalid feature|constraint", "set constraint in slurm.yaml or with --slurm constraint=..."),
    _Hint(r"unrecognized option|invalid option|option requires", "correct extra in slurm.yaml"),
    _Hint(r"dependency", "the run it is to wait for is no longer known to Slurm: leave --after out"),
)


def explain(words: str, site: Site) -> str:
    """One sentence: Slurm's words, then what to change, with the names this cluster has."""
    if is_unreachable(words):
        return (
            f"Slurm cannot be reached: {words}. Try again when its controller (slurmctld) answers; where this machine"
            " has none, log in to one that has, or set SLURM_CONF."
        )
    hint = next((hint for hint in _HINTS if re.search(hint.pattern, words, re.IGNORECASE)), None)
    refusal = f"Slurm refused the job: {words or 'sbatch failed without a word'}"
    if hint is None:
        return f"{refusal}. The script is made from slurm.yaml; change what it complains about."
    return f"{refusal}; {hint.text}{_names_here(hint, site)}."


def _names_here(hint: _Hint, site: Site) -> str:
    if not hint.lists:
        return ""
    partitions = discover().partitions
    if hint.lists == "partitions":
        names = list(dict.fromkeys(one.name for one in partitions))
        return f" (here: {', '.join(names)})" if names else ""
    kinds = list(dict.fromkeys(one.gres for one in partitions if one.gres and site.partition in (None, one.name)))
    return f" (cards of a node here: {', '.join(kinds) or 'none'})" if partitions else ""
