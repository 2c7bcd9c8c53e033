"""Equal tuning: every arm of a study tries the same points, and its best one runs on fresh seeds.

Each draw is an ordinary detached run that carries the tuning in its run.json, so the runs themselves are the state:
`tuning.json` only holds the points, which draws were pruned, and what was chosen. Whoever dies in the middle starts
the same command again; it finds the runs that are there and goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from oelm_core.compare.draws import Draw, best_draw, draws_of
from oelm_core.config import Experiment, Study, override
from oelm_core.config.tuning import point_settings
from oelm_core.errors import Refused, refusing
from oelm_core.launch import launcher as launchers
from oelm_core.launch.request import RunRequest
from oelm_core.metric import metric_named
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import Tuning
from oelm_core.runs.status import LIVE
from oelm_core.shared_files import open_shared_alike
from oelm_core.study.pruning import DrawCurve, mean_curve, to_prune
from oelm_core.study.registration import plan_of, register
from oelm_core.study.tuning_plan import TuningPlan
from oelm_core.study.tuning_record import Pruned, TuningRecord, continued, tuning_folder

if TYPE_CHECKING:
    from oelm_core.runs.store import Run

RESUMES = 3
"""Times that one command resumes a run that keeps getting lost."""
SECONDS_TO_RETURN = 30.0
"""After a resume, until the run's folder must show it."""
NOT_THE_SETTING = frozenset(
    {"signal", "timeout", "preempted", "node_fail", "disk", "gpu_fault", "nccl", "hang", "dependency"}
)
"""Reasons for which a failed run says nothing about its point."""

Role = Literal["draw", "chosen"]


class Lab(Protocol):
    """Where runs are started and watched; tests bring their own."""

    def start(self, requests: Sequence[RunRequest]) -> object: ...

    def runs(self) -> list[Run]: ...

    def stop(self, run: Run) -> None: ...

    def resume(self, run: Run) -> None: ...

    def register(self, study: Study, arms: Sequence[Experiment], seeds: Sequence[int]) -> object: ...


@dataclass(frozen=True)
class RunningLab:
    """This machine, or Slurm."""

    launcher: str
    started: Callable[[str], object] = lambda run_id: None

    def start(self, requests: Sequence[RunRequest]) -> None:
        launchers.start_all(self.launcher, requests, lambda folder: self.started(folder.id))

    def runs(self) -> list[Run]:
        return launchers.list_runs()

    def stop(self, run: Run) -> None:
        launchers.stop(run)

    def resume(self, run: Run) -> None:
        launchers.resume(run)

    def register(self, study: Study, arms: Sequence[Experiment], seeds: Sequence[int]) -> None:
        register(plan_of(study, arms, seeds))


