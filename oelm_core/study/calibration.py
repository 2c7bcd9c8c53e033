"""Calibrations: what a preset showed when it was compared with itself, and how its seeds spread.

They are kept in `$OELM_HOME/calibrations`; those of the demo come with the presets.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from oelm_core.config.catalogue import SHIPPED
from oelm_core.errors import Refused
from oelm_core.home import home
from oelm_core.metric import metric_named
from oelm_core.runs.folder import read_record, write_record


class Calibration(Struct, kw_only=True):
    """calibrations/PRESET-HASH.json"""

    preset: str
    config_hash: str
    metric: str
    basis: str
    """Where the scores come from: test, cross-fitted or best."""
    seeds: list[int]
    scores: list[float]
    """One a seed, as the metric is written in files."""
    false_alarms: dict[str, float] = {}
    """Share of splits in which the preset differed from itself at 5 %, by seeds a side."""
    splits: dict[str, int] = {}
    """How many splits were looked at, by seeds a side."""
    weights: str = ""
    """Fingerprint of the network that the runs began with; "" serves all: the demo's is made anew on each machine."""
    text: str = ""
    """Fingerprint of the data."""
    created: float = 0.0
    host: str = ""

    @property
    def overall(self) -> float | None:
        """False alarms over all splits."""
        count = sum(self.splits.values())
        return sum(self.false_alarms[k] * self.splits[k] for k in self.splits) / count if count else None

    @property
    def spread(self) -> float:
        """Standard deviation between seeds: of a share of one, else relative."""
        share = metric_named(self.metric).is_share
        values = self.scores if share else [math.log(score) for score in self.scores]
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((one - mean) ** 2 for one in values) / max(1, len(values) - 1))


@dataclass(frozen=True)
class CalibrationFacts:
    """What a table says of a calibration it rests on."""

    preset: str
    seeds: int
    spread: float
    """Standard deviation between seeds, on the scale of the gap."""
    false_alarms: float | None
    """Share of comparisons of the preset with itself that found a difference at 5 %."""
    source: str
    """When and where it was made."""
    basis: str = ""
    """Where its scores come from, which may be other than the table's."""


def facts(found: Calibration) -> CalibrationFacts:
    day = datetime.datetime.fromtimestamp(found.created, datetime.timezone.utc).date().isoformat()
    source = f"{day} on {found.host}" if found.host else day
    return CalibrationFacts(found.preset, len(found.seeds), found.spread, found.overall, source, found.basis)


def calibrations_dir() -> Path:
    return home() / "calibrations"


def calibration_path(found: Calibration, headline: str) -> Path:
    """Where it is kept; other metrics than the preset's `headline` stand beside it."""
    other = "" if found.metric == headline else f"-{found.metric}"
    return calibrations_dir() / f"{found.preset}-{found.config_hash[:8]}{other}.json"


def save_calibration(found: Calibration, path: Path) -> None:
    """Refused where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, found)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}.") from None


def find_calibration(
    config_hash: str, metric: str, basis: str = "best", weights: str | None = None, text: str | None = None
) -> Calibration | None:
    """The newest of a recipe on this network and text: made here, else one that came with the presets.

    Seeds spread otherwise on a test text than on validation, so one does not stand for the other.
    """
    for folder in (calibrations_dir(), SHIPPED / "calibrations"):
        found = [
            one
            for one in _read_all(folder)
            if (one.config_hash, one.metric) == (config_hash, metric)
            and (one.basis == "test") == (basis == "test")
            and all(not a or not b or a == b for a, b in ((one.weights, weights), (one.text, text)))
        ]
        if found:
            return max(found, key=lambda one: one.created)
    return None


def _read_all(folder: Path) -> Iterator[Calibration]:
    """Files that do not fit are passed over."""
    for path in sorted(folder.glob("*.json")):
        found = read_record(path, Calibration, follow=True)
        if found is not None and len(found.seeds) == len(found.scores) > 1:
            yield found
