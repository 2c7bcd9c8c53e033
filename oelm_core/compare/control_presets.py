"""Finds the preset that settles a doubt: one that differs from an arm in the doubted setting alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oelm_core.compare.settings import OWN, settings_of
from oelm_core.registry import is_orthonormal

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

# settings that follow from others, or do not decide what a control shows
_LOOSE = {"clock", "eval_every", "batching", "compile", "tokenizer"}
# a setting as an override on the command line
_TRAIN_KEYS = {
    "effective_batch": ("batch_size", "accumulate"),
    "accumulate": ("batch_size", "accumulate"),
    "duration": ("max_steps", "epochs"),
    "warmup": ("warmup_steps", "warmup_ratio"),
    "optimiser": ("weight_decay", "eps", "clip"),
}
_KEYS = {
    "lr": "train.lr",
    "schedule": "train.schedule",
    "precision": "train.precision",
    "eval_every": "train.eval_every",
    "batching": "train.batching",
    "compile": "train.compile",
    "max_length": "data.max_length",
    "dropout": "model.dropout",
}


class Controls:
    """The catalogue's presets, read as settings once, ready to be searched for controls."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue

    @functools.cached_property
    def _presets(self) -> list[tuple[str, dict[str, Any]]]:
        from oelm_core.config import as_dict

        experiments = self._catalogue.experiments.values() if self._catalogue else ()
        return [(experiment.id, settings_of(as_dict(experiment))) for experiment in experiments]

    def find(
        self, name: str, baseline: Mapping[str, Any], arm: Mapping[str, Any], presets: tuple[str, str]
    ) -> str | None:
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


def _fits(candidate: Mapping[str, Any], wanted: Mapping[str, Any], exact: str) -> bool:
    for key, value in wanted.items():
        if key in _LOOSE and key != exact:
            continue
        if not _equal(candidate.get(key), value):
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    return bool(a == b)


def _command(name: str, theirs: Mapping[str, Any], baseline: Mapping[str, Any], presets: tuple[str, str]) -> str | None:
    train, target = baseline.get("train") or {}, presets[1]
    settings: list[str] = []
    if name in _TRAIN_KEYS:
        settings = [f"train.{key}={train[key]}" for key in _TRAIN_KEYS[name] if train.get(key) is not None]
    elif name == "qk_norm":
        settings = ["method.scale=keep" if theirs["qk_norm"] == OWN else f"method.scale={theirs['qk_norm']:.3g}"]
    elif name == "qk_from" and is_orthonormal(theirs["init"]) and theirs["qk_from"] == "pretrained":
        settings, target = ["method.from=gaussian"], presets[0]
    elif name == "qk_from" and theirs["init"] == "none":  # the arm with the pretrained weights left as they are
        settings = ["method.init=none"]
    elif name in _KEYS:
        settings = [f"{_KEYS[name]}={theirs[name]}"]
    return " ".join([f"oelm run {target}", *(f"--set {text}" for text in settings)]) if settings else None
