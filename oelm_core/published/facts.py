"""What presets' cards say besides the preset: how many weights, and the audit of the published figures.

Arithmetic counts every network whose shape a preset states. The others are built, which loads torch, so in a process of
its own, and only when one of them is looked at: `python -m oelm_core.published.facts [--presets DIR] PRESET` prints a
line of JSON for each, the one that was asked for first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oelm_core.compare.comparison import Finding
from oelm_core.errors import BadInput, LabError
from oelm_core.method.facts import Count

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue


class CatalogueFacts(msgspec.Struct, frozen=True):
    """Some of what is known by now; later lines add to it."""

    counts: dict[str, Count] = {}
    """By preset; of one that cannot be counted the total is 0."""
    findings: list[Finding] | None = None
    """Of all published figures."""

    def joined(self, newer: CatalogueFacts) -> CatalogueFacts:
        findings = newer.findings if newer.findings is not None else self.findings
        return CatalogueFacts({**self.counts, **newer.counts}, findings)

    def about(self, name: str) -> list[Finding] | None:
        """Findings about a preset; None while they are not known."""
        return None if self.findings is None else [one for one in self.findings if _is_about(one, name)]


def _is_about(finding: Finding, name: str) -> bool:
    return name.lower() in (arm.lower() for arm in finding.arms)


def findings_about(name: str, catalogue: Catalogue) -> list[Finding]:
    """What the audit of the published figures says about a preset, worst first."""
    from oelm_core.published.audit import audit_published

    return [finding for finding in audit_published(catalogue) if _is_about(finding, name)]


def gather(
    catalogue: Catalogue, presets: str, wanted: str | None, begun: list[subprocess.Popen[bytes]], keep: bool = True
) -> Iterator[CatalogueFacts]:
    """More and more of the facts, without torch: counts by arithmetic, the audit, and then, if the wanted preset's
    network has to be built to be counted, all such counts from a process, which is put into `begun` for who wants to
    end it. `keep`: they are kept in the home for the next time."""
    from oelm_core.published.audit import audit_published
    from oelm_core.published.parameters import known_count

    found = ((one.id, known_count(one)) for one in catalogue.experiments.values())
    counts = {name: count for name, count in found if count is not None}
    yield CatalogueFacts(counts)
    yield CatalogueFacts(findings=audit_published(catalogue, census=_known_or_refused))
    if wanted in catalogue.experiments and wanted not in counts:
        yield from _counted_elsewhere(presets, wanted, begun, keep)


def _known_or_refused(experiment: Experiment) -> Count:
    from oelm_core.published.parameters import known_count

    count = known_count(experiment)
    if count is None:
        raise BadInput(f"oelm compare --published builds {experiment.id} to count it")
    return count


def _counted_elsewhere(
    presets: str, wanted: str, begun: list[subprocess.Popen[bytes]], keep: bool
) -> Iterator[CatalogueFacts]:
    command = [sys.executable, "-m", "oelm_core.published.facts", *(["--presets", presets] if presets else [])]
    command += [] if keep else ["--keep-nothing"]
    process = subprocess.Popen(
        [*command, wanted],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    begun.append(process)
    assert process.stdout is not None
    told = False
    with process.stdout as lines:
        for line in lines:
            told = True
            yield msgspec.json.decode(line, type=CatalogueFacts)
    process.wait()
    if not told:
        yield CatalogueFacts({wanted: Count()})


def _count(experiment: Experiment, keep: bool) -> Count:
    from oelm_core.published.parameters import count_parameters

    try:
        return count_parameters(experiment, keep)
    except (ImportError, LabError):  # a library or a file that is not here
        return Count()


def main() -> None:
    import argparse

    from oelm_core.config.catalogue import load_catalogue
    from oelm_core.published.parameters import known_count

    parser = argparse.ArgumentParser(prog="python -m oelm_core.published.facts")
    parser.add_argument("--presets", type=Path)
    parser.add_argument("--keep-nothing", action="store_true")
    parser.add_argument("first")
    options = parser.parse_args()
    os.nice(10)
    experiments = load_catalogue(options.presets).experiments
    unknown = [one for one in experiments.values() if known_count(one) is None]
    for one in sorted(unknown, key=lambda one: one.id != options.first):
        found = CatalogueFacts({one.id: _count(one, not options.keep_nothing)})
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
