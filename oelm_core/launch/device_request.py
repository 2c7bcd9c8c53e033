"""What a run may take: `--device auto|cpu|2,3` and `--per-run N` turned into devices of this very machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from oelm_core.devices.card import Card
from oelm_core.devices.presence import sign_of_cards
from oelm_core.errors import BadInput, NotFound
from oelm_core.launch import spawn, suspects
from oelm_core.launch.queue import Ticket
from oelm_core.runs import attempts
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Misfit, decode

CORES_AT_MOST = 8
"""Cores of a CPU run that does not say how many threads it wants."""
BUSY_BYTES = 1 << 30
"""Memory in use on a card from which we take it that somebody unseen works there."""


class DeviceRequest(NamedTuple):
    """Which devices, how many of them."""

    kind: str
    """cuda or cpu."""
    needs: int
    allowed: tuple[str, ...]
    """Names as used for leases: UUIDs of cards, core-N for cores."""


def parse_device(text: str) -> list[str] | None:
    """None for auto, [] for cpu, else the cards named: indices, MIG instances like 0:1, or UUIDs."""
    text = text.strip()
    if text.lower() in ("auto", "cpu"):
        return None if text.lower() == "auto" else []
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not (name.replace(":", "").isdigit() or name.startswith(("GPU-", "MIG-"))):
            raise BadInput(f"--device {text}: write auto, cpu, or the numbers of cards such as 2,3.")
    if not names or len(set(names)) != len(names):
        raise BadInput(f"--device {text}: write each card once, such as 2,3.")
    return names


def own_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def cores_wanted(threads: int | None, per_run: int) -> int:
    """Cores of a CPU run: its threads for every process, never more than there are."""
    there = len(own_cores())
    return min(there, threads * per_run if threads else max(per_run, min(there, CORES_AT_MOST)))


def resolve(
    asked: str, per_run: int, threads: int | None, cards: list[Card], sign: Callable[[], str | None] = sign_of_cards
) -> DeviceRequest:
    """The devices a request means on this machine; `cards` as probed (empty without an NVIDIA driver).

    Where a `sign` says that there are cards though none was found, auto is refused rather than trained on a processor.
    """
    names = parse_device(asked)
    if names is None and not cards and (there := sign()):
        raise NotFound(
            f"there are cards here ({there}) but the driver shows none: `oelm doctor` says why;"
            " use --device cpu to train without one."
        )
    if names == [] or (names is None and not cards):
        if per_run > len(own_cores()):
            raise BadInput(f"--per-run {per_run} wants more processes than the {len(own_cores())} cores here.")
        return DeviceRequest("cpu", cores_wanted(threads, per_run), tuple(f"core-{core}" for core in own_cores()))
    if names is None:
        chosen = visible([card for card in cards if card.uuid and not card.is_mig_parent])
        if not chosen:
            why = next((f": {card.error}" for card in cards if card.error), " that this process may see")
            raise NotFound(f"no card answers here{why}; use --device cpu to train without one.")
        if per_run > 1:
            chosen = [card for card in chosen if card.mig is None] or chosen
    else:
        chosen = [find_card(name, cards) for name in names]
        if len({card.uuid for card in chosen}) < len(chosen):  # by its number and by its UUID
            raise BadInput(f"--device {asked}: write each card once, such as 2,3.")
    if per_run > 1 and (parts := [card.label for card in chosen if card.mig is not None]):
        raise BadInput(
            f"--per-run {per_run}: MIG instances ({', '.join(parts)}) cannot train together, for a process sees one of"
            " them and NCCL none; leave out --per-run, or name whole cards."
        )
    if per_run > len(chosen):
        raise BadInput(f"--per-run {per_run} wants more cards than the {len(chosen)} of --device {asked}.")
    return DeviceRequest("cuda", per_run, tuple(str(card.uuid) for card in chosen))


def find_card(name: str, cards: list[Card]) -> Card:
    """The card with this number or UUID; NotFound says which there are, BadInput that it is in parts."""
    for card in cards:
        if name in (card.label, card.uuid):
            if not card.uuid:
                raise NotFound(f"GPU {name} does not answer: {card.error}.")
            if card.is_mig_parent:
                parts = [one.label for one in cards if one.mig is not None and one.index == card.index]
                raise BadInput(f"GPU {name} is divided; name one of its MIG instances: {', '.join(parts)}.")
            return card
    if not cards:
        raise NotFound(f"no GPU {name}: there is no NVIDIA driver here; use --device cpu.")
    raise NotFound(f"no GPU {name}; this machine has {', '.join(card.label for card in cards)}.")


def visible(cards: list[Card]) -> list[Card]:
    """Only the cards CUDA_VISIBLE_DEVICES leaves to us, where somebody set it."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return cards
    named = [name.strip() for name in setting.split(",") if name.strip()]
    return [
        card
        for card in cards
        if card.label in named
        or any(name.startswith(("GPU-", "MIG-")) and str(card.uuid).startswith(name) for name in named)
    ]


def with_devices(ticket: Ticket, cards: list[Card]) -> Ticket:
    """A ticket whose runner is not up yet, as this machine would fill it in: it must not lose its place meanwhile."""
    if ticket.allowed is not None:
        return ticket
    try:
        request = resolve(ticket.requested, ticket.cards, None, cards)
    except (BadInput, NotFound):
        return replace(ticket, allowed=())
    request = request._replace(needs=ticket.cards if request.kind == "cuda" else ticket.cores)
    if ticket.beside:
        request = request._replace(allowed=same_devices(request, RunFolder(ticket.beside)) or ())
    return replace(ticket, allowed=request.allowed, needs=request.needs)


def same_devices(request: DeviceRequest, partner: RunFolder) -> tuple[str, ...] | None:
    """The devices of a run to be run beside, as far as they are enough; None while it has none.

    Cards differ in age, heat and neighbours; the cores of one processor do not, and none of them is left idle.
    """
    if request.kind == "cpu":
        return request.allowed
    attempt = attempts.last(partner)
    if attempt is None or not attempt.leases:
        return None
    same = tuple(one for one in attempt.leases if one in request.allowed and suspects.suspicion(one) is None)
    return same if len(same) >= request.needs else request.allowed


def somebody_on(card: Card) -> str | None:
    """Who uses a card that has no lease, in words; None when nobody does."""
    from oelm_core.formatting import size  # not with the module: a runner that waits stays small

    for running in card.processes:
        held = f", {size(running.memory)}" if running.memory is not None else ""
        return f"GPU {card.label} used by {running.user or 'another user'}, pid {running.pid}{held}"
    if card.memory_used is not None and card.memory_used > BUSY_BYTES and card.mig is None:
        return f"GPU {card.label} used by somebody unseen, {size(card.memory_used)}"
    if card.memory_used is None and card.error:
        return f"GPU {card.label} does not answer: {card.error}"
    return None


def probe(patience: float = 20.0) -> list[Card] | None:
    """The cards of this machine as NVML sees them, asked in another process; None when the driver hangs.

    A driver that hangs then cannot hang the runner, and a hundred waiting runners do not each hold NVML in memory.
    """
    try:
        answer = spawn.output_of([sys.executable, "-m", "oelm_core.devices.probe"], patience)
        return None if answer is None else decode(answer, list[Card])
    except (OSError, Misfit):  # nothing whole was printed: it crashed
        return [Card(0, error="asking the NVIDIA driver crashed")] if sign_of_cards() else []