@contextlib.contextmanager
def open_tuning(plan: TuningPlan, lab: Lab, command: Sequence[str]) -> Iterator[StudyTuning]:
    """The tuning, begun or continued; while it is open no other process launches its draws."""
    folder = tuning_folder(plan.id)
    with refusing(f"cannot keep the tuning in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_shared_alike(folder / "lock", os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                raise Refused(f"cannot lock {folder}: {error.strerror}; move OELM_HOME to a disk with locks.") from None
            raise Refused(
                f"another `oelm tune` looks after {plan.id} at this moment; wait for it, or stop it."
            ) from None
        yield StudyTuning(plan, continued(plan, command), lab, command)
    finally:
        os.close(lock)


# -- ask and tell ------------------------------------------------------------------------------------------------------


class Job(Struct, frozen=True):
    """One run that a tuning wants."""

    role: Role
    arm: str
    point: int
    seed: int


class Resume(NamedTuple):
    attempt: int
    """The one that had ended."""
    at: float
    """By the monotonic clock."""


@dataclass(frozen=True)
class Progress:
    """Where a tuning stands, in runs."""

    draws: int
    draws_over: int
    chosen: int
    chosen_over: int
    halted: tuple[Run, ...]
    """Stopped by somebody, or by the machine: the same command continues them."""
    hopeless: tuple[str, ...] = ()
    """Arms whose every draw failed."""
    under_way: int = 0

    @property
    def is_over(self) -> bool:
        """Nothing is left to wait for."""
        return not self.under_way and (bool(self.halted) or self.is_done)

    @property
    def is_done(self) -> bool:
        return self.draws_over == self.draws and self.chosen_over == self.chosen


@dataclass
class StudyTuning:
    """A tuning that goes on. `advance` does what can be done now; nothing is remembered but files and runs."""

    plan: TuningPlan
    record: TuningRecord
    lab: Lab
    command: Sequence[str]
    _resumes: dict[str, list[Resume]] = field(default_factory=dict)
    """By run id: what this command did."""
    _first: bool = True

    def advance(self) -> Progress:
        """Starts what is missing, resumes what was lost, prunes what is not worth its end; after the draws chooses."""
        made = self._runs()
        self._start(job for job in self._draws_wanted() if job not in made)
        self._continue(made)
        if self.record.pruner == "median":
            self._prune(made)
        made, wanted = self._runs(), self._draws_wanted()
        over = [job for job in wanted if self._is_over(job, made)]
        if len(over) == len(wanted):
            self._choose(made)
            missing = [job for job in self._chosen_wanted() if job not in made]
            if missing:
                self._register()
                self._start(missing)
                made = self._runs()
        self._first = False
        return self._progress(made, wanted, over)

    def choices(self) -> list[tuple[Experiment, Draw]]:
        """What each arm chose; an arm whose draws all failed is missing."""
        made = self._runs()
        found = [(arm, best_draw(self._draws(arm.id, made), arm.metric)) for arm in self.plan.arms]
        return [(arm, best) for arm, best in found if best is not None and arm.id in self.record.chosen]

    # -- the runs ------------------------------------------------------------------------------------------------------

    def _runs(self) -> dict[Job, Run]:
        """The newest run of each job that has one."""
        ids = {arm.id.lower(): arm.id for arm in self.plan.arms}
        made: dict[Job, Run] = {}
        for run in sorted(self.lab.runs(), key=lambda run: run.created):
            if run.tuning is not None and run.tuning.id == self.record.id and run.preset.lower() in ids:
                made[Job(run.tuning.role, ids[run.preset.lower()], run.tuning.point, run.seed)] = run
        return made

    def _draws_wanted(self) -> list[Job]:
        """Point by point, arms in turns; a draw that was pruned wants nothing more."""
        return [
            Job("draw", arm.id, point, seed)
            for point in range(1, len(self.record.points) + 1)
            for seed in self.plan.seeds
            for arm in self.plan.arms
            if Pruned(arm.id, point) not in self.record.pruned
        ]

    def _chosen_wanted(self) -> list[Job]:
        return [
            Job("chosen", arm.id, self.record.chosen[arm.id], seed)
            for seed in self.plan.fresh_seeds
            for arm in self.plan.arms
            if arm.id in self.record.chosen
        ]

    def _start(self, jobs: Iterable[Job]) -> None:
        requests = [self._request(job) for job in jobs]
        if requests:
            self.lab.start(requests)

    def _request(self, job: Job) -> RunRequest:
        settings = point_settings(self.record.points[job.point - 1])
        launch = replace(self.plan.launch, study=None, presets=(job.arm,), seeds=(job.seed,))
        launch = replace(launch, settings=(*launch.settings, *settings))
        (request,) = launch.requests(self.plan.catalogue, self.command)
        tuning = Tuning(self.record.id, job.role, job.point, settings)
        return replace(request, study=self.plan.study.id, pause=self.plan.study.pause, tuning=tuning)

    def _continue(self, made: dict[Job, Run]) -> None:
        """Resumes lost runs; stopped ones only as the command begins, for whoever stops one since means it."""
        for job, run in made.items():
            tried = self._resumes.setdefault(run.id, [])
            wanted = run.state == "lost" or (self._first and _is_halted(run))
            if not wanted or self._is_pruned(job) or len(tried) >= RESUMES or self._comes_back(run):
                continue
            tried.append(Resume(run.attempt, time.monotonic()))
            with contextlib.suppress(Refused):  # somebody else was quicker
                self.lab.resume(run)

    def _comes_back(self, run: Run) -> bool:
        """Whether it was resumed a moment ago, and its folder does not show it yet."""
        tried = self._resumes.get(run.id)
        if not tried:
            return False
        return run.attempt == tried[-1].attempt and time.monotonic() - tried[-1].at < SECONDS_TO_RETURN

    # -- pruning -------------------------------------------------------------------------------------------------------

    def _is_pruned(self, job: Job) -> bool:
        return job.role == "draw" and Pruned(job.arm, job.point) in self.record.pruned

    def _prune(self, made: dict[Job, Run]) -> None:
        for arm in self.plan.arms:
            draws = self._draws(arm.id, made)
            curves = [self._curve(arm, draw, made) for draw in draws]
            for place in to_prune(curves, higher_is_better=metric_named(arm.metric).higher_is_better):
                self.record.pruned.append(Pruned(arm.id, draws[place].point))
                self.record.write()  # first: who dies now must not take it for somebody's stop
        for job, run in made.items():
            if self._is_pruned(job) and run.state in LIVE and run.state != "stopping":
                with contextlib.suppress(Refused):  # over by now
                    self.lab.stop(run)

    def _curve(self, arm: Experiment, draw: Draw, made: dict[Job, Run]) -> DrawCurve:
        jobs = [Job("draw", arm.id, draw.point, seed) for seed in self.plan.seeds]
        runs = [made[job] for job in jobs if job in made]
        if len(runs) < len(jobs) or draw.state == "failed":
            return DrawCurve((), 0, "failed")
        curves = [
            {
                line.step: line.values[arm.metric]
                for line in read_metrics(run.folder.metrics, "eval")
                if arm.metric in line.values
            }
            for run in runs
        ]
        return DrawCurve(mean_curve(curves), max(run.total or 0 for run in runs), draw.state)

    # -- choosing ------------------------------------------------------------------------------------------------------

    def _draws(self, arm: str, made: dict[Job, Run]) -> list[Draw]:
        return draws_of((run for job, run in made.items() if job.arm == arm), len(self.plan.seeds))

    def _is_over(self, job: Job, made: dict[Job, Run]) -> bool:
        run = made.get(job)
        return run is not None and run.state in ("finished", "failed") and not _is_halted(run)

    def _choose(self, made: dict[Job, Run]) -> None:
        """Every draw is over: each arm's best one is written down, before anything of it runs."""
        chosen = {}
        for arm in self.plan.arms:
            best = best_draw(self._draws(arm.id, made), arm.metric)
            if best is not None:
                chosen[arm.id] = best.point
        if chosen != self.record.chosen:
            self.record.chosen = chosen
            self.record.write()

    def _register(self) -> None:
        """What the study will compare is known now, and nothing of it has run."""
        points = {arm: self.record.points[point - 1] for arm, point in self.record.chosen.items()}
        arms = [override(arm, point_settings(points[arm.id])) for arm in self.plan.arms if arm.id in points]
        self.lab.register(self.plan.study, arms, self.plan.fresh_seeds)

    def _progress(self, made: dict[Job, Run], wanted: list[Job], over: list[Job]) -> Progress:
        everything_drawn = len(over) == len(wanted)
        chosen = self._chosen_wanted() if everything_drawn else []
        jobs = [*wanted, *chosen]
        halted = tuple(made[job] for job in jobs if job in made and self._stays_halted(made[job]))
        chosen_over = [job for job in chosen if self._is_over(job, made)]
        pruned = len(self.plan.seeds) * len(self.record.pruned)
        return Progress(
            draws=len(wanted) + pruned,
            draws_over=len(over) + pruned,
            chosen=len(chosen) if everything_drawn else self.plan.chosen,
            chosen_over=len(chosen_over),
            halted=halted,
            hopeless=tuple(arm.id for arm in self.plan.arms if everything_drawn and arm.id not in self.record.chosen),
            under_way=len(jobs) - len(over) - len(chosen_over) - len(halted),
        )

    def _stays_halted(self, run: Run) -> bool:
        given_up = run.state == "lost" and len(self._resumes.get(run.id, ())) >= RESUMES
        return (_is_halted(run) or given_up) and not self._comes_back(run)


def _is_halted(run: Run) -> bool:
    """Whether it ended before it could say anything about its point, and can be resumed."""
    return run.state == "stopped" or (run.state == "failed" and run.reason in NOT_THE_SETTING)
