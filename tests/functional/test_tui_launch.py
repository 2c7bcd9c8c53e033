"""The launch form: what it means, what it refuses, what it starts, and what it expects a run to cost."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from oelm_core.config.catalogue import load_catalogue
from oelm_core.estimate import estimate
from oelm_core.launch import local
from oelm_core.launch.request import LaunchRequest, RunRequest
from oelm_core.published.parameters import count_parameters
from oelm_core.runs.schema import PeakMemory, Result
from oelm_core.runs.store import Run
from oelm_tui.launch_form import LaunchForm, would_wait
from oelm_tui.render.launch import cost_lines
from oelm_tui.screens.explained import help_lines
from oelm_tui.screens.launch import CostRequest, Launch, cost_of
from oelm_tui.snapshots.cards import owner_of
from tests.functional.tui_lab import cards, catalogue, drive, press, said, settle, text_of, wait_until
from tests.run_factory import write_run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    made: list[RunRequest] = []

    def start(request: RunRequest, *, checked: bool = False) -> SimpleNamespace:
        made.append(request)
        return SimpleNamespace(id=f"{request.experiment.id}-s{request.seed}")

    monkeypatch.setattr(local, "start", start)
    monkeypatch.setattr(local, "check_request", lambda device, per_run: None)  # the cards are made up
    return made


async def open_launch(app, pilot, *arms: str) -> None:
    await press(pilot, "1")
    tree = app.screen.tree_of_presets
    for arm in arms:
        assert tree.go_to(f"arm/{arm}")
        if len(arms) > 1:
            await press(pilot, "space")
    await press(pilot, "l")
    assert isinstance(app.screen, Launch)


def what_side(app) -> str:
    """The form's right side, unwrapped."""
    shown = app.screen.query_one("#recipe").shown
    return " ".join("".join(text for line in shown for text, _ in [*line, (" ", "")]).split())


def test_the_form_shows_recipe_cost_and_the_headless_command(lab):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        text = text_of(app)
        assert "109,483,778" in text
        assert "14,174,208 frozen (12.9 %)" in text
        assert "oelm run sst2-oelm" in text
        assert "23.7G" in text  # free memory of card 3
        assert "user4 (asks first)" in text
        app.screen.query_one("#settings").value = "train.lr=3e-5"
        app.screen.query_one("#seeds").value = "42 43"
        await settle(pilot)
        assert "2 runs on the first free card" in text_of(app)
        assert "oelm run sst2-oelm --seeds 42,43 --set train.lr=3e-5" in text_of(app)

    drive(lab, script)


def test_the_form_shows_the_parameters_of_a_decoder_once_they_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    arm = load_catalogue().experiments["llama-tinystories-oelm"]
    asked = CostRequest((arm,), "cpu")
    assert cost_of(asked).costs[arm.id].parameters is None
    counted = count_parameters(arm)
    cost = cost_of(asked).costs[arm.id]
    assert (cost.parameters, cost.frozen) == (counted.total, counted.frozen)
    assert any(f"{counted.total:,}" in text for line in cost_lines(cost, 80) for text, _ in line)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("settings", "train.lr=fast", "train.lr"),
        ("settings", "train.speed=2", "speed"),
        ("settings", "nonsense", "key=value"),
        ("seeds", "abc", "write a count"),
        ("per-run", "0", "whole number, at least 1"),
    ],
)
def test_wrong_input_is_said_while_typing_and_nothing_can_be_launched(lab, started, field, value, words):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        app.screen.query_one(f"#{field}").value = value
        await settle(pilot)
        assert "cannot be launched" in text_of(app)
        assert words in " ".join(text_of(app).split())
        await press(pilot, "ctrl+s")
        assert started == []

    drive(lab, script)


