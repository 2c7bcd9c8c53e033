"""Dialogs stand in the middle over what they are about; on an ASCII terminal every screen is ASCII to its borders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.events import Key

from oelm_tui import glyphs
from tests.functional.tui_lab import drive, press, run_id, settle, text_of


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
        for key in ("ctrl+u", "a", "b", "backspace", "c", "home", "d"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await settle(pilot)
        assert field.value == "dac"

    drive(lab, script)
