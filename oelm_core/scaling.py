"""What several cards bring to one run: predicted from the time of a step on one card and the measured way between them.

A step on N cards computes a share of its batch on each, then sums the gradients of what trains. Three things decide:

- a share cannot be faster than the kernels of an empty batch can be started (the floor);
- gradients travel while the backward pass of the last forward pass still runs, which is two thirds of that pass;
- the last bucket has nothing left to hide behind.

Frozen weights have no gradient and are not sent. With `train.shard` it is otherwise: each pass gathers all weights
twice, frozen ones too, and scatters the sums of gradients, all of which may hide behind the whole of the computing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oelm_core.config import Experiment, override
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.errors import LabError
from oelm_core.estimate import alike
from oelm_core.formatting import measured_time, size
from oelm_core.launch.device_request import parse_device
from oelm_core.method.parameter_count import parameters
from oelm_core.proof.record import CardsProof, ProofFile, read_proofs
from oelm_core.runs.process import host
from oelm_core.runs.schema import Result
from oelm_core.runs.store import Run
from oelm_core.step_work import flops_per_step, tokens_of_example

if TYPE_CHECKING:
    from oelm_core.devices.card import Card
    from oelm_core.launch.request import LaunchRequest

BUCKET = 25 << 20
"""Bytes that DDP sends at once."""
BACKWARD = 2 / 3
"""Of a pass."""
RECOMPUTED = 4 / 3
"""What a step takes with `train.checkpoint_activations`: one forward pass more."""
RECIPES = {"gpt": ("GPT-01", "GPT-01"), "bert": ("BERT-base", "sst2-baseline")}
"""What the proof of a card has timed, by family: its name there, and the preset that it is the model of."""
WORTH = 1.05
"""From so much on, several cards are called faster than one."""
JUDGED_BY = 5
_NUMBERS = {2: "two", 3: "three", 4: "four"}


class Link(NamedTuple):
    """The way between cards, as it was measured."""

    ranks: int
    latency: float
    """Seconds of a sum of a few numbers."""
    bandwidth: float
    """Bytes summed a second."""
    card: str = ""
    """Name of the cards."""


class Step(NamedTuple):
    """An optimiser step on one card."""

    seconds: float
    floor: float = 0.0
    """What it would take with next to nothing in its batches."""
    passes: int = 1
    """Forward passes in it."""
    known_by: str = ""
    by_runs: bool = False


class Prediction(NamedTuple):
    speed_up: float
    seconds: float
    """Of a step on all cards."""
    sending: float
    """Of that, spent on gradients with nothing else to do."""


class Traffic(NamedTuple):
    """What a step sends between cards."""

    bytes: float
    """As an all-reduce would send them: gathering or scattering is half of one."""
    of: str = "gradients"
    sharded: bool = False


def predict(step: Step, traffic: Traffic, link: Link) -> Prediction:
    """
    >>> predict(Step(1.0), Traffic(0.0), Link(2, 0.0, 1e9)).speed_up
    2.0
    >>> round(predict(Step(0.02, floor=0.015), Traffic(438e6), Link(2, 2e-5, 8e9)).speed_up, 1)
    0.3
    """
    computing = max(step.seconds / link.ranks, min(step.floor, step.seconds))
    buckets = math.ceil(traffic.bytes / BUCKET)
    total = buckets * link.latency + traffic.bytes / link.bandwidth
    last = min(buckets, 1) * link.latency + min(traffic.bytes, BUCKET) / link.bandwidth
    hidden = computing if traffic.sharded else BACKWARD * computing / step.passes
    sending = max(last, total - hidden)
    seconds = computing + sending
    return Prediction(step.seconds / seconds, seconds, sending)


def traffic_of(experiment: Experiment, runs: Sequence[Run] = ()) -> Traffic | None:
    """Sent in a step, by the recipe's shape or as earlier runs counted what trains."""
    total, frozen = parameters(experiment)
    trains = None if total is None or frozen is None else total - frozen
    if trains is None:
        results = (run.folder.read(Result) for run in runs if alike(run, experiment) and run.preset == experiment.id)
        counted = next((found.parameters for found in results if found and found.parameters.trainable), None)
        total, trains = (counted.total, counted.trainable) if counted else (None, None)
    if total is None or trains is None:
        return None
    train = experiment.train
    gradients = trains * (2 if train.gradient_compression == "bf16" else 4)
    if not train.shard:
        return Traffic(float(gradients))
    halves = 2 * 4 * total + gradients  # weights are gathered for the forward and again for the backward pass
    return Traffic(train.accumulate * halves / 2, "weights and gradients", sharded=True)