@pytest.mark.parametrize(
    ("typed", "runs", "words", "option"),
    [
        ("3", 3, "sst2-oelm: seeds 42-44", "--seeds 42-44"),
        ("42-44", 3, "sst2-oelm: seeds 42-44", "--seeds 42-44"),
        ("42,77", 2, "sst2-oelm: seeds 42, 77", "--seeds 42,77"),
        ("7,", 1, "sst2-oelm: seed 7", "--seed 7"),
        ("", 1, "sst2-oelm: seed 42", ""),
    ],
)
def test_seeds_mean_the_same_as_in_commands_and_the_form_says_which_runs(lab, typed, runs, words, option):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        app.screen.query_one("#seeds").value = typed
        await settle(pilot)
        text = text_of(app)
        assert f"{runs} run{'s' * (runs > 1)} on" in text
        assert words in text
        assert f"oelm run sst2-oelm {option}".strip() in text

    drive(lab, script)


def test_the_settings_field_completes_keys_and_values_and_says_what_they_mean(lab):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        field = app.screen.query_one("#settings")
        field.focus()
        await press(pilot, *"lr")
        assert "Learning rate at its highest." in text_of(app)
        assert "cannot be launched" in text_of(app)  # lr alone is no setting yet
        await press(pilot, "tab", *"3e-3 sched", "tab")
        assert field.value == "train.lr=3e-3 train.schedule="
        assert "linear  cosine  constant" in text_of(app)
        await press(pilot, *"co", "tab")
        assert field.value == "train.lr=3e-3 train.schedule=cosine"
        assert field.has_focus
        await press(pilot, "tab")
        assert not field.has_focus  # nothing is left to complete

    drive(lab, script)


def test_a_short_name_is_the_setting_it_ends(lab):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        app.screen.query_one("#settings").value = "lr=3e-3"
        await settle(pilot)
        assert "train.lr" in text_of(app)
        assert "0.003" in text_of(app)
        app.screen.query_one("#settings").value = "path=here"
        await settle(pilot)
        assert "Write data.path or model.path." in " ".join(text_of(app).split())

    drive(lab, script)


def test_the_form_looks_at_the_path_of_the_data(lab, tmp_path, started):
    (tmp_path / "texts").mkdir()

    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        field = app.screen.query_one("#settings")
        field.value = f"data.path={tmp_path}/nowhere"
        await settle(pilot)
        await wait_until(pilot, lambda: "no such file or folder" in what_side(app))
        await press(pilot, "ctrl+s")
        assert started == []
        (tmp_path / "texts" / "train.tsv").touch()
        (tmp_path / "texts" / "dev.tsv").touch()
        field.value = f"data.path={tmp_path}/texts"
        await settle(pilot)
        await wait_until(pilot, lambda: "train from train.tsv" in what_side(app))
        assert "validation from dev.tsv" in what_side(app)
        await press(pilot, "ctrl+s")
        await wait_until(pilot, lambda: len(started) == 1)

    drive(lab, script)


def test_launching_two_marked_presets_starts_both_on_the_chosen_card(lab, started):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-baseline", "sst2-oelm")
        app.screen.query_one("#devices-choice").go_to("3")
        await press(pilot, "space", "ctrl+s")
        await wait_until(pilot, lambda: len(started) == 2)
        assert [(one.experiment.id, one.device, one.seed) for one in started] == [
            ("sst2-baseline", "3", 42),
            ("sst2-oelm", "3", 42),
        ]
        assert started[0].command == ("oelm", "run", "sst2-baseline", "sst2-oelm", "--device", "3")
        await wait_until(pilot, lambda: "started 2 runs" in said(app))
        assert app.screen.tree_of_presets.marked == set()  # the next l starts something else

    drive(lab, script)


