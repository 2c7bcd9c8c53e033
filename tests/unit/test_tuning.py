"""Equal tuning by ask and tell, over a lab that only pretends to run: nothing twice, nothing lost, nothing favoured."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from oelm_core.config import Experiment, Study, build_study, config_hash
from oelm_core.config.catalogue import Catalogue
from oelm_core.config.tuning import parse_space
from oelm_core.errors import BadInput, Refused
from oelm_core.launch.request import LaunchRequest, RunRequest
from oelm_core.runs.metrics_file import MetricsWriter
from oelm_core.runs.store import Run
from oelm_core.study.points import draw_points
from oelm_core.study.pruning import DrawCurve, mean_curve, to_prune
from oelm_core.study.tuning import Job, Progress, StudyTuning, open_tuning
from oelm_core.study.tuning_plan import TuningPlan, TuningRequest, make_plan
from tests.run_factory import FROZEN, experiment

BASE = experiment("rev-baseline")
OELM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")
SPACE = "train.lr=1e-4,3e-4,1e-3,3e-3"
Score = Callable[[RunRequest], float | None]


def plan(budget: int = 3, *, study: dict[str, object] | None = None, **more: object) -> TuningPlan:
    arms = {"arms": ["rev-baseline", "rev-oelm"], "seeds": [42, 43]}
    built = build_study({"id": "s", "title": "S", "question": "Q?", **arms, **(study or {})}, "s")
    catalogue = Catalogue(experiments={e.id: e for e in (BASE, OELM)}, studies={"s": built})
    settings = tuple(more.pop("settings", ()))  # type: ignore[call-overload]
    asked = {"space": (SPACE,), **more}
    return make_plan(TuningRequest(LaunchRequest(study="s", settings=settings), budget, **asked), catalogue)


def by_rate(request: RunRequest) -> float | None:
    """The larger rate is better for the baseline, the smaller one for OELM."""
    rate = request.experiment.train.lr
    return rate * 100 if request.experiment.id == "rev-baseline" else 0.5 - rate * 100


class PretendLab:
    """Runs in memory, which go on a little whenever they are looked at. `dies_at` kills the caller in that call."""

    def __init__(self, score: Score = by_rate, dies_at: int | None = None, root: Path | None = None) -> None:
        self.score, self.dies_at, self.root = score, dies_at, root
        self.calls = 0
        self.made: dict[str, Run] = {}
        self.values: dict[str, float | None] = {}
        self.started: list[Job] = []
        self.registered: list[tuple[dict[str, float], tuple[int, ...], set[str]]] = []
        self.frozen = False

    def _may_die(self) -> None:
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt

    def start(self, requests: Sequence[RunRequest]) -> None:
        for request in requests:
            self._may_die()
            assert request.tuning is not None
            number = len(self.started)
            run_id = f"{request.experiment.id}-{number}"
            self.made[run_id] = Run(
                path=str((self.root or Path("/nowhere")) / run_id),
                id=run_id,
                preset=request.experiment.id,
                method="",
                family="bert",
                dataset="reviews",
                seed=request.seed,
                study=request.study,
                config_hash=config_hash(request.experiment.model_dump(mode="json", by_alias=True)),
                created=float(number),
                state="queued",
                reason=None,
                message=None,
                step=0,
                total=400,
                metric_name="accuracy",
                metric_value=None,
                devices=(),
                host="lab",
                heartbeat=None,
                imported=False,
                tuning=request.tuning,
            )
            self.values[run_id] = self.score(request)
            self.started.append(Job(request.tuning.role, request.experiment.id, request.tuning.point, request.seed))

    def runs(self) -> list[Run]:
        self._may_die()
        for run in () if self.frozen else list(self.made.values()):
            value = self.values[run.id]
            if run.state == "queued":
                self.set(run.id, state="running")
            elif run.state == "running" and value is None:
                self.set(run.id, state="failed", reason="nonfinite", metric_value=0.99)
            elif run.state == "running":
                self.set(run.id, state="finished", reason="completed", metric_value=value)
        return list(self.made.values())

    def set(self, run_id: str, **changes: object) -> None:
        self.made[run_id] = replace(self.made[run_id], **changes)

    def stop(self, run: Run) -> None:
        self.set(run.id, state="stopped", reason="user")

    def register(self, study: Study, arms: Sequence[Experiment], seeds: Sequence[int]) -> None:
        self._may_die()
        begun = {job.role for job in self.started}
        self.registered.append(({arm.id: arm.train.lr for arm in arms}, tuple(seeds), begun))

    def resume(self, run: Run) -> None:
        self._may_die()
        self.set(run.id, state="running", reason=None, attempt=run.attempt + 1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    return tmp_path


def drive(what: TuningPlan, lab: PretendLab, looks: int = 30) -> tuple[Progress, StudyTuning]:
    """One command: advances until it is over."""
    with open_tuning(what, lab, ["oelm", "tune"]) as tuning:
        for _ in range(looks):
            progress = tuning.advance()
            if progress.is_over:
                return progress, tuning
    raise AssertionError("it does not come to its end")


# -- the points ------------------------------------------------------------------------------------------------------


def test_every_arm_tries_the_same_points_on_the_same_seeds() -> None:
    lab = PretendLab()
    drive(plan(4, seeds=(1, 2)), lab)
    draws = [job for job in lab.started if job.role == "draw"]
    per_arm = {arm: sorted((job.point, job.seed) for job in draws if job.arm == arm) for arm in (BASE.id, OELM.id)}
    assert per_arm[BASE.id] == per_arm[OELM.id] == list(itertools.product((1, 2, 3, 4), (1, 2)))
    settings = {(run.tuning.point, run.tuning.settings) for run in lab.made.values() if run.is_draw and run.tuning}
    assert len(settings) == 4
    assert [job.arm for job in draws[:4]] == [BASE.id, OELM.id, BASE.id, OELM.id]


def test_points_are_the_same_every_time_spread_over_the_range_and_a_larger_budget_only_adds() -> None:
    space = parse_space(["train.lr=1e-5..1e-3:log", "train.schedule=linear,cosine", "train.batch_size=8..32"])
    points = draw_points(space, 8)
    assert draw_points(space, 3) == points[:3]
    rates = sorted(float(point["train.lr"]) for point in points)
    assert sum(rate < 1e-4 for rate in rates) == 4  # Sobol points halve every axis
    assert Counter(point["train.schedule"] for point in points) == {"linear": 4, "cosine": 4}
    assert all(isinstance(point["train.batch_size"], int) and 8 <= point["train.batch_size"] <= 32 for point in points)


def test_a_grid_has_each_of_its_points_once_and_no_more() -> None:
    space = parse_space(["train.lr=1e-4,3e-4,1e-3", "train.schedule=linear,cosine"])
    points = draw_points(space, 6)
    assert len({tuple(point.items()) for point in points}) == 6
    assert draw_points(space, 2) == points[:2]
    with pytest.raises(BadInput, match="only 6 points in the space; write --budget 6"):
        draw_points(space, 7)
    with pytest.raises(BadInput, match="too few points that differ"):
        draw_points(parse_space(["train.lr=0.1..0.10001"]), 9)


def test_whole_bounds_mean_whole_numbers_only_where_the_setting_takes_no_others() -> None:
    drawn = plan(4, space=("train.weight_decay=0..1", "train.batch_size=8..32"))
    assert not drawn.space["train.weight_decay"].is_whole
    assert drawn.space["train.batch_size"].is_whole


# -- choosing --------------------------------------------------------------------------------------------------------


def test_each_arms_best_draw_runs_on_fresh_seeds() -> None:
    lab = PretendLab()
    progress, tuning = drive(plan(4), lab)
    assert progress.is_done
    rates = [point["train.lr"] for point in tuning.record.points]
    assert tuning.record.chosen == {BASE.id: rates.index(3e-3) + 1, OELM.id: rates.index(1e-4) + 1}
    fresh = [job for job in lab.started if job.role == "chosen"]
    assert [(job.arm, job.seed) for job in fresh] == [(BASE.id, 42), (OELM.id, 42), (BASE.id, 43), (OELM.id, 43)]
    assert {job.point for job in fresh if job.arm == OELM.id} == {rates.index(1e-4) + 1}
    assert {job.seed for job in lab.started if job.role == "draw"}.isdisjoint({42, 43})


def test_the_chosen_settings_are_registered_before_they_run_and_once_for_a_list_of_seeds() -> None:
    lab = PretendLab()
    drive(plan(4), lab)
    drive(plan(4), lab)
    assert lab.registered == [({BASE.id: 3e-3, OELM.id: 1e-4}, (42, 43), {"draw"})]
    drive(plan(4, fresh_seeds=(42, 43, 44)), lab)
    assert [seeds for _, seeds, _ in lab.registered] == [(42, 43), (42, 43, 44)]
    assert Counter(job.role for job in lab.started) == {"draw": 8, "chosen": 6}


def test_a_diverged_draw_is_never_chosen_whatever_it_showed_before() -> None:
    lab = PretendLab(lambda request: None if request.experiment.train.lr > 5e-4 else by_rate(request))
    progress, tuning = drive(plan(4), lab)
    assert progress.is_done
    assert tuning.record.points[tuning.record.chosen[BASE.id] - 1] == {"train.lr": 3e-4}


def test_an_arm_whose_every_draw_failed_chooses_nothing_and_the_others_go_on() -> None:
    lab = PretendLab(lambda request: None if request.experiment.id == OELM.id else by_rate(request))
    progress, tuning = drive(plan(2), lab)
    assert (progress.is_done, progress.hopeless, list(tuning.record.chosen)) == (True, (OELM.id,), [BASE.id])
    assert {job.arm for job in lab.started if job.role == "chosen"} == {BASE.id}


def test_nothing_is_chosen_before_the_last_draw_of_the_last_arm_is_over() -> None:
    lab = PretendLab()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        tuning.advance()
        late = next(run.id for run in lab.made.values() if run.preset == OELM.id)
        for _ in range(5):
            lab.set(late, state="running", metric_value=None)
            lab.values[late] = 0.4
            for run in lab.made.values():
                if run.id != late:
                    lab.set(run.id, state="finished", metric_value=lab.values[run.id])
            lab.frozen = True
            assert not tuning.advance().is_over
        assert tuning.record.chosen == {}
        assert all(job.role == "draw" for job in lab.started)


# -- interrupted, continued --------------------------------------------------------------------------------------------


def test_killed_at_any_moment_it_goes_on_and_never_starts_a_run_twice() -> None:
    expected = PretendLab()
    _, undisturbed = drive(plan(3, space=("train.lr=1e-4,3e-4,1e-3",)), expected)
    assert expected.calls > 15
    for moment in range(1, expected.calls + 1):
        what = plan(3, space=("train.lr=1e-4,3e-4,1e-3",), seeds=(moment + 100,))  # a tuning of its own
        lab = PretendLab(dies_at=moment)
        with pytest.raises(KeyboardInterrupt):
            drive(what, lab)
        progress, tuning = drive(what, lab)
        assert progress.is_done
        assert max(Counter(lab.started).values()) == 1
        assert len(lab.started) == len(expected.started)
        assert tuning.record.chosen == undisturbed.record.chosen


def test_killed_again_and_again_it_still_ends_the_same() -> None:
    lab = PretendLab()
    progress = None
    while progress is None:
        lab.dies_at = lab.calls + 5
        try:
            progress, _ = drive(plan(3), lab)
        except KeyboardInterrupt:
            assert lab.calls < 500
    assert progress.is_done
    assert max(Counter(lab.started).values()) == 1


def test_runs_that_finished_while_nobody_watched_are_adopted() -> None:
    lab = PretendLab()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        tuning.advance()
    for _ in range(3):
        lab.runs()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        assert tuning.advance().draws_over == 4
    assert Counter(job.role for job in lab.started) == {"draw": 4, "chosen": 4}


def test_a_lost_run_is_resumed_in_its_own_folder_and_given_up_when_it_keeps_getting_lost() -> None:
    lab = PretendLab()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        tuning.advance()
        lost = next(iter(lab.made))
        lab.set(lost, state="lost")
        lab.frozen = True
        tuning.advance()
        assert lab.made[lost].state == "running"
        for _ in range(4):
            lab.set(lost, state="lost")
            progress = tuning.advance()
        assert lab.made[lost].state == "lost"
        assert [run.id for run in progress.halted] == [lost]
    assert len(lab.started) == 4


def test_a_deleted_draw_is_started_again() -> None:
    lab = PretendLab()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        tuning.advance()
        del lab.made[next(iter(lab.made))]
        tuning.advance()
    assert sorted(Counter(lab.started).values()) == [1, 1, 1, 2]


@pytest.mark.parametrize(("state", "reason"), [("stopped", "user"), ("failed", "node_fail")])
def test_a_draw_that_somebody_stopped_or_the_machine_ended_waits_for_the_next_command(state: str, reason: str) -> None:
    lab = PretendLab()
    with open_tuning(plan(2), lab, ["oelm"]) as tuning:
        tuning.advance()
        ended = next(iter(lab.made))
        lab.set(ended, state=state, reason=reason)
        while not (progress := tuning.advance()).is_over:
            pass
    assert ([run.id for run in progress.halted], progress.is_done) == ([ended], False)
    assert {job.role for job in lab.started} == {"draw"}  # no choice without it
    assert drive(plan(2), lab)[0].is_done
    assert len(lab.started) == 8


def test_a_larger_budget_adds_draws_and_a_smaller_one_is_refused() -> None:
    lab = PretendLab()
    _, first = drive(plan(2), lab)
    _, second = drive(plan(4), lab)
    assert second.record.points[:2] == first.record.points
    assert Counter(job.role for job in lab.started)["draw"] == 8
    assert max(Counter(lab.started).values()) == 1
    with pytest.raises(BadInput, match="has 4 draws an arm already; write --budget 4"):
        drive(plan(3), lab)


def test_the_pruner_stays_the_same_through_a_tuning() -> None:
    lab = PretendLab()
    drive(plan(2), lab)
    with pytest.raises(BadInput, match="began with the pruner none"):
        drive(plan(2, pruner="median"), lab)


def test_two_commands_never_look_after_one_tuning() -> None:
    with (
        open_tuning(plan(2), PretendLab(), ["oelm"]),
        pytest.raises(Refused, match="another `oelm tune` looks after s-"),
        open_tuning(plan(2), PretendLab(), ["oelm"]),
    ):
        pass


def test_another_recipe_space_or_seed_is_another_tuning() -> None:
    same = plan(2).id
    assert plan(4).id == same
    others = [plan(2, settings=("train.max_steps=300",)), plan(2, seeds=(9,)), plan(2, space=("train.lr=1e-4,1e-3",))]
    assert len({same, *(other.id for other in others)}) == 4


def test_a_torn_file_is_refused_not_overwritten(home: Path) -> None:
    folder = home / "tuning" / plan(2).id
    folder.mkdir(parents=True)
    (folder / "tuning.json").write_text("{")
    with pytest.raises(Refused, match="move it away"):
        drive(plan(2), PretendLab())


# -- pruning -----------------------------------------------------------------------------------------------------------


def curve(*values: float, state: str = "done") -> DrawCurve:
    return DrawCurve(tuple((100 * place, value) for place, value in enumerate(values, 1)), 600, state)


def test_only_a_draw_below_the_median_is_pruned_and_only_after_the_warm_up() -> None:
    ended = [curve(0.1, 0.2, 0.3 + n / 10, 0.4, 0.5, 0.6) for n in range(4)]
    better, worse = curve(0.1, 0.1, 0.5, state="open"), curve(0.1, 0.1, 0.2, state="open")
    early = curve(0.0, state="open")
    assert to_prune([worse, *ended, better, early], higher_is_better=True) == [0]
    losses = [DrawCurve(tuple((at, 1 - value) for at, value in one.points), 600, one.state) for one in (worse, *ended)]
    assert to_prune(losses, higher_is_better=False) == [0]
    assert to_prune([worse, *ended[:3]], higher_is_better=True) == []  # too few to judge by


def test_seeds_of_a_draw_are_judged_together_where_all_have_come() -> None:
    assert mean_curve([{100: 0.2, 200: 0.4}, {100: 0.4}]) == ((100, pytest.approx(0.3)),)
    assert mean_curve([]) == ()


def test_a_pruned_draw_is_stopped_once_and_neither_resumed_nor_chosen(tmp_path: Path) -> None:
    lab = PretendLab(root=tmp_path)
    what = plan(6, pruner="median", space=("train.lr=1e-4..1e-2:log",))
    with open_tuning(what, lab, ["oelm"]) as tuning:
        tuning.advance()
        lab.frozen = True
        for run in list(lab.made.values()):
            assert run.tuning is not None
            run.folder.path.mkdir()
            good = run.tuning.point < 6
            metrics = MetricsWriter(run.folder.metrics)
            for step in (100, 200, 300, 400) if good else (100, 200):
                metrics.write("eval", step, accuracy=(0.5 if good else 0.1) + step / 10_000)
            metrics.close()
            lab.set(run.id, state="finished" if good else "running", metric_value=0.54 if good else 0.12)
        tuning.advance()
    pruned = [run for run in lab.made.values() if run.state == "stopped"]
    assert [(run.preset, run.tuning.point) for run in pruned if run.tuning] == [(BASE.id, 6), (OELM.id, 6)]
    lab.frozen = False
    progress, tuning = drive(what, lab)
    assert (progress.is_done, progress.draws, progress.draws_over) == (True, 12, 12)
    assert [run.state for run in lab.made.values() if run.id in {one.id for one in pruned}] == ["stopped", "stopped"]
    assert set(tuning.record.chosen.values()) == {1}


# -- what is asked for -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"space": ()}, "study s says nothing about what to tune; write --space train.lr="),
        ({"space": ("train.lr",)}, "--space train.lr: write a range such as"),
        ({"space": ("train.lr=1e-3..1e-5:log",)}, "is empty; write the smaller number first"),
        ({"space": ("train.lr=0..1:log",)}, "a log range starts above 0"),
        ({"space": ("train.lr=1e-3",)}, "needs at least two values"),
        ({"space": ("train.lr=1e-4,1e-3", "train.lr=1..2")}, "--space train.lr is given twice"),
        ({"space": ("data.limit=10,20",)}, "'data.limit' is not for tuning"),
        ({"space": ("train.learning_rate=1e-4,1e-3,3e-3",)}, "unknown key 'train.learning_rate'"),
        ({"space": ("train.lrr=1e-4,1e-3",), "budget": 5}, "unknown key 'train.lrr'. Did you mean lr?"),
        ({"space": ("train.lr=-1..1",)}, "it should be greater than 0"),
        ({"settings": ("train.lr=1e-3",)}, "that setting is being tuned"),
        ({"seeds": (42,), "fresh_seeds": (42, 43)}, "seed 42 would choose a setting and then judge it"),
        ({"seeds": (42, 43)}, "no fresh seed is left"),
        ({"pruner": "hyperband"}, "--pruner hyperband: write median or none"),
        ({"budget": 5}, "only 4 points in the space"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(asked: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput) as refused:
        plan(**asked)  # type: ignore[arg-type]
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_study_declares_its_space_and_the_command_line_replaces_it() -> None:
    tune = {"space": {"train.lr": [1e-5, 1e-3, "log"]}, "seeds": [5], "fresh_seeds": [6, 7], "pruner": "median"}
    declared = plan(2, study={"tune": tune}, space=())
    assert (list(declared.space), declared.seeds, declared.fresh_seeds, declared.pruner) == (
        ["train.lr"],
        (5,),
        (6, 7),
        "median",
    )
    assert declared.space["train.lr"].text == "1e-05..0.001:log"
    other = plan(2, study={"tune": tune}, space=("train.weight_decay=0,0.1",), seeds=(8,), pruner="none")
    assert (list(other.space), other.seeds, other.pruner) == (["train.weight_decay"], (8,), "none")


@pytest.mark.parametrize(
    ("tune", "why"),
    [
        ({"space": {"train.lr": [1e-3]}}, "tune.space.train.lr: needs at least two values"),
        ({"space": {"seed": [1, 2]}}, "tune.space: 'seed' is not for tuning"),
        ({"space": {"train.lr": [1, 2]}, "seeds": [1], "fresh_seeds": [1]}, "seed 1 would choose"),
        ({"space": {"train.lr": [1, 2]}, "seeds": [42, 43]}, "no fresh seed is left"),
        ({"space": {"train.lr": [1, 2]}, "prune": "no"}, "unknown key 'tune.prune'. Did you mean pruner?"),
    ],
)
def test_a_study_that_cannot_be_tuned_as_written_is_one_sentence(tune: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput) as refused:
        plan(2, study={"tune": tune})
    assert why in str(refused.value)


def test_tiny_budgets_are_not_pruned_unless_asked() -> None:
    space = ("train.lr=1e-5..1e-3:log",)
    assert (plan(9, space=space).pruner, plan(10, space=space).pruner) == ("none", "median")
