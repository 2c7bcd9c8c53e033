"""Whether driver, wheel and card fit together, and whether torch's card is the one that was named."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from oelm_core.devices import torch_builds
from oelm_core.devices.card import Card
from oelm_core.devices.nvml import NoDriver, read_cards
from oelm_core.devices.torch_builds import TorchFacts
from oelm_core.doctor import driver_and_cards
from oelm_core.proof.finding import NOT_ON_A_CPU, Finding


def build(device: torch.device) -> Finding:
    """The same verdict as plain `oelm doctor`, and one product that really runs."""
    said = torch_facts()
    driver = driver_and_cards()
    if not driver.cards and device.type != "cuda":
        return Finding(None, f"{NOT_ON_A_CPU}: torch {said.version}", "a driver that runs this wheel")
    verdict = torch_builds.judge(said, driver.driver, [card for card in driver.cards if _is_asked_for(card.label)])
    if not verdict.fix:
        ones = torch.ones(64, 64, device=device)
        if float((ones @ ones).sum()) != 64.0**3:
            return Finding(False, "a product of ones comes out wrong", "64 x 64 x 64")
    return Finding(
        not verdict.fix, verdict.found, "a driver that runs this wheel, and kernels for the card", verdict.fix
    )


def _is_asked_for(number: str) -> bool:
    """Whether this process was given the card with this number; another that torch cannot use is no matter here."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    try:
        given = {str(card.index) for card in read_cards() if card.uuid in asked}
    except NoDriver:
        given = set()
    return not given or number in given


def torch_facts() -> TorchFacts:
    """What the torch of this process says of itself."""
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
    kernels = tuple(torch.cuda.get_arch_list() or flags.split())
    return TorchFacts(str(torch.__version__), torch.version.cuda, kernels, torch.cuda.device_count())


class Seen(NamedTuple):
    """A card as one of the two sees it."""

    uuid: str
    name: str
    memory: int


def same_card(device: torch.device) -> Finding:
    """Asked for by its UUID, as every run asks: torch must show that card and no other."""
    if device.type != "cuda":
        return Finding(None, NOT_ON_A_CPU, "one card, by UUID, name and memory")
    asked = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return compare_cards(asked, by_torch(), by_nvml(asked))


def by_torch() -> list[Seen]:
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [Seen(str(getattr(one, "uuid", "")), one.name, int(one.total_memory)) for one in found]


def by_nvml(uuid: str) -> Card | None:
    try:
        return next((card for card in read_cards() if card.uuid == uuid), None)
    except NoDriver:
        return None


MEMORY_AGREES = 0.1
"""The driver keeps a part of the memory that NVML counts."""


def compare_cards(asked: str, seen: list[Seen], card: Card | None) -> Finding:
    bound = "one card, by UUID, name and memory"
    if card is None:
        return Finding(False, f"NVML knows no card {asked}", bound)
    if len(seen) != 1:
        return Finding(False, f"torch sees {len(seen)} cards where one was named", bound)
    one = seen[0]
    plain = asked.removeprefix("GPU-").removeprefix("MIG-")
    if one.uuid and asked.startswith("GPU-") and one.uuid.removeprefix("GPU-") != plain:
        return Finding(False, f"asked for {asked}, torch shows {one.uuid}", bound)
    if card.name and card.mig is None and card.name != one.name:
        return Finding(False, f"NVML says {card.name}, torch {one.name}", bound)
    total = card.memory_total
    if total and abs(one.memory - total) > MEMORY_AGREES * total:
        return Finding(False, f"NVML says {total / 2**30:.1f} GiB, torch {one.memory / 2**30:.1f} GiB", bound)
    return Finding(True, f"{one.name}, {asked}", bound)