# -- what is known here ------------------------------------------------------------------------------------------------


def link_between(proofs: ProofFile, ranks: int, cards: Sequence[str] = (), machine: str | None = None) -> Link | None:
    """The newest measurement of so many cards: of these (UUIDs), on this machine; either may be left open."""
    found = [
        one
        for one in sorted(proofs.together, key=lambda one: one.when, reverse=True)
        if len(one.uuids) == ranks
        and (machine is None or one.machine == machine)
        and (not cards or set(one.uuids) <= set(cards))
    ]
    return next((link for one in found if (link := link_of(one)) is not None), None)


def link_of(proof: CardsProof) -> Link | None:
    check = proof.checks.get("all-reduce")
    figures = check.figures if check is not None and check.ok else {}
    if not figures.get("bandwidth"):
        return None
    return Link(int(figures["ranks"]), figures["latency"], figures["bandwidth"], proof.name)


def step_on_one_card(experiment: Experiment, runs: Sequence[Run], proofs: ProofFile, card: str) -> Step | None:
    """By earlier runs of the same model, data and batch on one such card; else by what its proof timed."""
    floor = _floor(experiment, proofs, card)
    train, passes = experiment.train, experiment.train.accumulate
    same = [run for run in runs if alike(run, experiment) and run.setting("train.batching") == train.batching]
    times = [seconds for run in same if (seconds := _time_of(run, card)) is not None]
    if times:
        words = "an earlier run" if len(times[:JUDGED_BY]) == 1 else f"{len(times[:JUDGED_BY])} earlier runs"
        return Step(statistics.median(times[:JUDGED_BY]), floor, passes, words, by_runs=True)
    title, preset = RECIPES.get(experiment.family, ("", ""))
    timed, length = _timed(proofs, card, title), tokens_of_example(experiment)
    wanted = flops_per_step(experiment, length) if length else None
    if not timed or wanted is None:
        return None
    recipe = override(load_folders([SHIPPED]).experiment(preset), ["train.batch_size=1", "train.accumulate=1"])
    work = flops_per_step(recipe)
    if not work:
        return None
    again = RECOMPUTED if train.checkpoint_activations else 1.0
    seconds = max(_between(timed, wanted / passes / work) * passes * again, floor)
    short = f" at {length} tokens an example" if length != experiment.data.max_length else ""
    return Step(seconds, floor, passes, f"the work of {title}{short}")


def _between(timed: dict[int, float], batch: float) -> float:
    """Seconds of a pass of so many full-length examples: between two that were timed in a straight line.

    >>> [round(_between({1: 0.010, 5: 0.030}, batch), 3) for batch in (0.5, 3.0, 10.0)]
    [0.01, 0.02, 0.06]
    """
    sizes = sorted(timed)
    if batch <= sizes[0]:
        return timed[sizes[0]]  # no shorter: it is made of launches
    if batch >= sizes[-1]:
        return timed[sizes[-1]] * batch / sizes[-1]
    above = next(size for size in sizes if size >= batch)
    below = sizes[sizes.index(above) - 1]
    return timed[below] + (timed[above] - timed[below]) * (batch - below) / (above - below)


def _time_of(run: Run, card: str) -> float | None:
    """Of a run on one card of this name."""
    found = run.folder.read(Result)
    if found is None or found.device.kind != "cuda" or (found.world_size or 1) != 1 or found.device.name != card:
        return None
    return found.timing.step_time_mean


def _timed(proofs: ProofFile, card: str, title: str) -> dict[int, float]:
    """Batch -> seconds of a step, as the newest proof of such a card found them."""
    lead = f"{title} seconds at "
    for proof in sorted(proofs.cards, key=lambda one: one.when, reverse=True):
        check = proof.checks.get("batch")
        if proof.name == card and check is not None and check.ok:
            return {int(key.removeprefix(lead)): took for key, took in check.figures.items() if key.startswith(lead)}
    return {}


