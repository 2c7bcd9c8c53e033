"""What a run will cost: steps, time and memory by earlier runs; else by arithmetic on the preset, and it says so."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oelm_core import formatting
from oelm_core.config import Experiment, build_experiment
from oelm_core.config.limits import known_examples, steps_in_epochs
from oelm_core.devices.card import device_kind
from oelm_core.errors import LabError
from oelm_core.method.parameter_count import parameters
from oelm_core.runs.schema import Result
from oelm_core.runs.store import Run
from oelm_core.step_work import bytes_needed, flops_per_step

CLOSE = 4.0
"""Steps whose work differs by at most this factor reach about the same FLOPs a second."""
JUDGED_BY = 5
"""So many of the newest runs are looked at."""


@dataclass(frozen=True)
class Cost:
    """Each figure with what it is known by; None where it is not known."""

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
    together: str = ""
    """What several cards bring, where they were asked for: `oelm_core.scaling` knows."""


def estimate(
    experiment: Experiment, runs: Sequence[Run], on: str = "cpu", paces: Mapping[str, float] | None = None
) -> Cost:
    """The cost on a kind of device (cpu or gpu), by these runs, newest first. Reads their files: for a thread.

    `paces`: steps a second of runs under way, by run id, for who watches them.
    """
    usable = [run for run in runs if device_kind(run.devices) == on and not run.imported]
    step_times = {run.id: found for run in usable if (found := _step_time(run, (paces or {}).get(run.id))) is not None}
    same = [run for run in usable if alike(run, experiment)]
    steps, steps_from = steps_of(experiment, same)
    seconds = _time(experiment, steps, same, [run for run in usable if run.id in step_times], step_times, on)
    return Cost(steps, steps_from, *seconds, *_memory(experiment, same, on), *parameters(experiment))


# -- by earlier runs --------------------------------------------------------------------------------------------------


def _step_time(run: Run, pace: float | None) -> float | None:
    """Seconds a step by the wall clock of a whole run, evaluations included. Of a resumed run only a part is known."""
    if pace:
        return 1 / pace
    if run.state == "finished" and run.started and run.ended and run.step and run.attempt <= 1:
        return (run.ended - run.started) / run.step
    return None


def steps_of(experiment: Experiment, alike: Sequence[Run]) -> tuple[int | None, str]:
    """(steps, what they are known by): by the recipe, by runs of the same model, data and batch, by the set's size."""
    train = experiment.train
    if train.max_steps is not None:
        return train.max_steps, "by the recipe"
    epochs = train.epochs or 0.0
    seen = next((run.total for run in alike if run.total and _same_epochs(run, epochs)), None)
    if seen:
        return seen, "as in earlier runs"
    examples = known_examples(experiment.data)
    if examples:
        steps = steps_in_epochs(epochs, examples, train.effective_batch)
        return steps, f"{epochs:g} epochs of {examples:,} examples"
    return None, f"{epochs:g} epochs, counted when the data is read"


def _time(
    experiment: Experiment,
    steps: int | None,
    alike: Sequence[Run],
    timed: Sequence[Run],
    step_times: Mapping[str, float],
    on: str,
) -> tuple[float | None, str, str]:
    """(seconds, how sure, by what)."""
    times = [step_times[run.id] for run in alike if run.id in step_times][:JUDGED_BY]
    if times:
        step_time = statistics.median(times)
        words = f"from {_runs(len(times))} of this model, data and batch"
        if steps is None:
            return None, "", f"{formatting.step_time(step_time)} a step, {words}"
        return step_time * steps, "about", words
    wanted = flops_per_step(experiment) if steps is not None else None
    nearest = _nearest_in_work(wanted, [run for run in timed if run.family == experiment.family]) if wanted else None
    if steps is None or wanted is None or nearest is None:
        return None, "", f"unknown: no earlier run of this model, data and batch on a {on.upper()} here"
    run, work = nearest
    ratio, step_time = wanted / work, step_times[run.id]
    # Small products keep a device less busy: a larger step reaches more FLOPs a second, a smaller one fewer.
    sign = "about" if 1 / CLOSE <= ratio <= CLOSE else "at most" if ratio > 1 else "at least"
    times_words = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    rate = formatting.flops(work / step_time)
    return ratio * step_time * steps, sign, f"{times_words} times the work of {run.preset}, at its {rate}"


def _nearest_in_work(wanted: float, runs: Sequence[Run]) -> tuple[Run, float] | None:
    """The run whose step is nearest in work, and its FLOPs a step."""
    newest: dict[str, Run] = {}
    for run in runs:
        newest.setdefault(run.config_hash, run)
    found = [(run, work) for run in newest.values() if (work := _work_of(run))]
    return min(found, key=lambda one: abs(math.log(wanted / one[1])), default=None)


def _work_of(run: Run) -> float | None:
    try:
        return flops_per_step(build_experiment(dict(run.config), run.id))
    except LabError:  # written by an older version: not to be judged by
        return None


def _memory(experiment: Experiment, alike: Sequence[Run], on: str) -> tuple[float | None, str]:
    peaks = [peak for run in alike[:JUDGED_BY] if (peak := _peak(run, on)) is not None]
    if peaks:
        return max(peaks), f"the most that {_runs(len(peaks))} took"
    needed = bytes_needed(experiment)
    if needed is None:
        return None, "unknown: no earlier run, and what trains is not known by the preset alone"
    return needed, "counted, not measured: weights, Adam, activations in fp32"


def _peak(run: Run, on: str) -> float | None:
    result = run.folder.read(Result)
    if result is None:
        return None
    return result.memory.host_peak if on == "cpu" else result.memory.device_peak


def _runs(count: int) -> str:
    return "an earlier run" if count == 1 else f"{count} earlier runs"


def alike(run: Run, experiment: Experiment) -> bool:
    """Whether a run's steps are of the same model, data and batch."""
    if run.family != experiment.family or run.dataset != experiment.data.name:
        return False  # cheap questions first: the rest needs run.json
    same = {
        "model.name": experiment.model.name,
        "data.max_length": experiment.data.max_length,
        "train.batch_size": experiment.train.batch_size,
        "train.accumulate": experiment.train.accumulate,
        "train.checkpoint_activations": experiment.train.checkpoint_activations,
        "train.shard": experiment.train.shard,
    }
    return all(run.setting(key) == value for key, value in same.items())


def _same_epochs(run: Run, epochs: float) -> bool:
    return bool(run.setting("train.epochs") == epochs) and run.setting("train.max_steps") is None
