"""Finds the preset that settles a doubt: one that differs from an arm in the doubted setting alone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from oelm_core.compare.config_values import OWN, Config
from oelm_core.compare.settings import SETTINGS, Settings, settings_of
from oelm_core.registry import is_orthonormal
from oelm_core.runs.schema import setting

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


class ControlPresets:
    """The catalogue's presets, read as settings once, ready to be searched for controls."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue

    @functools.cached_property
    def _presets(self) -> list[tuple[str, Settings]]:
        from oelm_core.config import as_dict

        experiments = self._catalogue.experiments.values() if self._catalogue else ()
        return [(experiment.id, settings_of(as_dict(experiment))) for experiment in experiments]

    def find(self, name: str, baseline: Config, arm: Config, presets: tuple[str, str]) -> str | None:
        """The id of a preset equal to one side but for `name`, where it has the other side's value; else a command.

        First the arm at the baseline's value, then the baseline at the arm's. `presets`: ids of the two sides.
        """
        theirs, ours = settings_of(baseline), settings_of(arm)
        for kept, taken in ((ours, theirs), (theirs, ours)):
            wanted = {**kept, name: taken[name]}
            for preset, settings in self._presets:
                if _fits(settings, wanted, exact=name):
                    return preset
        return _command(name, theirs, baseline, presets)


def _fits(candidate: Settings, wanted: Settings, exact: str) -> bool:
    decisive = (key for key, one in SETTINGS.items() if one.of_control or key == exact)
    return all(_equal(candidate[key], wanted[key]) for key in decisive)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    return bool(a == b)


def _command(name: str, theirs: Settings, baseline: Config, presets: tuple[str, str]) -> str | None:
    """The arm run with the baseline's setting."""
    values = {key: setting(baseline, key) for key in SETTINGS[name].keys}
    changes, target = [f"{key}={value}" for key, value in values.items() if value is not None], presets[1]
    if name == "qk_norm" and theirs["qk_norm"] is not None:
        changes = ["method.scale=keep" if theirs["qk_norm"] == OWN else f"method.scale={theirs['qk_norm']:.3g}"]
    elif name == "qk_from" and is_orthonormal(theirs["init"]) and theirs["qk_from"] == "pretrained":
        changes, target = ["method.from=gaussian"], presets[0]
    elif name == "qk_from" and theirs["init"] == "none":  # the arm with the pretrained weights left as they are
        changes = ["method.init=none"]
    return " ".join([f"oelm run {target}", *(f"--set {change}" for change in changes)]) if changes else None
