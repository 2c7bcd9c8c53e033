"""An experiment and a study as a whole, and the checks between their sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from oelm_core.config.limits import planned_steps, sizes_of, unfreezing_starts
from oelm_core.config.published import Claim, Published
from oelm_core.config.sections import (
    Data,
    FamilyName,
    Line,
    Method,
    Model,
    Section,
    Seed,
    Target,
    Train,
    Unfreeze,
    layer_numbers,
)
from oelm_core.config.slurm import check_settings
from oelm_core.config.tuning import Tune, tuning_seeds
from oelm_core.config.validation import validated
from oelm_core.data.sets import find_set
from oelm_core.data.test_source import SPLITS
from oelm_core.metric import default_metric
from oelm_core.registry import FAMILIES, INITIALISERS


class Experiment(Section):
    """One arm: everything needed to run it, its baseline, and what was published about it."""

    id: str
    title: Line
    family: FamilyName
    baseline: str | None = None
    """Id of the arm this one is compared with; None for a baseline."""
    about: str = ""
    """What the arm is for, in a sentence or two."""
    finding: str = ""
    """Why we recommend it: what docs/findings.md found, in a sentence. Empty for all others, the author's too."""
    model: Model
    data: Data
    method: Method
    train: Train
    seed: Seed = 42
    target: Target | None = None
    published: Published | None = None
    slurm: Annotated[dict[str, Any], AfterValidator(check_settings)] | None = None
    """Site settings of this preset under Slurm, over slurm.yaml: time, memory, constraint and the like."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Experiment:
        _check_family(self)
        _check_method(self)
        _check_test(self.data)
        _check_published(self)
        return self

    @property
    def metric(self) -> str:
        return self.data.metric or default_metric(self.data.classes)

    @property
    def arch(self) -> str:
        return self.model.arch or FAMILIES[self.family].architectures[0]

    @property
    def start(self) -> str:
        return self.model.start or FAMILIES[self.family].start

    @property
    def is_baseline(self) -> bool:
        return self.baseline is None


def _each_once(seeds: list[int]) -> list[int]:
    return list(dict.fromkeys(seeds))


class Study(Section):
    """Arms x seeds: what gets compared in one table."""

    id: str
    title: Line
    question: str
    arms: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1, max_length=10_000), AfterValidator(_each_once)] = [42]
    pause: Annotated[float, Field(ge=0, le=1_000_000)] = 0
    """Seconds between runs on one device, so that one does not warm the card for the next."""
    contrasts: list[tuple[str, str]] = []
    """Arms to set against one another, beside each against its baseline: [[sst2-oelm, sst2-random]]."""
    table: Literal["matrix", "ablation", "cross-dataset", "timing", "curve"] = "matrix"
    claims: list[Claim] = []
    """Published figures about the study as a whole: gaps, averages, speed-ups."""
    tune: Tune | None = None
    """What `oelm tune` searches, the same for every arm."""

    @model_validator(mode="after")
    def _tuning_leaves_fresh_seeds(self) -> Study:
        if self.tune:
            tuning_seeds(self.tune.seeds, self.tune.fresh_seeds, self.seeds)
        return self


def _check_family(exp: Experiment) -> None:
    positions = sizes_of(exp.model).positions
    if exp.data.classes is None and not FAMILIES[exp.family].language:
        raise ValueError(f"data.classes is missing; a {exp.family} experiment classifies, so say how many classes")
    if positions and exp.data.max_length > positions:
        raise ValueError(f"data.max_length {exp.data.max_length} is longer than the model's {positions} positions")
    if exp.start == "scratch" and exp.model.path is None and exp.model.shape is None:
        raise ValueError("model.shape is missing; a model from scratch needs its sizes")


def _check_test(data: Data) -> None:
    """Refuses a split that a named set does not have, or has without labels, before anything is launched."""
    named = find_set(data.name)
    if data.path is not None or named is None or data.test not in SPLITS or data.test in named.splits:
        return
    if data.test == "test" and named.test is not None:
        return
    share = "; hold a part of the training examples out (held-out 0.1) or name a file" if data.classes else ""
    if data.test == "test" and named.kind == "classification":
        raise ValueError(f"data.test: the test split of {named.title} has no labels{share}")
    raise ValueError(f"data.test: {named.title} has no {data.test} split{share or '; name a file of text'}")


def _check_method(exp: Experiment) -> None:
    method = exp.method
    if INITIALISERS[method.init].has_source and method.source == "pretrained" and exp.start == "scratch":
        raise ValueError("method.from is pretrained but the model starts from scratch; write from: gaussian")
    if exp.is_baseline and method.freeze:
        raise ValueError("method.freeze is set on a baseline; name the baseline it is compared with")
    if exp.is_baseline and method.init != "none":
        raise ValueError(f"method.init is {method.init} on a baseline; a baseline's Q/K stay untouched (init: none)")
    layers = sizes_of(exp.model).layers
    chosen = layer_numbers(method.layers, layers) if layers else None
    if method.unfreeze:
        _check_unfreeze(method.unfreeze, chosen, planned_steps(exp.train, exp.data))


def _check_unfreeze(unfreeze: Unfreeze, chosen: list[int] | None, total: int | None) -> None:
    """Refuses a layer that would be let go after the end; in millionths of training while its steps are not known."""
    if chosen == []:
        raise ValueError("method.unfreeze is set but method.layers chooses no layer; write layers: all")
    if total is None and (unfreeze.at >= 1 or (unfreeze.every or 0) >= 1):
        return  # steps of a recipe in epochs are known once the data is
    end = f"the end of training{f' at step {total}' if total else ''}"
    starts = unfreezing_starts(unfreeze, chosen or [0], total or 1_000_000)
    if min(starts.values()) >= (total or 1_000_000):
        raise ValueError(f"method.unfreeze.at {unfreeze.at:g} is past {end}")
    if max(starts.values()) >= (total or 1_000_000):
        every = f"every {unfreeze.every:g}" if unfreeze.every else f"at {unfreeze.at:g}"
        raise ValueError(f"method.unfreeze.{every} lets the last of {len(starts)} layers go past {end}")


def _check_published(exp: Experiment) -> None:
    if exp.published and exp.published.as_run:
        allowed = {"method", "train", "data", "model", "clock"}
        for key in exp.published.as_run:
            if key not in allowed:
                raise ValueError(f"published.as_run.{key} is none of: {', '.join(sorted(allowed))}")


def build_experiment(raw: Mapping[str, Any], where: str) -> Experiment:
    return validated(Experiment, raw, where)


def build_study(raw: Mapping[str, Any], where: str) -> Study:
    return validated(Study, raw, where)
