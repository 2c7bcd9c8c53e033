"""What the name of an output folder says: the recipe without its replicate (seed, run number, date), seed and rate."""

from __future__ import annotations

import re
from pathlib import Path

_EDGE = r"(?:(?<=[^A-Za-z0-9])|^)"
_SEED = re.compile(rf"{_EDGE}(?:seed|sd|s)[-_=]?(\d{{1,9}})(?![A-Za-z0-9.])", re.I)
_REPEAT = re.compile(rf"{_EDGE}(?:run|rep|repeat|replicate|trial)[-_=]?\d{{1,4}}(?![A-Za-z0-9.])", re.I)
_DATE = re.compile(r"(?<!\d)20\d\d-?[01]\d-?[0-3]\d(?:[-_T]?\d\d[-_:]?\d\d[-_:]?\d\d)?(?!\d)")
_RATE = re.compile(rf"{_EDGE}(?:lr|rate)[-_=]?(\d+(?:\.\d+)?(?:e-?\d{{1,2}})?)(?![A-Za-z0-9.])", re.I)


def recipe_name(path: Path, seed: int | None = None) -> str:
    """The folder's name without what tells replicates apart; its parent's where nothing else is in it.

    >>> recipe_name(Path("out/sst2_oelm_seed43")), recipe_name(Path("sst2_oelm/seed43"))
    ('sst2_oelm', 'sst2_oelm')
    >>> recipe_name(Path("GPT-02_oelm_lr1e-3_run2_20260207_212017")), recipe_name(Path("sst2_43"), seed=43)
    ('GPT-02_oelm_lr1e-3', 'sst2')
    """
    for name in (path.name, path.parent.name):
        for part in (_DATE, _SEED, _REPEAT):
            name = part.sub("", name)
        if seed is not None:
            name = re.sub(rf"(?<=[_-]){seed}$", "", name)
        name = re.sub(r"([_-])[_-]+", r"\1", name).strip("_-. ")
        if name:
            return name
    return path.name


def seed_in_name(path: Path) -> int | None:
    """As `runs/seed43` or `sst2_s43` says it."""
    found = _SEED.search(path.name) or _SEED.search(path.parent.name)
    return int(found[1]) if found else None


def rate_in_name(path: Path) -> float | None:
    """The learning rate of `GPT-02_lr1e-3`.

    >>> rate_in_name(Path("IMDB_oelm_lr3e-3")), rate_in_name(Path("GPT-02"))
    (0.003, None)
    """
    found = _RATE.search(path.name)
    return float(found[1]) or None if found else None


def without_rate(name: str) -> str:
    """The name of a recipe, whatever its learning rate."""
    return _RATE.sub("", name).strip("_-. ")
