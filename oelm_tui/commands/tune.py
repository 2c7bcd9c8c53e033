"""`oelm tune`: the same draws for every arm of a study, then each arm's best setting on fresh seeds."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from oelm_tui.commands import completion
from oelm_tui.commands.options import LaunchOptions, catalogue, single, with_launch_options
from oelm_tui.commands.several_cards import say_what_cards_bring
from oelm_tui.console import note, print_table
from oelm_tui.streams import say

if TYPE_CHECKING:
    from oelm_core.runs.store import Run
    from oelm_core.study.tuning import Progress, StudyTuning
    from oelm_core.study.tuning_plan import TuningPlan

SECONDS_BETWEEN_LOOKS = 0.5


@with_launch_options
def tune(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=completion.studies)],
    options: LaunchOptions,
    budget: Annotated[int, typer.Option(help="Draws of every arm; a larger one later adds to them.", min=1)],
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="What to tune, instead of the study's own: train.lr=1e-5..1e-3:log, or values: a,b,c; repeatable.",
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed of the draws, which choose; repeatable.")] = None,
    fresh_seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N | A-B | A,B", help="Seeds of the chosen settings, which count; the study's own unless said."
        ),
    ] = None,
    pruner: Annotated[
        str | None, typer.Option(help="median stops hopeless draws, none lets all end; by the budget unless said.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points and the time; start nothing.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start what can start, print the run ids, and do not wait for the rest.")
    ] = False,
) -> None:
    """Give every arm of a study the same draws from a space, then run each arm's best on fresh seeds.

    It follows the runs to the end. Ctrl-C only stops following: the same command continues where it was.
    """
    from oelm_core.config.seeds import parse_seeds
    from oelm_core.study.tuning import RunningLab, open_tuning
    from oelm_core.study.tuning_plan import TuningRequest, make_plan
    from oelm_tui.commands.compare import print_study

    found = catalogue(ctx, options.folder)
    launch = options.request((), study=name)
    fresh = parse_seeds(fresh_seeds, "--fresh-seeds") if fresh_seeds is not None else ()
    request = TuningRequest(launch, budget, tuple(space or ()), tuple(seed or ()), fresh, pruner)
    plan = make_plan(request, found)
    say_what_cards_bring(launch, plan.arms)
    if dry_run:
        _print_plan(plan)
        return
    lab = RunningLab(launch.launcher, say if detach else (lambda run_id: None))
    with open_tuning(plan, lab, sys.argv) as tuning:
        if detach:
            _say_what_is_left(tuning.advance())
            return
        try:
            ended = _follow(tuning)
        except KeyboardInterrupt:
            command = shlex.join(["oelm", *sys.argv[1:]])
            note(f"no longer following; the runs continue. The same command goes on: {command}")
            sys.exit(130)
        _refuse_halted(ended.halted)
        _print_choices(tuning, ended)
    if len(ended.hopeless) < len(plan.arms):
        print_study(plan.study, found)


def _follow(tuning: StudyTuning) -> Progress:
    """Advances the tuning until nothing is left to wait for, with bars on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    name = TextColumn("{task.description:<12}", markup=False)
    columns = (name, BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), refresh_per_second=4) as bars:
        draws, chosen = bars.add_task("draws", total=None), bars.add_task("fresh seeds", total=None)
        while True:
            now = tuning.advance()
            bars.update(draws, completed=now.draws_over, total=now.draws)
            bars.update(chosen, completed=now.chosen_over, total=now.chosen)
            if now.is_over:
                return now
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _refuse_halted(halted: tuple[Run, ...]) -> None:
    from oelm_core.errors import LabError

    if halted:
        first = halted[0]
        others = f" and {len(halted) - 1} more" if len(halted) > 1 else ""
        raise LabError(f"{first.id}{others} {first.state_and_reason}; the same command continues from there.")


def _say_what_is_left(now: Progress) -> None:
    if now.is_done:
        note("everything has run; without --detach the same command prints the table.")
    else:
        left = f"{now.draws_over} of {now.draws} draws and {now.chosen_over} of {now.chosen} fresh runs are over"
        note(f"{left}; the same command continues.")


def _print_choices(tuning: StudyTuning, ended: Progress) -> None:
    from oelm_core.formatting import metric

    for arm, draw in tuning.choices():
        settings = " ".join(draw.settings)
        note(f"{arm.id} chose point {draw.point}: {settings} ({metric(arm.metric, draw.value)} on its tuning seeds)")
    for name in ended.hopeless:
        note(f"every draw of {name} failed, so it has no setting to run; see: oelm runs --state failed")


def _print_plan(plan: TuningPlan) -> None:
    """The points, the runs and the time, without starting anything."""
    from oelm_core.config.tuning import value_text
    from oelm_core.study.tuning_cost import tuning_cost

    rows = [[str(number), *map(value_text, point.values())] for number, point in enumerate(plan.points, 1)]
    print_table(["POINT", *plan.space], rows, right=["POINT"])
    print()
    seeds, fresh = (" ".join(map(str, seeds)) for seeds in (plan.seeds, plan.fresh_seeds))
    print(f"{len(plan.points)} points x {len(plan.arms)} arms, seed {seeds}: {plan.draws} runs (pruner {plan.pruner})")
    print(f"then each arm's best point, seed {fresh}: {plan.chosen} runs")
    for line in tuning_cost(plan):
        print(line)


apps = {"tune": single(tune)}
