"""Which build of torch a driver can run and a card's kernels are in, and the line that installs it.

The table is from NVIDIA's and PyTorch's own pages; docs/sources.md names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

OLDEST = (2, 6)
"""The oldest torch that transformers 5 takes; pyproject.toml says the same."""

Capability = tuple[int, int]
"""A card's generation as CUDA counts it: (8, 6) is an A5000, (7, 0) a V100."""


class Build(NamedTuple):
    """One row of wheels for Linux on x86-64."""

    suffix: str
    """As in torch==2.13.0+cu126, and in the name of the index that has it."""
    driver: int
    """The oldest branch of drivers that runs it."""
    kernels: tuple[Capability, ...]
    """Generations it has kernels for. One runs later cards of the same major number too."""
    last: str | None = None
    """The last torch that came in this build; None while it is still made."""


# The best first. CUDA 13 dropped what is older than Turing; CUDA 12 runs on R525 and newer, CUDA 11 on R450.
BUILDS = (
    Build("cu130", 580, ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))),
    Build("cu126", 525, ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0))),
    Build("cu128", 525, ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)), last="2.11.0"),
    Build("cu118", 450, ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)), last="2.7.1"),
)
_DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest branch of drivers for every build of a major version of CUDA."""


class TorchFacts(NamedTuple):
    """What the installed torch says of itself, asked in another process."""

    version: str
    cuda: str | None
    """CUDA it is built for: 12.6; None for a build without."""
    kernels: tuple[str, ...] = ()
    """sm_80, compute_90: what it has kernels for."""
    sees: int = 0
    """Cards that it can use."""


class CardFacts(NamedTuple):
    label: str
    name: str
    capability: Capability | None


class Verdict(NamedTuple):
    """How torch, driver and cards fit together; `fix` is empty where they do."""

    found: str
    fix: str = ""


def judge(torch: TorchFacts, driver: str | None, cards: Sequence[CardFacts]) -> Verdict:
    """Compares the three, the cards as the driver lists them."""
    if _numbers(torch.version) < OLDEST:
        return Verdict(f"torch {torch.version} is too old: transformers needs 2.6", install_line(torch, driver, cards))
    if not cards:
        return Verdict("no card to compare with")
    fix = install_line(torch, driver, cards)
    names = ", ".join(dict.fromkeys(card.name for card in cards))
    if torch.cuda is None:
        return Verdict(f"torch {torch.version} has no CUDA, but this machine has {names}", fix)
    needs, branch = _driver_for(torch.cuda), _branch(driver)
    if needs and branch and branch < needs:
        return Verdict(f"driver {driver} is older than R{needs}, which torch's CUDA {torch.cuda} needs", fix)
    left_out = [card for card in cards if card.capability and not has_kernels(torch.kernels, card.capability)]
    if left_out and torch.kernels:
        which = ", ".join(f"GPU {card.label} ({card.name}, {_sm(card.capability)})" for card in left_out)
        return Verdict(f"torch {torch.version} has no kernels for {which}", fix)
    if not torch.sees:
        return Verdict(
            f"driver {driver} and torch's CUDA {torch.cuda} fit {names}, yet torch sees no card",
            "look at CUDA_VISIBLE_DEVICES, at the rights of /dev/nvidia*, and whether nvidia-smi works here",
        )
    return Verdict(f"driver {driver} runs torch's CUDA {torch.cuda}, which has kernels for {names}")


def fitting_build(driver: str | None, cards: Sequence[CardFacts]) -> Build | None:
    """The best build that the driver runs and that has kernels for every card; None where none has."""
    known = [card.capability for card in cards if card.capability]
    branch = _branch(driver)
    for build in BUILDS:
        kernels = [_sm(one) for one in build.kernels]
        if (branch is None or branch >= build.driver) and all(has_kernels(kernels, one) for one in known):
            return build
    return None


def install_line(torch: TorchFacts, driver: str | None, cards: Sequence[CardFacts]) -> str:
    """What to paste into a shell, and what its variable is: which mirror of PyTorch's wheels is near, a site knows."""
    if not cards:
        return 'pip install "torch>=2.6"'
    build = fitting_build(driver, cards)
    if build is None:
        branch = _branch(driver)
        if branch is not None and branch < BUILDS[-1].driver:
            return f"driver {driver} runs no torch that this lab takes: ask for R{_DRIVERS[12]} or newer"
        oldest = min(card.capability for card in cards if card.capability)
        return f"no build fits all cards at once: leave some out with --device; the oldest is {_sm(oldest)}"
    version = build.last
    if version is None:
        version = torch.version.partition("+")[0] if _numbers(torch.version) >= OLDEST else None
    name = f'"torch=={version}+{build.suffix}"' if version else '"torch>=2.6"'
    where = f'on its "Get started" page, what is before /{build.suffix}'
    return (
        f'pip install {name} --index-url "$PYTORCH_INDEX/{build.suffix}"\n'
        f"PYTORCH_INDEX is the address of PyTorch's wheel index: {where}."
    )


def has_kernels(kernels: Sequence[str], capability: Capability) -> bool:
    """Whether code for these runs on a card: for the same major number and no newer, or PTX for anything older."""
    for one in kernels:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", one)
        if found is None:
            continue
        of = int(found[2]), int(found[3])
        if found[4] == "a":  # for this very architecture alone
            fits = of == capability
        else:
            fits = of <= capability if found[1] == "compute" else of[0] == capability[0] and of <= capability
        if fits:
            return True
    return False


def _driver_for(cuda: str) -> int | None:
    return _DRIVERS.get(_numbers(cuda)[0])


def _branch(driver: str | None) -> int | None:
    """535.183.01 is of branch R535."""
    return _numbers(driver)[0] if driver and driver[0].isdigit() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2])


def _sm(capability: Capability | None) -> str:
    return "sm_" + "".join(map(str, capability or ()))