def test_a_slow_launch_ends_after_its_form_is_gone_and_its_run_is_selected(lab, monkeypatch):
    """In the thread the form was no longer part of an app: a launch that had worked said NoActiveAppError."""
    gone = threading.Event()

    def start(request, catalogue, command, started):
        assert gone.wait(10)
        return [write_run(lab / "runs", catalogue.experiments["sst2-oelm"], seed=77, number=99).folder]

    monkeypatch.setattr(LaunchRequest, "start", start)

    async def script(app, pilot):
        app.screen.runs_table.query_text = "family:gpt"  # the new run is not of these
        await open_launch(app, pilot, "sst2-oelm")
        form = app.screen
        await press(pilot, "ctrl+s")
        await wait_until(pilot, lambda: not form.is_attached)
        gone.set()
        await wait_until(pilot, lambda: "started" in said(app))
        assert "NoActiveApp" not in said(app)
        await wait_until(pilot, lambda: app.screen.selected and app.screen.selected.run.seed == 77)
        await settle(pilot)
        assert app.screen.pane == "runs"
        assert "s77" in app.screen.panel.border_title

    drive(lab, script, (80, 24))


def test_a_card_someone_else_uses_asks_before_it_queues(lab, started):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        app.screen.query_one("#devices-choice").go_to("0")
        await press(pilot, "space", "ctrl+s")
        assert "Someone else is on this card" in text_of(app)
        assert "GPU 0: user4" in text_of(app)
        await press(pilot, "escape")
        assert started == []
        app.screen.query_one("#wait").value = False
        await press(pilot, "ctrl+s")
        assert "busy" in said(app)
        app.screen.query_one("#wait").value = True
        await press(pilot, "ctrl+s")
        await press(pilot, "y")
        await wait_until(pilot, lambda: len(started) == 1)

    drive(lab, script)


@pytest.mark.parametrize("device", ["2", "0,2"])
def test_without_waiting_a_card_of_our_own_that_is_busy_is_refused_too(lab, started, device):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        for card in device.split(","):
            app.screen.query_one("#devices-choice").go_to(card)
            await press(pilot, "space")
        app.screen.query_one("#wait").value = False
        await press(pilot, "ctrl+s")
        assert "is busy; choose another card, or let it wait" in said(app)
        assert started == []

    drive(lab, script)


def test_auto_waits_only_when_no_card_is_free():
    taken = [card for card in cards() if owner_of(card).kind != "free"]
    assert would_wait(LaunchForm(("a",)), cards()) == ""
    assert would_wait(LaunchForm(("a",)), taken) == "every card is busy; choose another card, or let it wait"
    assert would_wait(LaunchForm(("a",), per_run="2"), cards()).startswith("2 free cards are needed and 1 found")
    assert would_wait(LaunchForm(("a",), device="cpu"), taken) == would_wait(LaunchForm(("a",)), ()) == ""


def test_several_arms_after_the_last_run_all_wait_for_that_run(lab, started):
    """As the headless command does: the second arm does not wait for the first."""
    form = LaunchForm(("sst2-baseline", "sst2-oelm"), after="@last")
    form.request().start(catalogue(), [], lambda _: None)
    newest = max(path.name for path in (lab / "runs").iterdir() if path.name.startswith("XNLI-02"))
    assert [one.after for one in started] == [newest, newest]


def test_a_marked_arm_in_a_folded_group_is_launched_too(lab):
    async def script(app, pilot):
        await press(pilot, "1")
        tree = app.screen.tree_of_presets
        assert tree.go_to("arm/sst2-oelm")
        await press(pilot, "space")
        assert tree.go_to("arm/GPT-02")
        await press(pilot, "space", "left", "left")
        assert set(tree.arms) == {"sst2-oelm", "GPT-02"}

    drive(lab, script)


def test_the_keys_of_the_form_are_in_the_help_and_the_palette(lab, started):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        await press(pilot, "ctrl+p")
        await pilot.press(*"start what")
        await pilot.pause(0.5)
        await pilot.press("enter", "enter")
        await wait_until(pilot, lambda: len(started) == 1)

    drive(lab, script)
    assert any("Start what the right side shows" in text for line in help_lines(100) for text, _ in line)


def test_a_study_launches_its_arms_interleaved(lab, started):
    async def script(app, pilot):
        await press(pilot, "1")
        tree = app.screen.tree_of_presets
        tree.opened = {"studies"}
        tree.show(app.snapshot)
        assert tree.go_to("study/sst2")
        await press(pilot, "l")
        assert "oelm study sst2" in text_of(app)
        await press(pilot, "ctrl+s")
        await wait_until(pilot, lambda: len(started) >= 2)
        assert {one.study for one in started} == {"sst2"}

    drive(lab, script)


