"""Finds the preset that settles a doubt: one that differs from an arm in the doubted setting alone, and is there."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oelm_core.compare.arms import ArmEvidence
from oelm_core.compare.comparison import Finding
from oelm_core.compare.config_values import OWN, Config, is_imported
from oelm_core.compare.settings import SETTINGS, Settings, is_untouched, settings_of
from oelm_core.registry import is_orthonormal
from oelm_core.runs.schema import setting

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

METHOD = ("qk_norm", "qk_from", "init", "freeze", "layers", "unfreeze", "rates", "extras", "peer")
"""Settings that are the method's: a baseline leaves them alone."""


class ControlPresets:
    """The catalogue's presets, read as settings once, ready to be searched for controls."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue

    @functools.cached_property
    def _configs(self) -> dict[str, Config]:
        from oelm_core.config import as_dict

        experiments = self._catalogue.experiments.values() if self._catalogue else ()
        return {experiment.id: as_dict(experiment) for experiment in experiments}

    @functools.cached_property
    def _presets(self) -> list[tuple[str, Settings]]:
        return [(preset, settings_of(config)) for preset, config in self._configs.items()]

    def recipe_of(self, preset: str) -> Config | None:
        return next((config for name, config in self._configs.items() if name.lower() == preset.lower()), None)

    def untouched(self, config: Config) -> str | None:
        """The id of a preset that leaves attention as it is, with the rest of a configuration's recipe."""
        wanted = settings_of(config)
        rest = [name for name, one in SETTINGS.items() if one.of_control and name not in METHOD]
        for preset, settings in self._presets:
            same = all(_equal(settings[name], wanted[name]) for name in rest)
            if same and is_untouched(self._configs[preset]):
                return preset
        return None

    def with_recipe(self, arm: ArmEvidence) -> ArmEvidence:
        """An imported arm with the preset that would run it again, the one it is named by or one like it; others as is.

        Without any its preset is "", for a remedy must name one that is there.
        """
        if not is_imported(arm.config):
            return arm
        named = {preset.lower(): preset for preset in self._configs}.get(arm.preset.lower())
        alike = (preset for preset, config in self._configs.items() if _agrees(config, arm.config))
        preset = named or next(alike, "")
        return dataclasses.replace(arm, preset=preset, recipe=self._configs.get(preset))

    def with_known_presets(self, finding: Finding) -> Finding:
        """The finding; without its remedy where that would run a preset that the catalogue does not have."""
        words = shlex.split(finding.settle_with or "")
        if words[:2] != ["oelm", "run"]:
            return finding
        options = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
        known = {preset.lower() for preset in self._configs}
        if {word.lower() for word in words[2:options]} <= known:
            return finding
        return dataclasses.replace(finding, settle_with=None)

    def find(self, name: str, baseline: Config, arm: Config, presets: tuple[str, str]) -> str | None:
        """The id of a preset equal to one side but for `name`, where it has the other side's value; else a command.

        First the arm at the baseline's value, then the baseline at the arm's; for extras, whose credit is in doubt,
        the other way round. `presets`: ids of the two sides.
        """
        theirs, ours = settings_of(baseline), settings_of(arm)
        sides = ((ours, theirs), (theirs, ours))
        for kept, taken in sides[::-1] if name == "extras" else sides:
            wanted = {**kept, name: taken[name]}
            for preset, settings in self._presets:
                if _fits(settings, wanted, exact=name):
                    return preset
        return _command(name, baseline, arm, presets)


def _agrees(preset: Config, imported: Config) -> bool:
    """Whether a preset is what an imported run may have been: data and method are the same, nothing contradicts."""
    data, method = setting(imported, "data.name"), setting(imported, "method.name")
    if (data, method) != (setting(preset, "data.name"), setting(preset, "method.name")):
        return False
    counted = {**setting(imported, "data", {}), "train_examples": setting(preset, "data.train_examples")}
    told, wanted = settings_of({**imported, "data": counted, "method": {}}), settings_of(preset)
    return all(_allows(value, wanted[name]) for name, value in told.items() if SETTINGS[name].of_control)


def _allows(told: Any, wanted: Any) -> bool:
    if isinstance(told, Mapping) and isinstance(wanted, Mapping):
        return all(_allows(value, wanted.get(key)) for key, value in told.items())
    return told is None or _equal(told, wanted)


def _fits(candidate: Settings, wanted: Settings, exact: str) -> bool:
    decisive = (key for key, one in SETTINGS.items() if one.of_control or key == exact)
    return all(_equal(candidate[key], wanted[key]) for key in decisive)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    return bool(a == b)


def _command(name: str, baseline: Config, arm: Config, presets: tuple[str, str]) -> str | None:
    """The arm run with the baseline's setting."""
    theirs = settings_of(baseline)
    values = {key: setting(baseline, key) for key in SETTINGS[name].keys}
    changes, target = [f"{key}={value}" for key, value in values.items() if value is not None], presets[1]
    if name == "extras":  # the baseline with what the arm learns besides
        mine, given = setting(baseline, "method.extras", {}), setting(arm, "method.extras", {})
        changes = [f"method.extras.{key}={value}" for key, value in given.items() if mine.get(key) != value]
        target = presets[0]
    elif name == "qk_norm" and theirs["qk_norm"] is not None:
        changes = ["method.scale=keep" if theirs["qk_norm"] == OWN else f"method.scale={theirs['qk_norm']:.3g}"]
    elif name == "qk_from" and is_orthonormal(theirs["init"]) and theirs["qk_from"] == "pretrained":
        changes, target = ["method.from=gaussian"], presets[0]
    elif name == "qk_from" and theirs["init"] == "none":  # the arm with the pretrained weights left as they are
        changes = ["method.init=none"]
    return " ".join([f"oelm run {target}", *(f"--set {change}" for change in changes)]) if changes else None
