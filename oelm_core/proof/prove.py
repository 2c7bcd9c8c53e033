"""`oelm doctor --gpu` from beginning to end: which cards, their leases, the checks, gpu-proof.json. No torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from oelm_core import scaling
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.devices.card import Card
from oelm_core.devices.nvml import driver_version
from oelm_core.errors import BadInput, NotFound, Refused
from oelm_core.launch import device_request, lease, queue
from oelm_core.proof import slurm_job
from oelm_core.proof.checks import ALONE, CHECKS, TOGETHER, chosen
from oelm_core.proof.conduct import make_checks
from oelm_core.proof.record import CardIdentity, CheckResult, keep_card, keep_cards, proof_path, read_proofs
from oelm_core.provenance import package_versions, processor_name
from oelm_core.runs import process

CPU = "cpu"


class Subject(NamedTuple):
    """A card to prove."""

    identity: CardIdentity
    name: str
    label: str


class Made(NamedTuple):
    """A result, and of what."""

    where: str
    result: CheckResult


def prove(
    cards: str | None, only: Sequence[str], kind: str = "cuda", begins: Callable[[], None] = lambda: None
) -> Iterator[Made]:
    """Every check, each as soon as it is made and written down.

    cards: as `--device` takes them, all that this process may use when it is None. kind cpu: the same checks on this
    machine's processor, which proves the command and not a card. `begins` is called once the cards are there and free.
    """
    alone, together = chosen(only, ALONE), chosen(only, TOGETHER)
    subjects = _cpu() if kind == CPU else find_cards(cards)
    several = kind == CPU or len(subjects) > 1
    if together and not alone and not several:
        raise BadInput(f"--check {together[0]}: it is about several cards; name them, such as --cards 0,1.")
    usable = True
    by_slurm = slurm_job.in_job()  # it keeps others away
    with held(subjects if kind == "cuda" and not by_slurm else []):
        begins()
        for one in subjects:
            for result in make_checks(alone, kind, [one.identity.uuid]):
                keep_card(one.identity, one.name, [result])
                yield Made(one.label, result)
                if result.name == "build" and result.ok is False:
                    usable = False
                    break  # nothing can run on the card: the other checks would all say the same
        if several and together and usable:
            yield from _together(subjects, together, kind)
    if slurm_job.in_job() and chosen(only, ("signal",)):
        result = slurm_job.hear_signal()
        for one in subjects:
            keep_card(one.identity, one.name, [result])
        yield Made("Slurm", result)


def _together(subjects: list[Subject], names: list[str], kind: str) -> Iterator[Made]:
    identities = [one.identity for one in subjects]
    where = " and ".join(one.label for one in subjects)
    name = " and ".join(dict.fromkeys(one.name for one in subjects))
    uuids = [one.uuid for one in identities]
    for result in make_checks([one for one in names if CHECKS[one].function], kind, uuids):
        keep_cards(identities, name, [result])
        yield Made(where, result)
    if "speed-up" in names:
        proof = read_proofs().of_cards(identities)
        result = speed_up(scaling.link_of(proof) if proof else None)
        if kind == CPU:
            result = replace(result, measured=f"of tiny sizes, to try the command: {result.measured}")
        keep_cards(identities, name, [result])
        yield Made(where, result)


def find_cards(names: str | None) -> list[Subject]:
    """The cards that were named, else all that this process may use. NotFound where there is none."""
    cards = device_request.probe() or []
    if names is None:
        usable = device_request.visible([card for card in cards if card.uuid and not card.is_mig_parent])
    else:
        asked = device_request.parse_device(names)
        if not asked:
            raise BadInput(f"--cards {names}: write the numbers of cards such as 0,1.")
        usable = [device_request.find_card(name, cards) for name in asked]
    if not usable:
        raise NotFound("there is no card here to prove; `oelm doctor` says what was found.")
    driver, torch = driver_version(), package_versions().get("torch")
    return [
        Subject(CardIdentity(process.host(), str(card.uuid), driver, torch), card.name or "a card", f"GPU {card.label}")
        for card in usable
        if _is_free(card)
    ]


def _is_free(card: Card) -> bool:
    """True, or Refused: what others do on a card would be timed with ours, and might run out of memory by it."""
    holder = lease.holder(str(card.uuid))
    who = f"GPU {card.label} is used by run {holder.run}" if holder else device_request.somebody_on(card)
    if who:
        raise Refused(f"{who}; wait for it, or name other cards with --cards.")
    return True


@contextlib.contextmanager
def held(subjects: Sequence[Subject]) -> Iterator[None]:
    """The leases of the cards, so that no waiting run starts on them meanwhile."""
    leases: list[lease.Lease] = []
    try:
        for one in subjects:
            taken = lease.take(one.identity.uuid, "oelm doctor --gpu")
            if taken is None:
                raise Refused(f"{one.label} was just taken by a run; wait for it, or name other cards with --cards.")
            leases.append(taken)
        yield
    finally:
        for taken in leases:
            taken.release()
        if leases:
            queue.announce()


def _cpu() -> list[Subject]:
    identity = CardIdentity(process.host(), CPU, None, package_versions().get("torch"))
    return [Subject(identity, processor_name(), "CPU")]


def speed_up(link: scaling.Link | None) -> CheckResult:
    """What one run would gain on these cards, for the recipes whose steps were timed on one of them."""
    bound = "both known"
    if link is None:
        return CheckResult(
            "speed-up", False, "the way between the cards is not measured", bound, CHECKS["speed-up"].fix
        )
    catalogue, proofs, words, figures = load_folders([SHIPPED]), read_proofs(), [], {}
    for title, preset in scaling.RECIPES.values():
        experiment = catalogue.experiment(preset)
        step, sent = scaling.step_on_one_card(experiment, [], proofs, link.card), scaling.traffic_of(experiment)
        if step is None or sent is None:
            missing = f"no step of {title} was timed on one {link.card}"
            return CheckResult("speed-up", False, missing, bound, CHECKS["speed-up"].fix)
        found = scaling.predict(step, sent, link)
        figures[preset] = found.speed_up
        words.append(f"{preset} {found.speed_up:.1f}x")
    return CheckResult("speed-up", True, f"{link.ranks} cards: {', '.join(words)}", bound, figures=figures)


def where_kept() -> str:
    return str(proof_path())
