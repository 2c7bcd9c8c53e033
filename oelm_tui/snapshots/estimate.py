"""What a launch will cost: steps, time and memory by earlier runs; else by arithmetic, and it says so."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core import formatting
from oelm_core.devices.card import device_kind
from oelm_core.runs.schema import Result
from oelm_tui.snapshots import work
from oelm_tui.snapshots.run_view import RunView

if TYPE_CHECKING:
    from oelm_core.config import Experiment

CLOSE = 4.0
"""Steps whose work differs by at most this factor reach about the same FLOPs a second."""
JUDGED_BY = 5
"""So many of the newest runs are looked at."""


@dataclass(frozen=True)
class Estimate:
    steps: int | None
    steps_from: str
    seconds: float | None
    seconds_sign: str
    """"", "about", "at most" or "at least": how sure the seconds are."""
    seconds_from: str
    memory: float | None
    memory_from: str
    parameters: int | None = None
    frozen: int | None = None


def estimate(experiment: Experiment, views: Sequence[RunView], on: str = "cpu") -> Estimate:
    """`on`: cpu or gpu, the kind of device that is chosen. Reads files of earlier runs: for a thread."""
    usable = [view for view in views if device_kind(view.run.devices) == on and not view.run.imported]
    alike = [view for view in usable if _alike(view, experiment)]
    steps, steps_from = _steps(experiment, alike)
    count, frozen = work.parameters(experiment)
    return Estimate(
        steps, steps_from, *_time(experiment, steps, alike, usable, on), *_memory(experiment, alike, on), count, frozen
    )


def seconds_per_step(view: RunView) -> float | None:
    """By the wall clock of the run as a whole, evaluations included; of a resumed run it knows only the last part."""
    if view.pace:
        return 1 / view.pace
    run = view.run
    if run.state == "finished" and view.took and run.step and run.attempt <= 1:
        return view.took / run.step
    return None


def _steps(experiment: Experiment, alike: Sequence[RunView]) -> tuple[int | None, str]:
    train, data = experiment.train, experiment.data
    if train.max_steps is not None:
        return train.max_steps, "by the recipe"
    seen = next((view.run.total for view in alike if view.run.total and _same_length(view, experiment)), None)
    if seen:
        return seen, "as in earlier runs"
    epochs = train.epochs or 0.0
    examples = min(data.train_examples, data.limit or data.train_examples) if data.train_examples else data.limit
    if examples and data.path is None:
        from oelm_core.config.limits import steps_in_epochs

        steps = steps_in_epochs(epochs, examples, train.effective_batch)
        return steps, f"{epochs:g} epochs of {examples:,} examples"
    return None, f"{epochs:g} epochs, counted when the data is read"


def _time(
    experiment: Experiment, steps: int | None, alike: Sequence[RunView], usable: Sequence[RunView], on: str
) -> tuple[float | None, str, str]:
    """(seconds, how sure, by what)."""
    paces = [pace for view in alike if (pace := seconds_per_step(view)) is not None][:JUDGED_BY]
    if paces:
        pace = statistics.median(paces)
        words = f"from {_runs(len(paces))} of this model, data and batch"
        if steps is None:
            return None, "", f"{formatting.step_time(pace)} a step, {words}"
        return pace * steps, "about", words
    unknown = f"unknown: no earlier run of this model, data and batch on a {on.upper()} here"
    if steps is None:
        return None, "", unknown
    wanted = work.flops_per_step(experiment)
    nearest = _nearest_in_work(experiment, wanted, usable) if wanted else None
    if wanted is None or nearest is None:
        return None, "", unknown
    view, done, pace = nearest
    ratio = wanted / done
    # Small products keep a device less busy: a larger step reaches more FLOPs a second, a smaller one fewer.
    sign = "about" if 1 / CLOSE <= ratio <= CLOSE else "at most" if ratio > 1 else "at least"
    rate = formatting.flops(done / pace)
    return ratio * pace * steps, sign, f"{_times(ratio)} times the work of {view.run.preset}, at its {rate}"


def _nearest_in_work(
    experiment: Experiment, wanted: float, usable: Sequence[RunView]
) -> tuple[RunView, float, float] | None:
    """The earlier run of the family whose step is nearest in work: (run, its FLOPs a step, its seconds a step)."""
    found = []
    known: dict[str, float | None] = {}
    for view in usable:
        pace = seconds_per_step(view) if view.run.family == experiment.family else None
        if pace is None:
            continue
        if view.run.config_hash not in known:
            known[view.run.config_hash] = _work_of(view)
        done = known[view.run.config_hash]
        if done:
            found.append((view, done, pace))
    return min(found, key=lambda one: abs(math.log(wanted / one[1])), default=None)


def _work_of(view: RunView) -> float | None:
    from oelm_core.config import build_experiment
    from oelm_core.errors import LabError

    try:
        return work.flops_per_step(build_experiment(dict(view.run.config), view.run.id))
    except LabError:  # written by an older version: not to be judged by
        return None


def _memory(experiment: Experiment, alike: Sequence[RunView], on: str) -> tuple[float | None, str]:
    peaks = [peak for view in alike[:JUDGED_BY] if (peak := _peak(view, on)) is not None]
    if peaks:
        return max(peaks), f"the most that {_runs(len(peaks))} took"
    needed = work.bytes_needed(experiment)
    if needed is None:
        return None, "unknown: no earlier run, and what trains is not known by the preset alone"
    return needed, "counted, not measured: weights, Adam, activations in fp32"


def _peak(view: RunView, on: str) -> float | None:
    result = view.run.folder.read(Result)
    if result is None:
        return None
    return result.memory.host_peak if on == "cpu" else result.memory.device_peak


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _runs(count: int) -> str:
    return "an earlier run" if count == 1 else f"{count} earlier runs"


def _alike(view: RunView, experiment: Experiment) -> bool:
    if view.run.family != experiment.family or view.run.dataset != experiment.data.name:
        return False  # cheap questions first: the rest needs run.json
    same = {
        "model.name": experiment.model.name,
        "data.max_length": experiment.data.max_length,
        "train.batch_size": experiment.train.batch_size,
        "train.accumulate": experiment.train.accumulate,
    }
    return all(view.run.setting(key) == value for key, value in same.items())


def _same_length(view: RunView, experiment: Experiment) -> bool:
    run = view.run
    return bool(run.setting("train.epochs") == experiment.train.epochs) and run.setting("train.max_steps") is None
