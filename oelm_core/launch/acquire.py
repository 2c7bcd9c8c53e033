"""Waiting for devices: a runner stands in line, says what it waits for, and takes all it needs or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from oelm_core.errors import Refused
from oelm_core.launch import device_request, lease, queue
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.status import ENDED, run_status

LOOK_AGAIN = 2.0
"""Seconds after which the first in line look at the devices again unasked; those behind wait longer."""
LOOK_AGAIN_BEHIND = 10.0
LOOK_AGAIN_AT_STRANGERS = 5.0
"""Asking NVML costs a process each time."""


class Taken(NamedTuple):
    """The devices of one attempt."""

    kind: str
    leases: list[lease.Lease]
    cards: list[dict[str, Any]]
    cores: list[int]

    @property
    def names(self) -> list[str]:
        """For people: gpu:2, cpu:0-1."""
        if self.kind == "cpu":
            return [f"cpu:{_ranges(self.cores)}"]
        return [f"gpu:{device_request.label(card)}" for card in self.cards]


class Waiter:
    """One runner's wait for its devices."""

    def __init__(
        self,
        run: dict[str, Any],
        root: Path,
        threads: int | None,
        rest: Callable[[float], None],
        say: Callable[[str], None],
        first_attempt: bool = True,
        look: Callable[[], list[dict[str, Any]] | None] = device_request.probe,
    ) -> None:
        self.run = run
        self.first_attempt = first_attempt
        self.root = root
        self.threads = threads
        self.rest = rest
        self.say = say
        self._look = look
        self._cards: list[dict[str, Any]] | None = None
        self._looked = float("-inf")
        self._barred: dict[str, str] = {}  # devices whose lease we are not allowed to touch, and the sentence

    def take(self, ticket: Path | None, taken: Callable[[Taken], None]) -> Taken:
        """Waits until the devices are ours; `taken` writes that down before the place in line is given up.

        `rest` may raise to give up; the ticket is left either way.
        """
        asked, per_run = str(self.run.get("devices_asked") or "auto"), int(self.run.get("per_run") or 1)
        if ticket is None:
            cores = device_request.cores_wanted(self.threads, per_run)
            ticket = queue.draw(self.run["id"], asked, per_run, cores, self._partner(), self._arrival())
        try:
            queue.stand(ticket)
            cards = [] if asked == "cpu" else self._first_look()
            want = self._beside(device_request.resolve(asked, per_run, self.threads, cards))
            queue.stand(ticket, needs=want.needs, allowed=want.allowed)
            devices = self._wait(ticket, want)
            taken(devices)
            return devices
        finally:
            queue.leave(ticket)

    def _arrival(self) -> float | None:
        """A run that had to wait for another one first still has the place in line it came with."""
        arrival = self.run.get("arrival") or {}
        return float(arrival["at"]) if arrival.get("boot_id") == process.boot_id() and self.first_attempt else None

    def _wait(self, ticket: Path, want: device_request.Want) -> Taken:
        while True:
            mark, started = queue.last_change(), time.monotonic()
            if not ticket.exists():  # tidied away by others, for instance while this runner was frozen
                known = {"run": self.run["id"], "needs": want.needs, "allowed": want.allowed}
                queue.stand(ticket, asked=self.run.get("devices_asked"), **known)
            taken, why, patience = self._try(ticket, want)
            if taken is not None:
                return taken
            self.say(why)
            while queue.last_change() == mark and time.monotonic() - started < patience:
                self.rest(0.5)

    def _try(self, ticket: Path, want: device_request.Want) -> tuple[Taken | None, str, float]:
        """(devices or None, why not, seconds after which to look again unasked)."""
        tickets = [device_request.with_devices(one, self._cards_if_needed(one)) for one in queue.ahead_of(ticket)]
        rivals = [one for one in tickets if set(one.allowed or ()) & set(want.allowed)]
        holders = {device: lease.holder(device) for device in want.allowed}
        free = [device for device in self._all_devices(rivals) if not (holders.get(device) or lease.holder(device))]
        granted = queue.shares(rivals, free).get(ticket)
        strangers: dict[str, str] = {}
        if granted is not None and (want.kind == "cuda" or self._barred):
            strangers = {**self._strangers(free), **self._barred} if want.kind == "cuda" else dict(self._barred)
            granted = queue.shares(rivals, [device for device in free if device not in strangers]).get(ticket)
        if granted is not None:
            leases = self._take_all(granted)
            if leases is not None:
                return self._taken(want, leases), "", 0.0
        behind = len(rivals) - 1
        patience = LOOK_AGAIN if behind < max(2, len(want.allowed)) else LOOK_AGAIN_BEHIND
        if strangers:
            patience = LOOK_AGAIN_AT_STRANGERS
        return None, self._why(want, holders, strangers, behind), patience

    def _take_all(self, devices: list[str]) -> list[lease.Lease] | None:
        taken: list[lease.Lease] = []
        for device in devices:
            try:
                one = lease.take(device, self.run["id"])
            except Refused as refusal:
                self._barred[device], one = str(refusal).rstrip("."), None
            if one is None:
                for held in taken:
                    held.release()
                return None
            taken.append(one)
        return taken

    def _taken(self, want: device_request.Want, leases: list[lease.Lease]) -> Taken:
        devices = [one.device for one in leases]
        if want.kind == "cpu":
            return Taken("cpu", leases, [], sorted(int(device.removeprefix("core-")) for device in devices))
        by_uuid = {card.get("uuid"): card for card in self.cards()}
        return Taken("cuda", leases, [by_uuid[device] for device in devices], [])

    def cards(self, younger_than: float = float("inf")) -> list[dict[str, Any]]:
        """The machine's cards, looked at again when what is known is too old."""
        if self._cards is None or time.monotonic() - self._looked > younger_than:
            found = self._look()
            self._cards = (self._cards or []) if found is None else found  # a driver that hangs once keeps its cards
            self._looked = time.monotonic()
        return self._cards

    def _first_look(self) -> list[dict[str, Any]]:
        """Never taken for a machine without cards only because its driver hangs."""
        while (found := self._look()) is None:
            self.say("the NVIDIA driver does not answer")
            self.rest(LOOK_AGAIN_AT_STRANGERS)
        self._cards, self._looked = found, time.monotonic()
        return found

    def _cards_if_needed(self, ticket: queue.Ticket) -> list[dict[str, Any]]:
        return [] if ticket.allowed is not None or ticket.asked == "cpu" else self.cards()

    def _strangers(self, devices: list[str]) -> dict[str, str]:
        """Free cards that somebody without a lease works on."""
        found = {}
        for card in self.cards(younger_than=1.0):
            if card.get("uuid") in devices:
                who = device_request.somebody_on(card)
                if who:
                    found[str(card["uuid"])] = who
        return found

    def _all_devices(self, tickets: list[queue.Ticket]) -> list[str]:
        return list(dict.fromkeys(device for ticket in tickets for device in ticket.allowed or ()))

    def _why(self, want: device_request.Want, holders: dict[str, Any], strangers: dict[str, str], behind: int) -> str:
        """What is waited for, in one sentence."""
        numbers = {str(card.get("uuid")): device_request.label(card) for card in self._cards or []}
        held: dict[str, list[str]] = {}
        for device, holder in holders.items():
            if holder is not None and device not in strangers:
                held.setdefault(_whose(holder), []).append(device)
        reasons = [
            *strangers.values(),
            *(f"{_devices(devices, numbers)} used by {who}" for who, devices in held.items()),
        ]
        text = "; ".join(reasons[:2]) + (f"; {len(reasons) - 2} more" if len(reasons) > 2 else "")
        queue = f"behind {behind} earlier {'run' if behind == 1 else 'runs'}" if behind else ""
        return "; ".join(part for part in (text, queue) if part) or "devices are being taken"

    def _partner(self) -> str | None:
        other = self.run.get("beside")
        return str(self.root / str(other)) if other else None

    def _beside(self, want: device_request.Want) -> device_request.Want:
        """A run that is to be compared with another runs where that one ran."""
        partner = self._partner()
        if partner is None:
            return want
        folder = RunFolder(partner)
        while True:
            same = device_request.same_devices(want, folder)
            if same is not None:
                return want._replace(allowed=same)
            if not folder.path.is_dir() or run_status(folder).state in ENDED:
                return want
            self.say(f"to run where {folder.id} runs")
            self.rest(1.0)


def pause_left(leases: list[lease.Lease], pause: float) -> float:
    """Seconds until every device has rested for `pause` since it was last given back."""
    boot, now = process.boot_id(), process.since_boot()
    rested = [
        now - float(one.previous["released"])
        for one in leases
        if one.previous.get("boot_id") == boot and one.previous.get("released") is not None
    ]
    return max(0.0, pause - min(rested)) if rested else 0.0


def _whose(holder: dict[str, Any]) -> str:
    """A run by its id, and by its user where that is somebody else: `oelm runs` does not list it then."""
    user = holder.get("user")
    return f"run {holder.get('run')}" + (f" of {user}" if user and user != lease.user_name() else "")


def _devices(devices: list[str], numbers: dict[str, str]) -> str:
    """["core-0", "core-1"] -> cores 0-1; cards by their `numbers`."""
    cores = [int(device.removeprefix("core-")) for device in devices if device.startswith("core-")]
    which = _ranges(cores) if cores else ",".join(numbers.get(device, device) for device in devices)
    return f"{'core' if cores else 'GPU'}{'s' if len(devices) > 1 else ''} {which}"


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> 0-2,5"""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
