"""Dialogs stand in the middle over what they are about; on an ASCII terminal every screen is ASCII to its borders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.events import Key
from textual.pilot import Pilot

from oelm_tui import glyphs
from oelm_tui.app import OelmApp
from oelm_tui.screens.dialogs import Confirm, Form
from oelm_tui.screens.home import Home
from oelm_tui.widgets.row_table import RowTable
from tests.functional.tui_lab import drive, press, run_id, settle, text_of, wait_until


async def burst(app: OelmApp, pilot: Pilot[None], *keys: str) -> None:
    """Keys that arrive all at once, as over a link that stood still."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))
    await settle(pilot)


@pytest.fixture
def in_ascii() -> Iterator[None]:
    glyphs.use_ascii(True)
    yield
    glyphs.use_ascii(False)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_a_question_stands_in_the_middle_and_the_lab_shows_behind_it(lab, size):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        await press(pilot, "s")
        box = app.screen.query(".dialog").first().region
        assert abs(box.x - (size[0] - box.right)) <= 1
        assert abs(box.y - (size[1] - box.bottom)) <= 1
        assert "Stop GPT-01" in text_of(app)
        assert "mnli-oelm" in text_of(app)  # the runs table behind it

    drive(lab, script, size)


SCREENS = {"stop": ["s"], "help": ["question_mark"], "note": ["t"], "launch": ["l"], "compare": ["c"], "log": ["f"]}
SCREENS |= {"palette": ["ctrl+p"], "message": ["y"], "refusal": ["r"]}


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
@pytest.mark.parametrize("screen", SCREENS)
def test_an_ascii_terminal_gets_only_ascii_on_every_screen_wherever_the_focus_is(lab, in_ascii, screen, size):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-02", 2))
        await press(pilot, *SCREENS[screen])
        for _ in range(4):
            shown = text_of(app)
            assert shown.isascii(), [character for character in shown if not character.isascii()]
            await press(pilot, "tab")

    drive(lab, script, size)


def test_keys_that_arrive_together_are_done_in_their_order(lab):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("sst2-oelm", 5))
        await press(pilot, "t")
        field = app.screen.focused
        field.value = "what stood there"
        await burst(app, pilot, "ctrl+u", "a", "b", "backspace", "c", "home", "d")
        assert field.value == "dac"
        await burst(app, pilot, "enter", "enter")
        assert isinstance(app.screen, Home)  # the form is gone, and nothing else

    drive(lab, script)


def test_a_key_that_a_field_has_no_use_for_is_for_the_form_around_it(lab):
    async def script(app, pilot):
        app.open_launch(["GPT-01"], None)
        await settle(pilot)
        form = app.screen.query_one("#form")
        app.screen.query_one("#settings").focus(scroll_visible=False)
        form.scroll_to(y=0, animate=False)
        await press(pilot, "pagedown")
        await wait_until(pilot, lambda: form.scroll_y > 0)

    drive(lab, script, (80, 18))


@pytest.mark.parametrize(("typed", "file"), [("", "compare.csv"), (".", "compare.csv"), ("a.b", "a.csv")])
def test_a_format_can_be_chosen_whatever_stands_in_the_field(lab, typed, file):
    async def script(app, pilot):
        app.push_screen(Form("Export", [("file", "File", typed)], [("md", "Markdown"), ("csv", "CSV")]))
        await settle(pilot)
        await pilot.click("#as-csv")
        assert app.screen.query_one("#file").value == file

    drive(lab, script)


@pytest.mark.parametrize(("key", "bar"), [("l", "#launch-title"), ("f", "#log-title"), ("c", "#compare-title")])
def test_a_click_on_a_tab_does_what_its_key_does(lab, key, bar):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("sst2-oelm", 5))
        await press(pilot, key)
        assert not isinstance(app.screen, Home)
        line = text_of(app).splitlines()[0]
        await pilot.click(bar, offset=(line.index("esc Back"), 0))
        await wait_until(pilot, lambda: isinstance(app.screen, Home))
        await pilot.click("#pane-tabs", offset=(text_of(app).splitlines()[1].index("4 Devices"), 0))
        assert app.screen.pane == "devices"

    drive(lab, script, (80, 24))


@pytest.mark.parametrize("words", ["[/nope]", "[bold]loud[/]", "\\[/nope]", "[@click=app.quit]go[/]"])
def test_markup_in_titles_notes_and_messages_is_shown_as_it_is_written(lab, words, monkeypatch):
    async def script(app, pilot):
        app.say(words)
        arms = app.snapshot.catalogue.experiments
        monkeypatch.setitem(arms, "sst2-oelm", arms["sst2-oelm"].model_copy(update={"title": words}))
        home = app.screen
        home.on_row_table_moved(RowTable.Moved(home.tree_of_presets, "arm/sst2-oelm", True))
        await settle(pilot)
        assert words in text_of(app)
        assert words in str(home.query_one("#presets-box")._border_subtitle)
        await app.push_screen(Confirm(f"Delete {words}?", [words], "Delete"))
        await settle(pilot)
        assert f"Delete {words}?" in text_of(app)

    drive(lab, script)
