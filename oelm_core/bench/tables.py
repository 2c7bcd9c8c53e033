"""The bench's findings as text for a terminal and as the Markdown of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oelm_core.bench.claims import Section, Table

HEAD = """\
# Performance, as measured

This page is the output of `{command}`, written by the command and never by hand. It took {minutes:.1f} minutes.

- Machine: {cpu}, {cores} cores, {threads} threads used, {memory:.0f} GB memory, GPU: {gpu}; load before: {load:.2f}
- {system}, Python {python}, {versions}

How it is measured: variants of one comparison have the same sizes, batch, dropout, dtype and number of threads. Each
lives in its own process; one runs at a time, in turns, the order turned round every round. The first steps are
dropped. Time is the CPU time of all threads on a CPU (so that other people's load weighs little) and device events on
a GPU; wall time stands beside it. Figures are medians; a ratio is taken round by round and has the 95 % bootstrap
interval of its median, or, from fewer than six rounds, the least and the greatest of them.
"""

UNEXPLAINED = (
    "the bench itself cannot tell why; single figures of a shared machine vary, so see whether it comes again."
)


def claims_table(sections: Sequence[Section]) -> Table:
    rows = [[c.what, c.target, c.found, c.verdict] for section in sections for c in section.claims]
    return Table("Claims", ["what", "to reach", "found", "verdict"], rows)


def markdown(report: dict[str, Any], sections: Sequence[Section]) -> str:
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    values = {**machine, "memory": machine["memory"] / 2**30, "gpu": machine["gpu"] or "none", "versions": versions}
    parts = [HEAD.format(**values, command=report["command"], minutes=report["seconds"] / 60)]
    if report["quick"]:
        parts.append("**Quick mode: tiny networks and two rounds. These figures show that it works, nothing else.**\n")
    parts.append("## Claims\n\n" + _markdown_table(claims_table(sections)))
    shortfalls = [claim for section in sections for claim in section.claims if claim.met is False]
    if shortfalls:
        parts.append(
            "\n".join(f"- **{claim.what}** ({claim.verdict}): {claim.why or UNEXPLAINED}" for claim in shortfalls)
            + "\n"
        )
    for section in sections:
        parts.append(f"## {section.title}\n")
        for table in section.tables:
            parts.append(
                f"### {table.title}\n\n" + _markdown_table(table) + (f"\n{table.note}\n" if table.note else "")
            )
    return "\n".join(parts).rstrip() + "\n"


def _markdown_table(table: Table) -> str:
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"
