"""`oelm doctor`: is this machine ready?"""

from __future__ import annotations

from oelm_tui.commands.options import AsJson, single
from oelm_tui.console import print_json

MARKS = {"good": ("✔", "green"), "warn": ("!", "yellow"), "bad": ("✘", "red")}


def doctor(as_json: AsJson = False) -> None:
    """Check the machine, and say how to mend what is missing."""
    from dataclasses import asdict

    from oelm_core.doctor import examine
    from oelm_core.errors import LabError

    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            _print(finding.grade, finding.check, finding.found, finding.mend)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    bad = [finding.check for finding in findings if finding.grade == "bad"]
    if bad:
        raise LabError(f"not ready yet: {', '.join(bad)}.")


def _print(grade: str, check: str, found: str, mend: str) -> None:
    from rich.text import Text

    from oelm_tui.console import console

    mark, colour = MARKS[grade]
    out = console()
    out.print(Text.assemble((f"{mark} ", colour), (f"{check:<10}", "bold"), found))
    for line in mend.splitlines():
        out.print(Text(f"  {'':<10}{line}", style="dim"))


apps = {"doctor": single(doctor)}
