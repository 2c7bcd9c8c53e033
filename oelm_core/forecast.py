"""`oelm estimate`: what a preset would take on a card that one may not have, with Q/K trained and frozen.

A card's own measurements come first (earlier runs on it, gpu-proof.json), then its data sheet; a processor is measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import psutil

from oelm_core.config import Experiment
from oelm_core.devices.card import Card
from oelm_core.devices.data_sheets import GB, DataSheet, format_on, named_sheet, sheet_of
from oelm_core.devices.processor_speed import ProcessorSpeed, processor_speed
from oelm_core.errors import BadInput
from oelm_core.estimate import Cost, alike, steps_of
from oelm_core.proof.record import ProofFile, read_proofs
from oelm_core.roofline import REACHED, REACHED_ON_PROCESSOR, Rates, StepTime, card_rates, processor_rates, time_of
from oelm_core.runs.schema import Result
from oelm_core.runs.store import Run
from oelm_core.scaling import Link, Step, Traffic, link_between, predict, step_on_one_card, traffic_of
from oelm_core.step_work import bytes_needed, tokens_of_example, work_of

THIS = "this"
CARDS = (2, 8, 64)
A_NODE = 8
"""Cards of one machine; more are several machines."""
NETWORK = 25.0 * GB
"""Bytes a second out of a machine, each way: one port of 200 Gbit/s. Assumed."""
REACHED_BETWEEN = 0.7
"""Of a link's figure, what a sum over cards gets. Assumed."""
HOP = 1e-5
"""Seconds of one message between cards. Assumed."""
USABLE = 0.9
"""Of a card's memory: the driver, torch and gaps have the rest."""
GOOD = 0.95
"""The best batch is the smallest that does so much of the most tokens a second."""
QK = ["query", "key"]


@dataclass(frozen=True)
class Device:
    """What the times are for, and what its rates are known by."""

    name: str
    number_format: str
    rates: Rates
    memory: float
    known_by: str
    sheet: DataSheet | None = None
    """None for a processor."""
    by_runs: bool = False
    """Whether earlier runs of the very preset gave the rates."""


@dataclass(frozen=True)
class Together:
    """Several cards on one run, as shares of what so many cards could do at best."""

    cards: int
    shared_out: float
    """The recipe's batch divided among them."""
    full_batches: float
    """The recipe's batch on each."""


@dataclass(frozen=True)
class ArmForecast:
    qk: str
    """trained, frozen, or `own`: as the preset has them, where that is neither."""
    step_seconds: float
    held_by: str
    """products, memory or launches: what takes longest."""
    seconds: float | None
    """Of all steps; evaluations come on top."""
    memory: float | None
    best_batch: int | None
    best_tokens_per_second: float | None
    sent: float | None
    """Bytes of gradients that cards exchange in a step."""
    together: tuple[Together, ...] = ()


@dataclass(frozen=True)
class Forecast:
    preset: str
    device: str
    number_format: str
    steps: int | None
    tokens: int
    """Of a step."""
    own_batch: int
    own_qk: str
    """Which of the arms the preset itself is."""
    arms: tuple[ArmForecast, ...]
    measured: float | None = None
    """Seconds of a step of this preset in earlier runs on this very processor, or on such a card."""
    known_by: tuple[str, ...] = field(default=())
    """Where the constants come from, a sentence each."""


def forecast(
    experiment: Experiment,
    card: str,
    runs: Sequence[Run],
    proofs: ProofFile,
    cards_here: Callable[[], Sequence[Card]],
    speed: ProcessorSpeed | None = None,
) -> Forecast:
    """`card`: a data sheet's name, cpu, or `this`: the first card here, or the processor where there is none.

    `speed`: the processor's, where it is known; else it is measured."""
    if work_of(experiment) is None:
        raise BadInput(f"{experiment.id}: a step cannot be counted from this preset, for its model has no known shape.")
    device = find_device(experiment, card, runs, proofs, cards_here, speed)
    steps, _ = steps_of(experiment, [run for run in runs if alike(run, experiment)])
    length = tokens_of_example(experiment)
    own = own_qk(experiment)
    variants = {}
    if experiment.method.peer is None:
        variants = {"trained": with_qk(experiment, frozen=False), "frozen": with_qk(experiment, frozen=True)}
    variants.setdefault(own, experiment)
    known_by = [device.known_by]
    if length is None:
        known_by.append("Nobody has counted the mean length of these sentences: full length, so at most this.")
    link = link_between(proofs, 2) if device.sheet is not None else None
    if device.sheet is not None:
        known_by.append(_link_words(device.sheet, link))
    arms = tuple(_arm(name, one, device, steps, link) for name, one in variants.items())
    tokens = experiment.train.effective_batch * (length or experiment.data.max_length)
    return Forecast(
        preset=experiment.id,
        device=device.name,
        number_format=device.number_format,
        steps=steps,
        tokens=tokens,
        own_batch=experiment.train.batch_size,
        own_qk=own,
        arms=arms,
        measured=None if device.by_runs else measured_step(experiment, runs, device.sheet),
        known_by=tuple(known_by),
    )


