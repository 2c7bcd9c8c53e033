"""Signs that there are cards, other than the driver's own word: nobody is to train on a processor by mistake."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_SLURM_SAYS = {
    **dict.fromkeys(("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"), re.compile(r"\S")),  # numbers of cards: 0 is the first one
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS"), re.compile(r"[1-9]\d*$")),  # counts
    **dict.fromkeys(("SLURM_JOB_GRES", "SLURM_GRES"), re.compile(r"\bgpu\b")),
}
_NUMBERED = re.compile(r"nvidia\d+$")


def sign_of_cards(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> str | None:
    """What says that this machine or job has cards, in a few words; None where nothing does."""
    return granted_by_slurm(environment) or _of_the_kernel(root)


def granted_by_slurm(environment: Mapping[str, str] | None = None) -> str | None:
    """The variable by which Slurm says that a job was given cards. In a job /dev proves nothing: it shows all cards."""
    known = os.environ if environment is None else environment
    return next(
        (f"{name}={known[name]}" for name, says in _SLURM_SAYS.items() if says.search(known.get(name, ""))), None
    )


def _of_the_kernel(root: Path) -> str | None:
    bus = root / "proc/driver/nvidia/gpus"
    for folder, names in ((root / "dev", _NUMBERED), (bus, re.compile(r"."))):
        try:
            found = sorted(name for name in os.listdir(folder) if names.match(name))
        except OSError:
            continue
        if found:
            return f"{folder / found[0]} is there"
    return None
