"""What has to be counted or audited for presets' cards, in a process of its own: it loads torch, the screen must not.

`python -m oelm_core.published.facts [--presets DIR] [PRESET]` prints a line of JSON whenever more is known: first the
count of the preset that was asked for, then the audit of all published figures, then the other counts.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oelm_core.compare.comparison import Finding
from oelm_core.errors import LabError
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


def gather(catalogue: Catalogue, first: str | None, keep: bool = True) -> Iterator[CatalogueFacts]:
    """More and more of the facts, the most wanted first; counts are kept in the home for the next time."""
    from oelm_core.published.audit import audit_published
    from oelm_core.published.parameters import count_parameters

    asked = [one for one in catalogue.experiments.values() if one.id == first]
    yield CatalogueFacts({one.id: _count(one, keep) for one in asked})
    yield CatalogueFacts(findings=audit_published(catalogue, census=functools.partial(count_parameters, keep=keep)))
    rest = [one for one in catalogue.experiments.values() if one.id != first]
    for place in range(0, len(rest), 20):
        yield CatalogueFacts({one.id: _count(one, keep) for one in rest[place : place + 20]})


def _count(experiment: Experiment, keep: bool) -> Count:
    from oelm_core.published.parameters import count_parameters

    try:
        return count_parameters(experiment, keep)
    except (ImportError, LabError):  # a library or a file that is not here
        return Count()


def gather_elsewhere(
    presets: str, first: str | None, begun: list[subprocess.Popen[bytes]], keep: bool = True
) -> Iterator[CatalogueFacts]:
    """The same from a process of low priority, which is put into `begun` for who wants to end it."""
    command = [sys.executable, "-m", "oelm_core.published.facts", *(["--presets", presets] if presets else [])]
    command += [] if keep else ["--keep-nothing"]
    process = subprocess.Popen(
        [*command, *([first] if first else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    begun.append(process)
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=CatalogueFacts)
    process.wait()


def main() -> None:
    import argparse

    from oelm_core.config.catalogue import load_catalogue

    parser = argparse.ArgumentParser(prog="python -m oelm_core.published.facts")
    parser.add_argument("--presets", type=Path)
    parser.add_argument("--keep-nothing", action="store_true")
    parser.add_argument("first", nargs="?")
    options = parser.parse_args()
    os.nice(10)
    for found in gather(load_catalogue(options.presets), options.first, not options.keep_nothing):
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