def measured_step(experiment: Experiment, runs: Sequence[Run], sheet: DataSheet | None) -> float | None:
    """The median over earlier runs of this preset, with this batch and as many threads, each on one device."""
    same = [run for run in runs if run.preset == experiment.id and alike(run, experiment) and not run.imported]
    times = []
    for run in same:
        found = run.folder.read(Result)
        if found is None or found.timing.step_time_mean is None or (found.world_size or 1) != 1:
            continue
        on_card = found.device.kind == "cuda"
        fits = sheet_of(found.device.name or "") == sheet if sheet is not None else not on_card
        if fits and run.setting("train.threads") == experiment.train.threads:
            times.append(found.timing.step_time_mean)
    return statistics.median(times) if times else None


def with_time(cost: Cost, experiment: Experiment, card: str, speed: ProcessorSpeed | None = None) -> Cost:
    """The cost, with a time by arithmetic where no run gave one. `card`: its name as the driver spells it, or cpu."""
    if cost.seconds is not None or cost.steps is None or work_of(experiment) is None:
        return cost
    if card != "cpu" and sheet_of(card) is None:
        return cost
    try:
        device = find_device(experiment, card, (), read_proofs(), list, speed)
    except BadInput:  # a format that the card has not: the launch says so
        return cost
    sign = "about" if tokens_of_example(experiment) is not None else "at most"
    words = f"reckoned for {device.name}, evaluations not counted; oelm estimate {experiment.id} says how"
    return replace(
        cost,
        seconds=cost.steps * step_time(experiment, device).seconds,
        seconds_sign=sign,
        seconds_from=words,
    )


def own_qk(experiment: Experiment) -> str:
    """trained, frozen (both, in all layers, to the end), or `own`."""
    method = experiment.method
    held = set(QK) & set(method.freeze)
    if method.peer is None and not held:
        return "trained"
    whole = method.peer is None and held == set(QK) and method.layers == "all" and method.unfreeze is None
    return "frozen" if whole else "own"


def with_qk(experiment: Experiment, *, frozen: bool) -> Experiment:
    method = experiment.method
    others = [name for name in method.freeze if name not in QK]
    changed = {"freeze": [*QK, *others] if frozen else others, "layers": "all", "unfreeze": None}
    return experiment.model_copy(update={"method": method.model_copy(update=changed)})


# -- the device --------------------------------------------------------------------------------------------------------


def find_device(
    experiment: Experiment,
    card: str,
    runs: Sequence[Run],
    proofs: ProofFile,
    cards_here: Callable[[], Sequence[Card]],
    speed: ProcessorSpeed | None = None,
) -> Device:
    asked = experiment.train.precision
    if card.lower() == "cpu":
        return processor(experiment, speed or processor_speed())
    if card.lower() != THIS:
        sheet = named_sheet(card)
        return _card(experiment, sheet, format_on(asked, sheet), _proven_name(sheet, proofs), runs, proofs)
    here = next((one for one in cards_here() if one.name), None)
    if here is None or here.name is None:
        return processor(experiment, speed or processor_speed())
    sheet = named_sheet(here.name)
    device = _card(experiment, sheet, format_on(asked, sheet), here.name, runs, proofs)
    return replace(device, memory=float(here.memory_total or sheet.memory))


def processor(experiment: Experiment, speed: ProcessorSpeed) -> Device:
    """With as many cores as the recipe's `train.threads`, else all."""
    speed = speed.of(min(experiment.train.threads or speed.cores, speed.cores))
    words = (
        f"This processor, {speed.cores} core{'s' * (speed.cores > 1)} to itself: {speed.flops / 1e9:.0f} GFLOPs and"
        f" {speed.bandwidth / 1e9:.0f} GB a second, measured now, of which {REACHED_ON_PROCESSOR:.0%} are reached"
        " (calibrated on this lab's own steps); 10 µs a function, assumed."
    )
    return Device("this processor", "fp32", processor_rates(speed), float(psutil.virtual_memory().total), words)


