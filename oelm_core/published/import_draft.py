"""What an output folder of any program says of a run, in the words of our records, before it becomes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oelm_core.runs.schema import MetricLine, Result, RunState


@dataclass
class Draft:
    """A run to be; what its files do not say is absent."""

    path: Path
    kind: str
    """Which program wrote it."""
    fingerprint: str
    """Of the files' content: the same folder is imported once."""
    recipe: str
    """Its name without what tells replicates apart."""
    config: dict[str, Any]
    """Our configuration with the parts that are known."""
    result: Result
    state: RunState
    created: float
    seed: int | None = None
    lines: list[MetricLine] = field(default_factory=list)
    """By step; their `t` is 0 where no time is known."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what could not be known, or was taken from elsewhere."""
    log: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)
    """What else its folder keeps, by name."""
