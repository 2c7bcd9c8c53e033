"""The whole bench: which subjects there are, measured one after another, gathered into one report."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oelm_core.bench import machine
from oelm_core.bench.claims import Effort, Section
from oelm_core.errors import BadInput, did_you_mean

SUBJECTS = {
    "gpt": "gpt",
    "bert": "encoder",
    "data": "data",
    "loop": "loop",
    "tui": "screen",
    "scaling": "scaling",
}


def choose(names: Sequence[str]) -> list[str]:
    """Subjects in their order; none or `all` means all of them."""
    asked = [name.lower() for name in names] or ["all"]
    for name in asked:
        if name not in SUBJECTS and name != "all":
            known = ", ".join([*SUBJECTS, "all"])
            raise BadInput(f"no bench '{name}'.{did_you_mean(name, SUBJECTS) or f' There are: {known}.'}")
    return [name for name in SUBJECTS if name in asked or "all" in asked]


def measure(
    names: Sequence[str],
    *,
    quick: bool = False,
    threads: int | None = None,
    command: str = "oelm bench",
    show: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], list[Section]]:
    """(report for JSON, sections). `show` is told what is being measured, and how long it took."""
    effort = Effort(quick, threads or os.cpu_count() or 1)
    about = machine.describe(effort.threads)
    began = time.monotonic()
    sections = []
    for name in choose(names):
        show(f"measuring {name}")
        start = time.monotonic()
        section: Section = importlib.import_module(f"oelm_core.bench.{SUBJECTS[name]}").measure(effort)
        section.seconds = time.monotonic() - start
        show(f"{name} took {section.seconds:.0f} s")
        if quick:  # tiny networks show that the bench works; they can neither meet nor miss a claim
            section.claims = [replace(claim, met=None) for claim in section.claims]
        sections.append(section)
    report = {
        "schema": 1,
        "command": command,
        "quick": quick,
        "created": time.time(),
        "seconds": time.monotonic() - began,
        "machine": about,
        "sections": [section.as_dict() for section in sections],
    }
    return report, sections
