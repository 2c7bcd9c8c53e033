"""What a runner waits for: another run, then its devices, in the order of the queue, all it needs or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from oelm_core.devices.card import Card
from oelm_core.errors import Refused
from oelm_core.launch import device_request, lease, queue, suspects
from oelm_core.launch.device_request import DeviceRequest
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord
from oelm_core.runs.status import ENDED, FINAL, RunStatus, run_status

LOOK_AGAIN = 2.0
"""Seconds after which the first in the queue look at the devices again unasked; those behind wait longer."""
LOOK_AGAIN_BEHIND = 10.0
LOOK_AGAIN_AT_STRANGERS = 5.0
"""Asking NVML costs a process each time."""
LOOKS_BEFORE_LOST = 8
"""A run must look lost so many times in a row: on a busy machine its runner may just be slow to come up."""


class DependencyFailed(Exception):
    """The run waited for will not finish; the sentence says why."""


def wait_for_run(run: RunRecord, root: Path, rest: Callable[[float], None], say: Callable[[str], None]) -> None:
    """`--after`: returns when that run is over; raises DependencyFailed when it ended badly and that matters."""
    if not run.after:
        return
    folder, lost = RunFolder(root / run.after), 0
    while True:
        state, reason, _ = _status(folder)
        lost = lost + 1 if state == "lost" or not folder.path.is_dir() else 0
        if state in FINAL or lost >= LOOKS_BEFORE_LOST:
            break
        say(f"for {run.after}, which is {state}")
        rest(1.0)
    if state != "finished" and not run.after_any:
        how = "is not there any more" if not folder.path.is_dir() else f"ended as {state}"
        raise DependencyFailed(f"It waited for {run.after}, which {how}{f' ({reason})' if reason else ''}.")


def _status(folder: RunFolder) -> RunStatus:
    """With Slurm asked where Slurm has it: a job it ended leaves files that still say running."""
    status = run_status(folder)
    if status.state in FINAL or not (folder.path / "slurm").is_dir():
        return status
    from oelm_core.launch.slurm import job_states

    return job_states.run_status(folder)


class Devices(NamedTuple):
    """The devices of one attempt."""

    kind: str
    """cuda or cpu."""
    leases: list[lease.Lease]
    labels: list[str]
    """Of cards, as people write them: 2, or 2:0 for a MIG instance."""
    cores: list[int]

    @property
    def names(self) -> list[str]:
        """For people: gpu:2, cpu:0-1; cpu alone where Slurm bound the cores."""
        if self.kind == "cuda":
            return [f"gpu:{label}" for label in self.labels]
        return [f"cpu:{_ranges(self.cores)}" if self.cores else "cpu"]


class Waiter:
    """One runner's wait for its devices."""

    def __init__(
        self,
        run: RunRecord,
        folder: RunFolder,
        threads: int | None,
        rest: Callable[[float], None],
        say: Callable[[str], None],
        first_attempt: bool = True,
        look: Callable[[], list[Card] | None] = device_request.probe,
    ) -> None:
        self.run = run
        self.folder = folder
        self.threads = threads
        self.rest = rest
        self.say = say
        self.first_attempt = first_attempt
        self._look = look
        self._cards: list[Card] | None = None
        self._looked = float("-inf")
        self._barred: dict[str, str] = {}  # devices whose lease we are not allowed to touch, and the sentence

    def take(self, path: Path | None, taken: Callable[[Devices], None]) -> Devices:
        """Waits until the devices are ours; `taken` writes that down before the place in the queue is given up.

        `path` is the ticket the launcher drew. `rest` may raise to give up; the ticket is left either way.
        """
        requested, per_run = self.run.devices_asked or "auto", self.run.per_run
        if path is None:
            cores = device_request.cores_wanted(self.threads, per_run)
            path = queue.draw(self.folder.id, requested, per_run, cores, self._partner(), self._arrival())
        try:
            ticket = queue.read(path)
            queue.join(path, ticket)
            cards = [] if requested == "cpu" else self._first_look()
            request = self._beside(device_request.resolve(requested, per_run, self.threads, cards))
            ticket.needs, ticket.allowed = request.needs, request.allowed
            queue.join(path, ticket)
            devices = self._wait(path, ticket, request)
            taken(devices)
            return devices
        finally:
            queue.leave(path)

    def _arrival(self) -> float | None:
        """A run that had to wait for another one first still has the place in the queue it came with."""
        arrival = self.run.arrival
        return arrival.at if arrival and arrival.boot_id == process.boot_id() and self.first_attempt else None

    def _wait(self, path: Path, ticket: queue.Ticket, request: DeviceRequest) -> Devices:
        while True:
            mark, started = queue.last_change(), time.monotonic()
            if not path.exists():  # tidied away by others, for instance while this runner was frozen
                queue.join(path, ticket)
            taken, why, patience = self._try(path, request)
            if taken is not None:
                return taken
            self.say(why)
            while queue.last_change() == mark and time.monotonic() - started < patience:
                self.rest(0.5)

    def _try(self, path: Path, request: DeviceRequest) -> tuple[Devices | None, str, float]:
        """(devices or None, why not, seconds after which to look again unasked)."""
        tickets = {
            place: device_request.with_devices(one, self._cards_if_needed(one))
            for place, one in queue.ahead_of(path).items()
        }
        rivals = {place: one for place, one in tickets.items() if set(one.allowed or ()) & set(request.allowed)}
        holders = {device: lease.holder(device) for device in request.allowed}
        wanted = dict.fromkeys(device for ticket in rivals.values() for device in ticket.allowed or ())
        suspect = self._suspects(wanted) if request.kind == "cuda" else {}
        free = [d for d in wanted if d not in suspect and not (holders.get(d) or lease.holder(d))]
        granted = queue.shares(rivals, free).get(path)
        strangers: dict[str, str] = {}
        if granted is not None and (request.kind == "cuda" or self._barred):
            strangers = {**self._strangers(free), **self._barred} if request.kind == "cuda" else dict(self._barred)
            granted = queue.shares(rivals, [device for device in free if device not in strangers]).get(path)
        if granted is not None:
            leases = self._take_all(granted)
            if leases is not None:
                return self._taken(request, leases), "", 0.0
        behind = len(rivals) - 1
        patience = LOOK_AGAIN if behind < max(2, len(request.allowed)) else LOOK_AGAIN_BEHIND
        if strangers:
            patience = LOOK_AGAIN_AT_STRANGERS
        if suspect and all(device in suspect for device in request.allowed):
            which = "the card it may take is" if len(request.allowed) == 1 else "all cards it may take are"
            return None, f"{which} suspect: {next(iter(suspect.values()))}", patience
        own = {device: words for device, words in suspect.items() if device in request.allowed}
        return None, self._why(holders, {**strangers, **own}, behind), patience

    def _take_all(self, devices: list[str]) -> list[lease.Lease] | None:
        taken: list[lease.Lease] = []
        for device in devices:
            try:
                one = lease.take(device, self.folder.id)
            except Refused as refusal:
                self._barred[device], one = str(refusal).rstrip("."), None
            if one is None:
                for held in taken:
                    held.release()
                return None
            taken.append(one)
        return taken

    def _taken(self, request: DeviceRequest, leases: list[lease.Lease]) -> Devices:
        devices = [one.device for one in leases]
        if request.kind == "cpu":
            return Devices("cpu", leases, [], sorted(int(device.removeprefix("core-")) for device in devices))
        labels = {card.uuid: card.label for card in self.cards()}
        return Devices("cuda", leases, [labels[device] for device in devices], [])

    def cards(self, younger_than: float = float("inf")) -> list[Card]:
        """The machine's cards, looked at again when what is known is too old."""
        if self._cards is None or time.monotonic() - self._looked > younger_than:
            found = self._look()
            if self._cards is None or (found and any(card.uuid for card in found)):
                self._cards = found or []
            # else the driver hangs or crashes for once, and what it last said stands
            self._looked = time.monotonic()
        return self._cards

    def _first_look(self) -> list[Card]:
        """Never taken for a machine without cards only because its driver hangs."""
        while (found := self._look()) is None:
            self.say("the NVIDIA driver does not answer")
            self.rest(LOOK_AGAIN_AT_STRANGERS)
        self._cards, self._looked = found, time.monotonic()
        return found

    def _cards_if_needed(self, ticket: queue.Ticket) -> list[Card]:
        return [] if ticket.allowed is not None or ticket.requested == "cpu" else self.cards()

    def _suspects(self, devices: Iterable[str]) -> dict[str, str]:
        """Cards that a run failed on, each with a sentence."""
        found = {device: suspects.suspicion(device) for device in devices}
        labels = {str(card.uuid): card.label for card in self.cards()}
        return {device: suspects.why(labels.get(device, device), one) for device, one in found.items() if one}

    def _strangers(self, devices: list[str]) -> dict[str, str]:
        """Free cards that somebody without a lease works on."""
        free = [card for card in self.cards(younger_than=1.0) if card.uuid in devices]
        return {str(card.uuid): who for card in free if (who := device_request.somebody_on(card))}

    def _why(self, holders: dict[str, lease.LeaseRecord | None], strangers: dict[str, str], behind: int) -> str:
        """What is waited for, in one sentence."""
        numbers = {str(card.uuid): card.label for card in self._cards or []}
        held: dict[str, list[str]] = {}
        for device, holder in holders.items():
            if holder is not None and device not in strangers:
                held.setdefault(_whose(holder), []).append(device)
        reasons = [
            *strangers.values(),
            *(f"{_devices(devices, numbers)} used by {who}" for who, devices in held.items()),
        ]
        text = "; ".join(reasons[:2]) + (f"; {len(reasons) - 2} more" if len(reasons) > 2 else "")
        place = f"behind {behind} earlier {'run' if behind == 1 else 'runs'}" if behind else ""
        return "; ".join(part for part in (text, place) if part) or "devices are being taken"

    def _partner(self) -> str | None:
        return str(self.folder.path.parent / self.run.beside) if self.run.beside else None

    def _beside(self, request: DeviceRequest) -> DeviceRequest:
        """A run that is to be compared with another runs where that one ran."""
        partner = self._partner()
        if partner is None:
            return request
        folder = RunFolder(partner)
        while True:
            same = device_request.same_devices(request, folder)
            if same is not None:
                return request._replace(allowed=same)
            if not folder.path.is_dir() or run_status(folder).state in ENDED:
                return request
            self.say(f"to run where {folder.id} runs")
            self.rest(1.0)


def pause_left(leases: list[lease.Lease], pause: float) -> float:
    """Seconds until every device has rested for `pause` since it was last given back."""
    boot, now = process.boot_id(), process.since_boot()
    rested = [
        now - one.previous.released
        for one in leases
        if one.previous.boot_id == boot and one.previous.released is not None
    ]
    return max(0.0, pause - min(rested)) if rested else 0.0


def _whose(holder: lease.LeaseRecord) -> str:
    """A run by its id, and by its user where that is somebody else: `oelm runs` does not list it then."""
    user = holder.holder_name
    return f"run {holder.run}" + (f" of {user}" if user and user != process.user_name() else "")


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
