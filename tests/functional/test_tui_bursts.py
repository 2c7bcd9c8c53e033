"""Keys that arrive all at once, as over a slow link: text goes into the field it was meant for, and what stops, kills,
deletes or starts something is done only by a key that was pressed in sight of the question.
"""

from __future__ import annotations

import pytest
from textual.events import Key

from oelm_tui.app import OelmApp
from oelm_tui.screens import considered, home
from oelm_tui.screens.dialogs import Confirm, Form
from oelm_tui.screens.home import Home
from oelm_tui.screens.launch import Launch
from tests.functional.tui_lab import drive, press, run_id, said, settle, wait_until

NAMES = {"/": "slash", " ": "space", ":": "colon", "-": "minus", "=": "equals_sign", ".": "full_stop"}


def burst(app: OelmApp, *keys: str) -> None:
    """All of it before the screen answers the first."""
    for text in keys:
        for key in [text] if text in ("enter", "escape", "tab", "ctrl+s", "ctrl+p", "f5") else text:
            app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """What was done to runs."""
    found: list[str] = []
    monkeypatch.setattr(home, "perform", lambda what, views, say: found.extend(f"{what} {v.id}" for v in views))
    return found


@pytest.fixture(params=[(120, 36), (80, 24)])
def size(request) -> tuple[int, int]:
    return request.param


def test_a_filter_typed_in_one_burst_is_a_filter_and_stops_nothing(lab, done, size):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        burst(app, "/seed:42 family:gpt")
        await settle(pilot)
        assert isinstance(app.screen, Home)
        assert app.screen.runs_table.query_text == "seed:42 family:gpt"
        assert done == []

    drive(lab, script, size)


def test_text_for_a_form_and_for_the_log_search_goes_there(lab, done):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("GPT-01", 1))
        burst(app, "tsky Dry")
        await settle(pilot)
        assert isinstance(app.screen, Form)
        assert app.screen.query_one("#tags").value == "sky Dry"
        burst(app, "escape", "f", "/nsy", "enter")
        await settle(pilot)
        assert app.screen.query_one("LogView")._request.text == "nsy"

    drive(lab, script)


@pytest.mark.parametrize(("opens", "answers"), [("s", "y"), ("s", "enter"), ("K", "K"), ("D", "D"), ("r", "y")])
def test_a_question_is_not_answered_by_what_was_typed_before_it_was_seen(lab, done, monkeypatch, opens, answers):
    monkeypatch.setattr(considered, "GRACE", 0.3)
    chosen = run_id("XNLI-02", 7) if opens in "Dr" else run_id("GPT-01", 1)

    async def script(app, pilot):
        app.screen.runs_table.go_to(chosen)
        burst(app, opens, answers, answers, "n")
        await settle(pilot)
        assert isinstance(app.screen, Confirm)
        await press(pilot, answers)  # drawn, and less than 300 ms ago
        assert done == []
        await pilot.pause(0.35)
        await press(pilot, answers)
        await wait_until(pilot, lambda: len(done) == 1)

    drive(lab, script)


@pytest.mark.parametrize("opens", ["K", "D"])
def test_what_cannot_be_undone_wants_its_own_letter(lab, done, opens):
    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("XNLI-02", 7) if opens == "D" else run_id("GPT-01", 1))
        await press(pilot, opens)
        await press(pilot, "y")
        assert isinstance(app.screen, Confirm)
        await press(pilot, "enter")  # the focus is on Cancel
        assert isinstance(app.screen, Home)
        assert done == []

    drive(lab, script)


@pytest.mark.parametrize("keys", [["l", "ctrl+s"], ["l", "f5"], ["l", "ctrl+p", "Start what", "enter"]])
def test_a_launch_form_starts_nothing_before_it_was_seen(lab, monkeypatch, keys):
    monkeypatch.setattr(considered, "GRACE", 0.3)
    started: list[object] = []
    monkeypatch.setattr(Launch, "_start", lambda self: started.append(self))

    async def script(app, pilot):
        app.screen.runs_table.go_to(run_id("sst2-oelm", 5))
        burst(app, *keys)
        await settle(pilot)
        await wait_until(pilot, lambda: "nothing was started" in said(app))
        await pilot.pause(0.35)
        await press(pilot, "ctrl+s")
        assert len(started) == 1

    drive(lab, script)