def _card(
    experiment: Experiment, sheet: DataSheet, number_format: str, name: str, runs: Sequence[Run], proofs: ProofFile
) -> Device:
    measured = step_on_one_card(experiment, runs, proofs, name) if name else None
    work = work_of(experiment, number_format)
    peak, bandwidth = sheet.peaks[number_format] / 1e12, sheet.bandwidth / 1e9
    sheet_words = f"{sheet.name}: {peak:g} TFLOPs in {number_format} and {bandwidth:,.0f} GB a second by its data sheet"
    if measured is None or work is None:
        words = f"{sheet_words}, of which {REACHED:.0%} are reached (calibrated on two published times, A5000)."
        return Device(sheet.name, number_format, card_rates(sheet, number_format), sheet.memory, words, sheet)
    at_best = time_of(work, card_rates(sheet, number_format, 1.0)).seconds
    reached = min(1.0, at_best / measured.seconds)
    rates = card_rates(sheet, number_format, reached)
    if measured.floor:
        rates = rates._replace(launch=measured.floor / work.launches)
    words = f"{sheet_words}, of which {reached:.0%} are reached, measured by {measured.known_by}."
    return Device(sheet.name, number_format, rates, sheet.memory, words, sheet, measured.by_runs)


def _proven_name(sheet: DataSheet, proofs: ProofFile) -> str:
    return next((one.name for one in proofs.cards if sheet_of(one.name) == sheet), "")


# -- one arm -----------------------------------------------------------------------------------------------------------


def _arm(qk: str, experiment: Experiment, device: Device, steps: int | None, link: Link | None) -> ArmForecast:
    step = step_time(experiment, device)
    best = best_batch(experiment, device)
    sent = traffic_of(experiment)
    links = [link_among(cards, device.sheet, link) for cards in CARDS] if device.sheet is not None else []
    together = [
        Together(one.ranks, *(efficiency(experiment, step, sent, one, times) for times in (1, one.ranks)))
        for one in links
        if sent is not None
    ]
    return ArmForecast(
        qk,
        step.seconds,
        step.held_by,
        None if steps is None else steps * step.seconds,
        bytes_needed(experiment, device.number_format, device.sheet is not None),
        *best,
        None if sent is None else sent.bytes,
        tuple(together),
    )


def step_time(experiment: Experiment, device: Device) -> StepTime:
    work = work_of(experiment, device.number_format)
    assert work is not None  # asked before
    return time_of(work, device.rates)


def best_batch(experiment: Experiment, device: Device) -> tuple[int | None, float | None]:
    """(examples of a forward pass, tokens a second): among powers of two that fit into memory."""
    length = tokens_of_example(experiment) or experiment.data.max_length
    found: dict[int, float] = {}
    for batch in (2**power for power in range(13)):
        other = experiment.model_copy(update={"train": experiment.train.model_copy(update={"batch_size": batch})})
        needed = bytes_needed(other, device.number_format, device.sheet is not None)
        if needed is None or needed > device.memory * USABLE:
            break
        found[batch] = batch * other.train.accumulate * length / step_time(other, device).seconds
    if not found:
        return None, None
    batch = next(one for one, rate in found.items() if rate >= GOOD * max(found.values()))
    return batch, found[batch]


# -- several cards -----------------------------------------------------------------------------------------------------


def link_among(cards: int, sheet: DataSheet, measured: Link | None = None) -> Link:
    """A ring sends each byte to all but one of the others, twice; between machines by their one port."""
    if measured is not None and cards == measured.ranks:
        return measured
    within, machines = min(cards, A_NODE), math.ceil(cards / A_NODE)
    bandwidth = sheet.link * REACHED_BETWEEN / (2 * (within - 1) / within)
    if machines > 1:
        bandwidth = min(bandwidth, NETWORK * REACHED_BETWEEN / (2 * (machines - 1) / machines))
    return Link(cards, 2 * math.log2(cards) * HOP, bandwidth, sheet.name)


def efficiency(experiment: Experiment, step: StepTime, sent: Traffic, link: Link, times: int) -> float:
    """Of `times` the recipe's batch over all cards: their speed-up over as many times one card."""
    one_card = Step(step.seconds * times, min(step.launching, step.seconds), experiment.train.accumulate)
    share = predict(one_card, sent, link).speed_up / link.ranks
    return min(share, 1.0, experiment.train.batch_size * times / link.ranks)  # an example cannot be divided


def _link_words(sheet: DataSheet, measured: Link | None) -> str:
    way = f"{sheet.link / 1e9:.0f} GB a second to the next card by its data sheet"
    if measured is not None:
        way = f"two cards as measured by oelm doctor --gpu, more by {way}"
    between = f"machines of {A_NODE} with 200 Gbit/s between them (assumed)"
    return f"Between cards: {way}, {REACHED_BETWEEN:.0%} of it; {between}."
