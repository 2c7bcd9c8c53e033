"""The time of a step by what a device can do at most: its products, its memory, and how fast work is handed to it.

Products take as long as the matrix units need, or as reading their numbers does; all else takes as long as reading and
writing does. On a card the host hands out work meanwhile, so a step is never shorter than that; on a processor both
are one and add up.
"""

from __future__ import annotations

from typing import NamedTuple

from oelm_core.devices.data_sheets import DataSheet
from oelm_core.devices.processor_speed import ProcessorSpeed
from oelm_core.step_work import StepWork

REACHED = 0.32
"""Of a data sheet's figures, what a training step gets. Calibrated, one for all cards and presets, on the author's two
times (GPT-01 and SST-2 padded to 128, both on an A5000 that others used too). A quiet card may do better;
`oelm doctor --gpu` replaces it by what the card itself reached."""
REACHED_ON_PROCESSOR = 0.73
"""Of a product and a sum that one thread made just now, times the threads. Calibrated by the clock on both cores of an
AMD EPYC, where GPT Medium-512 reached 63 % and BERT-base 59 %, and on one of an Intel Xeon, where they reached 81 and
99 %, less a tenth for the second: numpy's library of products is not torch's, and on the EPYC it is the faster one."""
LAUNCH = 1e-5
"""Seconds for the host to hand out one function, through Python and autograd. Assumed."""


class Rates(NamedTuple):
    flops: float
    bandwidth: float
    launch: float = LAUNCH
    alone: bool = False
    """The host computes itself."""


class StepTime(NamedTuple):
    seconds: float
    products: float
    rest: float
    """Of the seconds: products, everything else on the device."""
    launching: float
    """What handing out the work takes, whatever is in it."""

    @property
    def held_by(self) -> str:
        parts = {"products": self.products, "memory": self.rest, "launches": self.launching}
        return max(parts, key=lambda name: parts[name])


def card_rates(sheet: DataSheet, number_format: str, reached: float = REACHED) -> Rates:
    return Rates(sheet.peaks[number_format] * reached, sheet.bandwidth * reached)


def processor_rates(speed: ProcessorSpeed) -> Rates:
    return Rates(speed.flops * REACHED_ON_PROCESSOR, speed.bandwidth * REACHED_ON_PROCESSOR, alone=True)


def time_of(work: StepWork, rates: Rates) -> StepTime:
    """
    >>> time_of(StepWork(2e12, 0, 5e11, 100), Rates(1e12, 1e12)).seconds
    2.5
    >>> time_of(StepWork(0, 0, 0, 100), Rates(1e12, 1e12)).seconds
    0.001
    """
    products = max(work.flops / rates.flops, work.product_bytes / rates.bandwidth)
    rest, launching = work.other_bytes / rates.bandwidth, work.launches * rates.launch
    device = products + rest
    return StepTime(device + launching if rates.alone else max(device, launching), products, rest, launching)
