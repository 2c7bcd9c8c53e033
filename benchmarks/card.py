"""What an optimiser step asks of a card, counted on a pretend one: launches, casts, waits of the host, bytes."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.claims import ClaimSection
from benchmarks.freezing import saved_bytes
from oelm_core.bench.report import BenchTable, Effort
from oelm_core.bench.steps import BERT_BASE
from oelm_core.formatting import size, whole
from tests.pretend_cuda import Case, count_steps, missing


class Counted(NamedTuple):
    """A step to be counted, and what it may launch; None where nothing is claimed."""

    name: str
    case: Case
    at_most: int | None = None


AMP, AMP_FROZEN = "BERT, amp", "BERT, amp, Q/K frozen"
KEPT = saved_bytes(BERT_BASE, biases=True)["gradients"]
"""As large as the gradients that frozen weights have not."""
STEPS = (
    Counted("GPT-01", Case("GPT-01"), 700),
    Counted("GPT-02 (Q/K frozen)", Case("GPT-02")),
    Counted("BERT, fp32", Case("sst2-baseline")),
    Counted(AMP, Case("sst2-baseline", ("train.precision=amp",)), 900),
    Counted(AMP_FROZEN, Case("sst2-oelm", ("train.precision=amp",))),
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
    if AMP in found and AMP_FROZEN in found:
        trained, frozen = found[AMP], found[AMP_FROZEN]
        note += (
            f" Frozen Q/K spare BERT in amp {trained.launches - frozen.launches} launches and"
            f" {(trained.bytes_moved - frozen.bytes_moved) / 1e9:.2f} GB a step: they have no gradient and no moments,"
            " and are left out of the one launch that casts the others, once a step. Their fp32 weights stay on the"
            f" card unread, for evaluations and checkpoints: {size(KEPT)}, all that doing without them would save."
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
