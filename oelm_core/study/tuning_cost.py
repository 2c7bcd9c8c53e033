"""How long a tuning will take, by what earlier runs took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oelm_core import formatting
from oelm_core.config import override
from oelm_core.config.tuning import point_settings
from oelm_core.estimate import Cost, estimate
from oelm_core.launch import device_request
from oelm_core.runs.store import list_runs

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.study.tuning_plan import TuningPlan


def tuning_cost(plan: TuningPlan) -> list[str]:
    """A line on each arm's time and one on the whole."""
    runs = list_runs()
    kind, at_once = _lanes(plan)
    lines, total, unknown = [], 0.0, []
    for arm in plan.arms:
        costs = [estimate(override(arm, point_settings(point)), runs, kind) for point in plan.points]
        known = [cost.seconds for cost in costs if cost.seconds is not None]
        lines.append(f"{arm.id}: {_words(costs, len(plan.seeds))}")
        if len(known) < len(costs):
            unknown.append(arm.id)
        else:
            mean = sum(known) / len(known)
            total += sum(known) * len(plan.seeds) + mean * len(plan.fresh_seeds)
    if unknown:
        return [*lines, f"in all: unknown, for want of an earlier run of {formatting.listed(unknown)}"]
    words = f"in all: about {formatting.duration(total)} of runs"
    if at_once is not None and at_once > 1:
        words += f", {formatting.duration(total / at_once)} with {at_once} of them at a time"
    return [*lines, words]


def _words(costs: list[Cost], seeds: int) -> str:
    known = [cost for cost in costs if cost.seconds is not None]
    if len(known) < len(costs):
        return next(cost.seconds_from for cost in costs if cost.seconds is None)
    seconds = sum(cost.seconds or 0.0 for cost in known) * seeds
    return f"{known[0].seconds_sign} {formatting.duration(seconds)} of draws, {known[0].seconds_from}"


def _lanes(plan: TuningPlan) -> tuple[str, int | None]:
    """(cpu or gpu, how many runs go at a time here; None where the queue decides)."""
    launch = plan.launch
    if launch.launcher == "slurm":
        return "cpu" if launch.device.lower() == "cpu" else "gpu", None
    cards = device_request.probe(patience=3.0) if device_request.parse_device(launch.device) != [] else []
    threads = max((_threads(arm) for arm in plan.arms), default=None)
    devices = device_request.resolve(launch.device, launch.per_run, threads, cards or [])
    return "cpu" if devices.kind == "cpu" else "gpu", len(devices.allowed) // max(1, devices.needs)


def _threads(arm: Experiment) -> int:
    return arm.train.threads or device_request.cores_wanted(None, 1)
