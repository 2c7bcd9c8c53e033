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
_OF_DRIVER = ("nvidiactl", "nvidia-uvm")
_NVIDIA, _DISPLAY = 0x10DE, 0x03
_NUMBERED = re.compile(r"nvidia\d+$")


def sign_of_cards(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> str | None:
    """What says that this machine or job has cards, in a few words; None where nothing does."""
    return granted_by_slurm(environment) or _of_the_kernel(root) or _of_the_bus(root, environment)


def granted_by_slurm(environment: Mapping[str, str] | None = None) -> str | None:
    """The variable by which Slurm says that a job was given cards. In a job /dev proves nothing: it shows all cards."""
    known = os.environ if environment is None else environment
    return next(
        (f"{name}={known[name]}" for name, says in _SLURM_SAYS.items() if says.search(known.get(name, ""))), None
    )


def _of_the_bus(root: Path, environment: Mapping[str, str] | None) -> str | None:
    """A card on the PCI bus and its driver loaded, though the card has no device file.

    Neither is enough alone: a card may be another driver's, which passes it on to a virtual machine, and a container
    that was to have no card is given the files of the driver all the same.
    """
    known = os.environ if environment is None else environment
    driver = next((name for name in _OF_DRIVER if (root / "dev" / name).exists()), None)
    if driver is None or known.get("NVIDIA_VISIBLE_DEVICES") in ("none", "void"):
        return None
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor, kind = (int((device / name).read_text(), 16) for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        bound = device / "driver"
        if vendor == _NVIDIA and kind >> 16 == _DISPLAY and (not bound.exists() or bound.resolve().name == "nvidia"):
            return f"{root / 'dev' / driver} and PCI device {device.name} are there"
    return None


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