def test_the_launch_form_is_usable_at_80x24(lab):
    async def script(app, pilot):
        await open_launch(app, pilot, "sst2-oelm")
        assert "Device (space chooses" in text_of(app)  # from its first line on
        assert "GPU 3" in text_of(app)
        assert "Launch" in text_of(app)
        await press(pilot, "q")
        assert not isinstance(app.screen, Launch)
        assert app.is_running  # q goes back here as on every screen over the lab

    drive(lab, script, (80, 24))


def test_a_form_becomes_the_command_that_does_the_same():
    form = LaunchForm(("GPT-02",), device="2,3", per_run="2", seeds="1 2", settings="train.lr=1e-4", after="@last")
    assert " ".join(form.request().command()) == (
        "oelm run GPT-02 --device 2,3 --per-run 2 --seeds 1,2 --set train.lr=1e-4 --after @last"
    )
    study = LaunchForm((), "sst2", seeds="42 43", launcher="slurm", presets="my presets")
    assert (
        shlex.join(study.request().command()) == "oelm study sst2 --seeds 42,43 --launcher slurm --presets 'my presets'"
    )
    assert shlex.join(LaunchForm((), "sst2", seeds="7 9, 7").request().command()) == "oelm study sst2 --seeds 7,9"


def test_without_earlier_runs_the_time_is_not_guessed():
    cost = estimate(catalogue().experiments["GPT-02"], ())
    assert cost.steps == 100_000
    assert cost.seconds is None
    assert "unknown: no earlier run" in cost.seconds_from
    assert "not measured" in cost.memory_from


def earlier(lab: Path, preset: str, devices: list[str], number: int = 90, memory: PeakMemory | None = None) -> Run:
    """A finished run of a preset that took 100 s for 1,000 steps."""
    run = write_run(lab / "runs", catalogue().experiments[preset], number=number)
    if memory is not None:
        run.folder.write(Result(memory=memory))
    took = {"started": 1.0, "ended": 101.0}
    return replace(run, devices=tuple(devices), state="finished", step=1000, attempt=1, **took)


def test_time_and_memory_come_from_earlier_runs_of_the_same_thing_on_the_same_kind_of_device(lab):
    gpt = catalogue().experiments["GPT-02"]
    on_cpu = earlier(lab, "GPT-01", ["cpu:0-1"], memory=PeakMemory(host_peak=3_000_000_000))
    cost = estimate(gpt, [on_cpu], "cpu")
    assert (cost.seconds, cost.seconds_sign) == (10_000.0, "about")
    assert "an earlier run" in cost.seconds_from
    assert cost.memory == 3e9
    other_kind = estimate(gpt, [on_cpu], "gpu")
    assert other_kind.seconds is None
    assert "unknown" in other_kind.seconds_from
    resumed = replace(on_cpu, attempt=2)
    assert estimate(gpt, [resumed], "cpu").seconds is None


def test_another_run_gives_a_bound_by_the_work_and_says_so(lab):
    demo = earlier(lab, "demo-gpt-oelm", ["cpu:0-1"])
    large = estimate(catalogue().experiments["GPT-02"], [demo], "cpu")
    assert large.seconds is not None
    assert large.seconds_sign == "at most"
    assert "times the work of demo-gpt-oelm" in large.seconds_from
    small = estimate(catalogue().experiments["demo-gpt-oelm"], [earlier(lab, "GPT-01", ["cpu:0-1"], 91)], "cpu")
    assert small.seconds_sign == "at least"
    assert estimate(catalogue().experiments["sst2-oelm"], [demo], "cpu").seconds is None  # another family


def test_epochs_become_steps_by_the_known_size_of_the_set():
    cost = estimate(catalogue().experiments["sst2-oelm"], ())
    assert cost.steps == 6315  # 3 epochs of 67,349 examples in batches of 32
    assert "67,349" in cost.steps_from
