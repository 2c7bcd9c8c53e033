"""Claims about speed: what was to be reached, what was found; and the page of them, docs/performance.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from oelm_core.bench.report import BenchReport, BenchSection, BenchTable
from oelm_core.bench.turns import Ratio

PAGE_HEAD = """\
# Performance, as measured

This page is the output of `{command}`, written by the command and never by hand. It took {minutes:.1f} minutes.

- Machine: {cpu}, {cores} cores, {threads} threads used, {memory:.0f} GB memory, GPU: {gpu}; load before: {load:.2f}
- {system}, Python {python}, {versions}

How it is measured: variants of one comparison have the same sizes, batch, dropout, dtype and number of threads. Each
lives in its own process; one runs at a time, in turns, the order turned round every round. The first steps are
dropped. Time is the CPU time of all threads on a CPU (so that other people's load weighs little) and device events on
a GPU; wall time stands beside it. Figures are medians; a ratio is taken round by round and has the 95 % bootstrap
interval of its median, or, from fewer than six rounds, Student's of their mean, and says how many rounds those were; so
has any other figure that was measured several times. It is *met* or *short* only where its whole interval is, and never
above what arithmetic allows; what was looked at once, only where a third more or less would change nothing. Else this
machine *cannot tell*, and a line below the table says why, or how many rounds would.
"""
IMPOSSIBLE = "it lies above what arithmetic allows: something else differed between the two."
ABOVE = "its whole interval reaches the target; but its middle lies above what arithmetic allows, which is noise."
UNEXPLAINED = (
    "the bench itself cannot tell why; single figures of a shared machine vary, so see whether it comes again."
)


@dataclass(frozen=True)
class SpeedClaim:
    """One line of the table: what was to be reached, what was found, and why when it was not."""

    what: str
    target: str
    found: str
    met: bool | None
    """None when this machine, or a quick run, cannot tell."""
    why: str = ""
    in_doubt: bool = False
    """Measured, but the interval holds the target."""

    @property
    def verdict(self) -> str:
        return "cannot tell" if self.in_doubt else {True: "met", False: "short", None: "not judged"}[self.met]

    @property
    def needs_words(self) -> bool:
        return self.in_doubt or self.met is False


@dataclass
class ClaimSection(BenchSection):
    """A subject with its claims."""

    claims: list[SpeedClaim] = field(default_factory=list)

    def claim(self, what: str, target: str, found: str, met: bool | None, why: str = "") -> None:
        self.claims.append(SpeedClaim(what, target, found, met, why))

    def claim_ratio(
        self,
        what: str,
        target: str,
        found: Ratio,
        *,
        at_least: float = -math.inf,
        at_most: float = math.inf,
        impossible_above: float = math.inf,
        remark: str = "",
        why: str = "",
    ) -> None:
        """Met or short only where the whole interval is, and can be; else it says what telling would take."""
        met = at_least <= found.low and found.high <= at_most
        short = found.high < at_least or found.low > at_most
        told = (met or short) and found.rounds > 1
        in_doubt = not told or found.value > impossible_above
        bound = at_least if math.isinf(at_most) or found.low < at_least else at_most
        above = ABOVE if found.low <= impossible_above else IMPOSSIBLE
        words = power(found, bound) if not told else above if in_doubt else why
        text = f"{found}{f', {remark}' if remark else ''}"
        self.claims.append(SpeedClaim(what, target, text, None if in_doubt else met, words, in_doubt))

    def as_dict(self) -> dict[str, Any]:
        claims = [{**asdict(claim), "verdict": claim.verdict} for claim in self.claims]
        return {**asdict(self), "claims": claims}


def power(found: Ratio, target: float) -> str:
    """What telling a ratio from a target takes: an interval narrows with the root of the rounds.

    Four times in five, which takes about twice the rounds at which the interval only just ends at the target.

    >>> power(Ratio(1.10, 1.0, 1.2, 25), 1.05)
    "from 1.100 to the interval's end it is 0.100; four times in five, telling it from 1.050 takes about 200 rounds."
    """
    if found.rounds == 1:
        return "one round says nothing of its noise."
    side, apart = found.value - found.low if found.value > target else found.high - found.value, found.value - target
    rounds = 2 * found.rounds * (side / apart) ** 2 if apart else math.inf
    takes = f"about {rounds:,.0f}" if rounds < 100_000 else "more than 100,000"
    return (
        f"from {found.value:.3f} to the interval's end it is {side:.3f};"
        f" four times in five, telling it from {target:.3f} takes {takes} {found.each}."
    )


def not_judged(sections: Sequence[ClaimSection]) -> None:
    """Takes the verdict back."""
    for section in sections:
        section.claims = [replace(claim, met=None, in_doubt=False) for claim in section.claims]


def claim_lines(sections: Sequence[ClaimSection]) -> Iterator[str]:
    """For the terminal."""
    for claim in (claim for section in sections for claim in section.claims):
        yield f"{claim.verdict:<13}{claim.what}: {claim.found}  (to reach: {claim.target})"
        if claim.needs_words and claim.why:
            yield f"{'':<13}{claim.why}"


def markdown(report: BenchReport[ClaimSection]) -> str:
    machine, sections = report.machine, report.sections
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    values = {**asdict(machine), "memory": machine.memory / 2**30, "gpu": machine.gpu or "none", "versions": versions}
    parts = [PAGE_HEAD.format(**values, command=report.command, minutes=report.seconds / 60)]
    if report.quick:
        parts.append("**Quick mode: tiny networks and two rounds. These figures show that it works, nothing else.**\n")
    claims = [claim for section in sections for claim in section.claims]
    rows = [[claim.what, claim.target, claim.found, claim.verdict] for claim in claims]
    parts.append("## Claims\n\n" + _markdown_table(["what", "to reach", "found", "verdict"], rows))
    shortfalls = [f"- **{c.what}** ({c.verdict}): {c.why or UNEXPLAINED}" for c in claims if c.needs_words]
    if shortfalls:
        parts.append("\n".join(shortfalls) + "\n")
    for section in sections:
        parts.append(f"## {section.title}\n")
        parts += [_section_table(table) for table in section.tables]
    return "\n".join(parts).rstrip() + "\n"


def _section_table(table: BenchTable) -> str:
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n" + _markdown_table(table.columns, table.rows) + note


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
