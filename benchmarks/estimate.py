"""The roofline of `oelm estimate` against what is known: the author's two times on an A5000, and steps made here."""

from __future__ import annotations

import statistics
from functools import partial
from typing import NamedTuple

from benchmarks.claims import ClaimSection
from oelm_core.bench import steps
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.turns import ENOUGH, Make, Measured, children, over_rounds, turns
from oelm_core.config import Experiment, override
from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.devices.data_sheets import format_on, named_sheet
from oelm_core.devices.processor_speed import measure_speed
from oelm_core.formatting import measured_time
from oelm_core.roofline import REACHED, Rates, card_rates, processor_rates, time_of
from oelm_core.step_work import work_of

WITHIN = 0.25


class PublishedTime(NamedTuple):
    preset: str
    settings: tuple[str, ...]
    """As the author ran it."""
    card: str
    source: str


PUBLISHED = (
    PublishedTime("GPT-01", (), "a5000", "repo:EXPERIMENT_LOG_Phase3.md"),
    PublishedTime("sst2-baseline", ("train.batching=padded",), "a5000", "000_2fa626d7d96d5163.txt"),
)


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("estimate", "The estimate beside what is known")
    rows = []
    for known in PUBLISHED:
        for one in (None, *(other for other in PUBLISHED if other != known)):
            seconds, reckoned = published_and_reckoned(known, share_of(one) if one else REACHED)
            name = f"{known.preset}, RTX A5000, {f'by the share of {one.preset} alone' if one else 'published'}"
            ratio = reckoned / seconds
            section.claim(f"estimate of {name}", f"within {WITHIN:.0%}", f"{ratio:.2f}x", abs(ratio - 1) <= WITHIN)
            rows.append([name, measured_time(seconds), measured_time(reckoned), f"{ratio:.2f}x"])
    for name, (found, by_arithmetic) in steps_here(section, effort).items():
        times = over_rounds([one / other for one, other in zip(by_arithmetic, found, strict=True)])
        medians = (measured_time(statistics.median(each)) for each in (found, by_arithmetic))
        rows.append([f"{name}, this processor", *medians, str(times)])
        if not name.startswith("small"):
            section.claim_ratio(
                f"estimate of {name}, this processor",
                f"within {WITHIN:.0%}",
                times,
                at_least=1 - WITHIN,
                at_most=1 + WITHIN,
                why="the share that is taken off was calibrated at other hours of such a machine.",
            )
    note = (
        "Published: by the card's data sheet, of which a step gets one share: calibrated on these two, and beside that"
        " on either alone, which then predicts the other. Here: wall clock, by a product and a sum of numpy's that one"
        f" thread makes in each round, times {effort.threads} threads, of which a step gets another share;"
        " small networks are shown, not claimed, for their products are too small to be fast."
    )
    columns = ["step", "known", "reckoned", "reckoned / known"]
    section.tables.append(BenchTable("A step by arithmetic", columns, rows, note))
    return section


def published_and_reckoned(known: PublishedTime, reached: float = REACHED) -> tuple[float, float]:
    """Seconds of a step: what the author reported, and the estimate with a share of the data sheet's figures."""
    experiment = override(load_folders([SHIPPED]).experiment(known.preset), list(known.settings))
    claims = experiment.published.claims if experiment.published else []
    seconds = next(one.value for one in claims if one.what == "step_time" and one.source == known.source)
    sheet = named_sheet(known.card)
    number_format = format_on(experiment.train.precision, sheet)
    return seconds, _reckon(experiment, card_rates(sheet, number_format, reached), number_format)


def share_of(known: PublishedTime) -> float:
    """What a step must get of the data sheet's figures for its estimate to be its time. No launch holds up these."""
    seconds, reckoned = published_and_reckoned(known)
    return REACHED * reckoned / seconds


def _reckon(experiment: Experiment, rates: Rates, number_format: str = "fp32") -> float:
    work = work_of(experiment, number_format)
    assert work is not None
    return time_of(work, rates).seconds


# -- here --------------------------------------------------------------------------------------------------------------


def steps_here(section: ClaimSection, effort: Effort) -> dict[str, tuple[list[float], list[float]]]:
    """Wall seconds of steps in each round, measured and by arithmetic, from what `oelm estimate` measures of the
    processor, taken in that round."""
    gpt = steps.TINY if effort.quick else steps.MEDIUM.but(batch=1)
    bert = steps.TINY_BERT if effort.quick else steps.BERT_BASE
    short = {"name": "sst2"}  # 13 tokens a sentence, as the measured ones have
    subjects = {
        "GPT Medium-512": (partial(steps.gpt, gpt), steps.experiment("gpt", gpt)),
        "BERT-base, packed": (partial(steps.bert, bert, batches=1), steps.experiment("bert", bert, data=short)),
        "small GPT": (partial(steps.gpt, steps.SMALL), steps.experiment("gpt", steps.SMALL)),
    }
    makes: dict[str, Make] = {name: make for name, (make, _) in subjects.items()}
    rounds: list[tuple[Rates, dict[str, Measured]]] = []
    with children(makes, effort.threads) as alive:
        for child in alive.values():
            child.ready()
        for number in range(effort.rounds(ENOUGH + 4) + 1):
            rates = processor_rates(measure_speed().of(effort.threads))
            found = turns(alive, rounds=1, warmup=0)
            if number:  # the first warms up
                rounds.append((rates, found))
    section.raw["steps"] = [
        {"rates": rates._asdict(), "seconds": {name: one.median_wall for name, one in found.items()}}
        for rates, found in rounds
    ]
    return {
        name: ([found[name].median_wall for _, found in rounds], [_reckon(experiment, rates) for rates, _ in rounds])
        for name, (_, experiment) in subjects.items()
    }
