"""What the screen says by itself: to who opens it for the first time, when a run ends, and where its help begins."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from textual.widgets._toast import Toast

from oelm_core import notify
from oelm_core.launch import local
from oelm_tui.screens.dialogs import Confirm
from oelm_tui.screens.launch import Launch
from oelm_tui.widgets.bars import Header
from oelm_tui.widgets.devices import DeviceStrip
from tests.functional import tui_lab
from tests.functional.tui_lab import change, drive, press, run_id, said, settle, sources, text_of, wait_until


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
def test_the_first_screen_says_what_this_is_and_every_key_has_something_to_act_on(tmp_path, monkeypatch, size):
    monkeypatch.setenv("OELM_HOME", str(tmp_path))

    async def script(app, pilot):
        text = text_of(app)
        assert "can Transformers train with Q and K frozen?" in text
        assert "d trains a two-minute demo here" in text
        assert app.screen.tree_of_presets.key == "arm/demo-bert-baseline"
        await press(pilot, "l")
        assert isinstance(app.screen, Launch)
        assert "first" not in said(app)

    drive(tmp_path, script, size)


def test_d_asks_and_then_trains_the_demo(lab, monkeypatch):
    made = []

    def start(request, checked=False):
        made.append(request)
        return SimpleNamespace(id=request.experiment.id)

    monkeypatch.setattr(local, "start", start)
    whole = tui_lab.load_folders([tui_lab.SHIPPED])
    monkeypatch.setattr(tui_lab, "catalogue", lambda: whole)

    async def script(app, pilot):
        await press(pilot, "d")
        assert isinstance(app.screen, Confirm)
        assert "about two minutes" in text_of(app)
        await press(pilot, "y")
        await wait_until(pilot, lambda: len(made) == len(whole.studies["demo"].arms))
        assert {(one.device, one.seed) for one in made} == {("cpu", 42)}

    drive(lab, script)


def test_the_end_of_a_run_is_said_with_its_result_and_a_bell_and_so_is_a_failing_notify(lab, monkeypatch):
    rung = []
    (lab / "settings.yaml").write_text("notify: exit 4\n")

    async def script(app, pilot):
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        one = next(run for run in sources(lab).runs() if run.preset == "GPT-01")
        change(one, state="finished", reason="completed", step=100_000, total=100_000)
        notify.tell(one.folder)  # as its runner does
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: "GPT-01 s42 finished, ppl" in said(app))
        assert rung == [1]
        await wait_until(pilot, lambda: "notify failed with exit code 4" in said(app))
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        app.screen.panel.show_tab("timing")
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: "notify failed with exit code 4" in text_of(app).split("Attempts")[-1])

    drive(lab, script, (200, 50))


def test_trying_notify_leaves_a_template_where_there_is_none_and_says_how_it_goes(lab):
    async def script(app, pilot):
        await press(pilot, "ctrl+n")
        await wait_until(pilot, lambda: "take the # off one of its lines" in said(app))
        assert (lab / "settings.yaml").read_text() == notify.TEMPLATE
        (lab / "settings.yaml").write_text("notify: exit 7")
        await press(pilot, "ctrl+n")
        await wait_until(pilot, lambda: "exit code 7" in said(app))
        (lab / "settings.yaml").write_text("notify: 'true'")
        await press(pilot, "ctrl+n")
        await wait_until(pilot, lambda: "notify works" in said(app))

    drive(lab, script)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_toasts_do_not_cover_the_devices(lab, size):
    async def main() -> None:
        app = tui_lab.make_app(lab)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            for number in range(3):
                app.say(f"something to say {number}")
            await settle(pilot)
            strip = app.screen.query_one(DeviceStrip).region
            toasts = [toast.region for toast in app.screen.query(Toast)]
            assert len(toasts) == 3
            assert max(toast.bottom for toast in toasts) <= strip.y
            assert "something to say 2" in text_of(app)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("keys", "first"), [([], "Runs"), (["3"], "Curves"), (["f"], "Log"), (["c"], "Compare"), (["l"], "Launch")]
)
def test_help_opens_on_the_screen_one_is_on(lab, keys, first):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        await press(pilot, *keys)
        await press(pilot, "question_mark")
        shown = app.screen.query_one("#keys").shown
        assert shown[0][0][0].strip() == first

    drive(lab, script, (120, 40))


def test_the_full_log_has_its_hints_and_a_click_does_what_they_say(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        await press(pilot, "f")
        lines = text_of(app).splitlines()
        assert "/ Search" in lines[-1]
        assert "esc Back" in lines[-1]
        await pilot.click("Hints", offset=(lines[-1].index("/ Search"), 0))
        assert app.focused.placeholder.startswith("search")

    drive(lab, script, (80, 24))


def test_no_hint_promises_what_its_key_does_not_do_there(lab):
    async def script(app, pilot):
        await press(pilot, "f")
        assert "q Quit" not in text_of(app)  # it goes back
        await press(pilot, "q")
        assert "q Quit" in text_of(app).splitlines()[-1]

    drive(lab, script)


@pytest.mark.parametrize("arms", [["mnli-baseline"], ["mnli-baseline", "mnli-oelm", "sst2-baseline", "sst2-oelm"]])
def test_the_launch_form_says_what_it_launches_on_sixty_columns(lab, arms):
    async def script(app, pilot):
        app.push_screen(Launch(arms, None))
        await settle(pilot)
        assert text_of(app).startswith(" Launch mnli-baseline")

    drive(lab, script, size=(60, 20))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_silent_disk_is_said_beside_what_needs_a_look(lab, width):
    async def script(app, pilot):
        app.screen.query_one(Header).problem = "no update for 9 s: the disk or the network is not responding"
        await settle(pilot)
        top = text_of(app).splitlines()[0]
        assert "1 needs a look" in top
        assert "no update for 9 s" in top

    drive(lab, script, size=(width, 20))
