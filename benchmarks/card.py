"""What an optimiser step asks of a card, counted on a pretend one: launches, casts, waits of the host, bytes."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.claims import ClaimSection
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.formatting import whole
from tests.pretend_cuda import Case, count_steps, missing


class Counted(NamedTuple):
    """A step to be counted, and what it may launch; None where nothing is claimed."""

    name: str
    case: Case
    at_most: int | None = None


STEPS = (
    Counted("GPT-01", Case("GPT-01"), 700),
    Counted("GPT-02 (Q/K frozen)", Case("GPT-02")),
    Counted("BERT, fp32", Case("sst2-baseline")),
    Counted("BERT, amp", Case("sst2-baseline", ("train.precision=amp",)), 900),
    Counted("BERT, amp, Q/K frozen", Case("sst2-oelm", ("train.precision=amp",))),
)


def measure(effort: Effort) -> ClaimSection:
    section = ClaimSection("card", "The card, counted without one")
    if (why := missing()) is not None:
        section.claim("launches of a step", "counted", why, None)
        return section
    chosen = STEPS[:1] if effort.quick else STEPS
    found = dict(zip([step.name for step in chosen], count_steps([step.case for step in chosen]), strict=True))
    rows = [
        [
            name,
            one.precision,
            whole(one.launches),
            whole(one.casts),
            whole(len(one.host_waits)),
            f"{one.bytes_moved / 1e9:.2f} GB",
        ]
        for name, one in found.items()
    ]
    note = (
        "The lab's own session, loop and task over tensors that have a device but no numbers: an RTX A5000's formats. A"
        " function of torch is one launch, however many kernels it takes. Bytes as if nothing stayed in a cache."
    )
    columns = ["step", "format", "launches", "of them casts", "waits of the host", "bytes moved"]
    section.tables.append(BenchTable("An optimiser step", columns, rows, note))
    for step in chosen:
        if step.at_most is not None:
            one = found[step.name]
            most = ", ".join(f"{number} {name}" for name, number in list(one.functions.items())[:4])
            section.claim(
                f"{step.name}: launches of a step",
                f"at most {step.at_most}",
                whole(one.launches),
                one.launches <= step.at_most,
                f"most of them: {most}.",
            )
    waits = sum(len(one.host_waits) for one in found.values())
    section.claim("waits of the host in these steps", "none", whole(waits), waits == 0)
    section.raw["steps"] = {name: one.functions for name, one in found.items()}
    return section
