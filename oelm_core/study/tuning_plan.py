"""What one `oelm tune` will do, decided and checked before anything runs: arms, points, seeds, pruner."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oelm_core.config import Experiment, Study, as_dict, config_hash, override
from oelm_core.config.tuning import PRUNERS, Dimension, parse_space, point_settings, tuning_seeds
from oelm_core.errors import BadInput
from oelm_core.launch.request import LaunchRequest
from oelm_core.runs.store import find_run
from oelm_core.study.points import Point, draw_points

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue

PRUNED_FROM = 10
"""Budget from which draws are pruned unless said otherwise: fewer have no median worth the name."""


class TuningRequest(Struct, frozen=True):
    """Everything one `oelm tune` asks for."""

    launch: LaunchRequest
    """The study, and where and how its runs run."""
    budget: int
    space: tuple[str, ...] = ()
    """Texts of --space; none means the study's own."""
    seeds: tuple[int, ...] = ()
    fresh_seeds: tuple[int, ...] = ()
    pruner: str | None = None


@dataclass(frozen=True)
class TuningPlan:
    """A request with everything decided and checked."""

    study: Study
    arms: tuple[Experiment, ...]
    launch: LaunchRequest
    catalogue: Catalogue
    space: dict[str, Dimension]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]
    pruner: str
    asked_pruner: str | None

    @property
    def id(self) -> str:
        """Names the tuning: the study, and a hash of what a draw's result depends on. More draws only add to it."""
        content = {
            "arms": {arm.id: config_hash(as_dict(arm)) for arm in self.arms},
            "space": {key: one.text for key, one in self.space.items()},
            "seeds": self.seeds,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{self.study.id}-{digest[:8]}"

    @property
    def draws(self) -> int:
        """Runs that try points."""
        return len(self.points) * len(self.arms) * len(self.seeds)

    @property
    def chosen(self) -> int:
        """Runs of chosen settings."""
        return len(self.arms) * len(self.fresh_seeds)


def make_plan(request: TuningRequest, catalogue: Catalogue) -> TuningPlan:
    """Draws the points and tries every one on every arm's recipe; BadInput with one sentence where something is off."""
    launch = request.launch
    study = catalogue.study(launch.study or "")
    if request.pruner not in (None, *PRUNERS):
        raise BadInput(f"--pruner {request.pruner}: write {' or '.join(PRUNERS)}.")
    if launch.after:  # found once: @last would soon mean a draw
        launch = replace(launch, after=find_run(launch.after).id)
    arms = tuple(launch.experiments(catalogue))
    space = _space(request, study, arms[0])
    own = study.tune
    try:
        seeds, fresh = tuning_seeds(
            request.seeds or (own.seeds if own else None),
            request.fresh_seeds or (own.fresh_seeds if own else None),
            study.seeds,
        )
    except ValueError as error:
        raise BadInput(f"{study.id}: {error}, with --seed and --fresh-seeds.") from None
    _try_on(arms, draw_points(space, 1))  # an unknown setting is said before the space is found too small
    if request.budget < 1:
        raise BadInput(f"--budget {request.budget}: an arm needs at least one draw.")
    points = tuple(draw_points(space, request.budget))
    _try_on(arms, points)
    asked = request.pruner or (own.pruner if own else None)
    pruner = asked or ("median" if request.budget >= PRUNED_FROM else "none")
    return TuningPlan(study, arms, launch, catalogue, space, points, seeds, fresh, pruner, asked)


def _try_on(arms: Iterable[Experiment], points: Iterable[Point]) -> None:
    for arm, point in itertools.product(arms, points):
        override(arm, point_settings(point))


def _space(request: TuningRequest, study: Study, arm: Experiment) -> dict[str, Dimension]:
    space = parse_space(request.space) or (study.tune.space if study.tune else {})
    if not space:
        write = "write --space train.lr=1e-5..1e-3:log, or tune: {space: ...} in its file"
        raise BadInput(f"study {study.id} says nothing about what to tune; {write}.")
    for text in request.launch.settings:
        if text.partition("=")[0].strip() in space:
            raise BadInput(f"--set {text}: that setting is being tuned; leave out --set, or take it out of the space.")
    return {key: _as_the_setting_takes_it(key, one, arm) for key, one in space.items()}


def _as_the_setting_takes_it(key: str, one: Dimension, arm: Experiment) -> Dimension:
    """0..1 of a weight decay is a range of real numbers, 8..32 of a batch size one of whole numbers."""
    if one.is_whole:
        with contextlib.suppress(BadInput):
            override(arm, [f"{key}={one.low + 0.5}"])
            return Dimension(low=float(one.low), high=float(one.high), log=one.log)
    return one
