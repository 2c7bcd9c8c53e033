"""gpu-proof.json: what `oelm doctor --gpu` found on a machine's cards, and whether it still holds. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from oelm_core.formatting import day
from oelm_core.home import home
from oelm_core.proof.checks import ALONE, TOGETHER
from oelm_core.runs.folder import read_record, write_record

FILE = "gpu-proof.json"


class CheckResult(Struct, frozen=True):
    """What one check measured, what it should have been, and what to do where it was not."""

    name: str
    ok: bool | None
    """None: it has no meaning on this device, and proves nothing."""
    measured: str
    bound: str = ""
    fix: str = ""
    figures: dict[str, float] = {}
    """Numbers for later use, such as the bandwidth between cards."""
    seconds: float = 0.0


class CardIdentity(Struct, frozen=True):
    """What a proof is about: another driver or torch on the same card needs another proof."""

    machine: str
    uuid: str
    driver: str | None = None
    torch: str | None = None


class CardProof(Struct):
    """One card."""

    card: CardIdentity
    name: str = ""
    """NVIDIA A100-SXM4-80GB."""
    when: float = 0.0
    checks: dict[str, CheckResult] = {}

    @property
    def is_whole(self) -> bool:
        """Whether every check of a card was made and none failed."""
        return _all_hold(self.checks, ALONE)


class CardsProof(Struct):
    """Several cards of one machine together."""

    machine: str
    uuids: list[str]
    name: str = ""
    driver: str | None = None
    torch: str | None = None
    when: float = 0.0
    checks: dict[str, CheckResult] = {}

    @property
    def is_whole(self) -> bool:
        return _all_hold(self.checks, TOGETHER)


class ProofFile(Struct):
    """gpu-proof.json."""

    schema: int = 1
    cards: list[CardProof] = field(default_factory=list)
    together: list[CardsProof] = field(default_factory=list)

    def of_card(self, card: CardIdentity) -> CardProof | None:
        return next((one for one in self.cards if one.card == card), None)

    def of_cards(self, cards: Sequence[CardIdentity]) -> CardsProof | None:
        """In whatever order they are named."""
        uuids = {card.uuid for card in cards}
        first = cards[0]
        same = (first.machine, first.driver, first.torch)
        found = (one for one in self.together if (one.machine, one.driver, one.torch) == same)
        return next((one for one in found if set(one.uuids) == uuids), None)


def _all_hold(found: Mapping[str, CheckResult], wanted: Iterable[str]) -> bool:
    return all(name in found and found[name].ok is True for name in wanted)


def proof_path() -> Path:
    return home() / FILE


def read_proofs(path: Path | None = None) -> ProofFile:
    """Empty where there is no readable one."""
    return read_record(path or proof_path(), ProofFile) or ProofFile()


def keep_card(card: CardIdentity, name: str, found: Iterable[CheckResult]) -> CardProof:
    """Adds what was found to what is known of this card; checks made earlier with this driver and torch stay."""
    proofs = read_proofs()
    proof = proofs.of_card(card)
    if proof is None:
        proof = CardProof(card)
        proofs.cards = [one for one in proofs.cards if one.card != card]
        proofs.cards.append(proof)
    proof.name, proof.when = name, time.time()
    proof.checks |= {one.name: one for one in found}
    _write(proofs)
    return proof


def keep_cards(cards: Sequence[CardIdentity], name: str, found: Iterable[CheckResult]) -> CardsProof:
    proofs = read_proofs()
    proof = proofs.of_cards(cards)
    if proof is None:
        first = cards[0]
        proof = CardsProof(first.machine, [card.uuid for card in cards], driver=first.driver, torch=first.torch)
        proofs.together.append(proof)
    proof.name, proof.when = name, time.time()
    proof.checks |= {one.name: one for one in found}
    _write(proofs)
    return proof


def _write(proofs: ProofFile) -> None:
    path = proof_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(path, replace(proofs))


# -- what a run's record says of it ------------------------------------------------------------------------------------


def proven(machine: str, uuids: Sequence[str], driver: str | None, torch: str | None) -> float | None:
    """When all these cards, as they are driven now, were proven; None where one of them was not.

    For several cards their being together must be proven too: one card may be right and the way between two not.
    """
    if not uuids:
        return None
    cards = [CardIdentity(machine, uuid, driver, torch) for uuid in uuids]
    proofs = read_proofs()
    found: list[CardProof | CardsProof | None] = [proofs.of_card(card) for card in cards]
    if len(cards) > 1:
        found.append(proofs.of_cards(cards))
    dates = [one.when for one in found if one is not None and one.is_whole]
    return min(dates) if len(dates) == len(found) else None


def sentence(card: str, driver: str | None, torch: str | None, when: float | None) -> str:
    """For reports.

    >>> sentence("A100", "550.54", "2.13.0+cu126", None)
    'machine not proven (oelm doctor --gpu): A100, driver 550.54, torch 2.13.0+cu126'
    """
    what = f"{card}, driver {driver or 'unknown'}, torch {torch or 'unknown'}"
    return (
        f"machine not proven (oelm doctor --gpu): {what}" if when is None else f"machine proven on {day(when)}: {what}"
    )