def _floor(experiment: Experiment, proofs: ProofFile, card: str) -> float:
    """Launching a layer's kernels takes as long whatever their width: a batch of 1, by the number of layers."""
    title, preset = RECIPES.get(experiment.family, ("", ""))
    least = _timed(proofs, card, title).get(1)
    shape = experiment.model.shape
    if least is None or shape is None:
        return 0.0
    measured = load_folders([SHIPPED]).experiment(preset).model.shape
    again = RECOMPUTED if experiment.train.checkpoint_activations else 1.0
    return least * shape.layers / measured.layers * experiment.train.accumulate * again if measured else 0.0


class CardPlace(NamedTuple):
    """Where a run of several cards would be."""

    cards: int
    """On each node."""
    among: tuple[str, ...] = ()
    """UUIDs of those that it may take; none where they are not known."""
    machine: str | None = None
    nodes: int = 1
    in_job: bool = False
    """Of Slurm."""


def place_of(
    request: LaunchRequest, cards: Sequence[Card], preset: Mapping[str, object] | None = None
) -> CardPlace | None:
    """Where a launch would put its runs, given the cards here; None where each takes one card or none.

    `preset`: the `slurm:` of the arm.
    """
    nodes = _nodes_of(request, preset)
    if request.per_run * nodes < 2 or request.device.strip().lower() == "cpu":
        return None
    if request.launcher != "local":
        return CardPlace(request.per_run, nodes=nodes, in_job=True)  # on whichever node
    names = parse_device(request.device)
    may = [card for card in cards if card.uuid and (names is None or {card.label, card.uuid} & set(names))]
    if len(may) < request.per_run:
        return None
    return CardPlace(request.per_run, tuple(str(card.uuid) for card in may), host())


def _nodes_of(request: LaunchRequest, preset: Mapping[str, object] | None) -> int:
    """As asked for, else as slurm.yaml has it."""
    if request.launcher != "slurm" or request.nodes is not None:
        return request.nodes or 1
    from oelm_core.launch.slurm.site import load_site

    try:
        return load_site(preset, request.slurm).nodes
    except LabError:
        return 1  # the launch itself says what is wrong there


def outlook(experiment: Experiment, runs: Sequence[Run], place: CardPlace) -> str:
    """In a sentence what several cards bring to one run; what is missing, where it is not known."""
    proofs, count = read_proofs(), place.cards
    if place.nodes > 1:
        return (
            f"{place.nodes} nodes: what they bring is not known, for the way between nodes is never measured;"
            " compare a short run with one on one node"
        )
    by = "--launcher slurm " if place.in_job else ""
    measure = f"oelm doctor --gpu {by}--cards {','.join(map(str, range(count)))}"
    link = link_between(proofs, count, place.among, place.machine)
    if link is None:
        return f"{count} cards: what they bring is not known here; measure it with: {measure}"
    step, sent = step_on_one_card(experiment, runs, proofs, link.card), traffic_of(experiment, runs)
    if step is None or sent is None:
        unknown = f"{count} cards: what they bring is not known, for no step of {experiment.id} was timed on one"
        if sent is None or tokens_of_example(experiment) is None:  # then no proof helps
            return f"{unknown} {link.card}; run it on one card first"
        return f"{unknown} {link.card}; run it on one card first, or measure with: {measure}"
    return sentence(predict(step, sent, link), step, sent, link)


def sentence(found: Prediction, step: Step, sent: Traffic, link: Link) -> str:
    """
    >>> link, step, sent = Link(2, 0.0, 1e9, "A100"), Step(0.1, known_by="an earlier run"), Traffic(100e6)
    >>> sentence(predict(step, sent, link), step, sent, link).partition(" (")[0]
    '2 cards: 0.9x; two runs side by side would be faster'
    """
    count = _NUMBERS.get(link.ranks, str(link.ranks))
    if found.speed_up < WORTH:
        then = f"; {count} runs side by side would be faster"
    elif found.speed_up < 0.85 * link.ranks:
        then = f"; {count} runs side by side would do {link.ranks}x"
    else:
        then = ""
    why = (
        f"a step of {measured_time(step.seconds)} on one {link.card} by {step.known_by},"
        f" {size(sent.bytes)} of {sent.of} at {size(link.bandwidth)}/s"
    )
    return f"{link.ranks} cards: {found.speed_up:.1f}x{then} ({why})"
