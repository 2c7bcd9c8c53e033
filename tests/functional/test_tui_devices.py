"""The Devices pane under keys: ending one's own process, and nobody else's."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from oelm_core.devices import own_processes
from oelm_core.devices.card import CardProcess
from oelm_core.launch import local
from oelm_tui.screens import considered
from oelm_tui.snapshots.cards import Machine
from tests.functional import tui_lab
from tests.functional.test_tui_dialogs import burst
from tests.functional.tui_lab import NOW, drive, press, run_id, said, text_of, wait_until


def on_a_card(monkeypatch: pytest.MonkeyPatch, *processes: CardProcess) -> list[tuple[int, bool]]:
    """The lab with these processes on its first card; what is ended there is only written down."""
    before = tui_lab.machine()
    cards = (msgspec.structs.replace(before.cards[0], processes=processes), *before.cards[1:])
    after = Machine(dataclasses.replace(before.here, gpus=cards))
    monkeypatch.setattr(tui_lab, "machine", lambda: after)
    ended: list[tuple[int, bool]] = []
    monkeypatch.setattr(own_processes, "end", lambda one, now=False: ended.append((one.pid, now)))
    return ended


def test_ones_own_process_is_ended_from_the_devices_after_a_question_with_its_own_letter(lab, monkeypatch):
    mine = CardProcess(4711, 2**30, "ann", "python mine.py", started=NOW - 60, mine=True)
    theirs = CardProcess(4712, 2**30, "bob", "python theirs.py", started=NOW - 60)
    ended = on_a_card(monkeypatch, mine, theirs)

    async def script(app, pilot):
        await press(pilot, "4", "X")
        assert "End your process 4711?" in text_of(app)
        assert "python mine.py" in text_of(app)
        await press(pilot, "y", "enter")
        assert ended == []
        await press(pilot, "X", "X")
        await wait_until(pilot, lambda: ended == [(4711, False)])
        await press(pilot, "X")
        assert "SIGKILL" in text_of(app)
        await press(pilot, "X")
        await wait_until(pilot, lambda: ended == [(4711, False), (4711, True)])
        await press(pilot, "down", "X")
        assert "only your own can be ended" in said(app)
        assert len(ended) == 2

    drive(lab, script)


def test_keys_typed_ahead_end_no_process(lab, monkeypatch):
    ended = on_a_card(monkeypatch, CardProcess(4711, 2**30, "ann", "python mine.py", started=NOW, mine=True))
    monkeypatch.setattr(considered, "GRACE", 0.3)

    async def script(app, pilot):
        await burst(app, pilot, "4", "X", "X", "X", "enter")
        assert ended == []

    drive(lab, script)


def test_a_run_on_a_card_is_stopped_as_a_run(lab, monkeypatch):
    run = run_id("GPT-01", 1)
    ended = on_a_card(monkeypatch, CardProcess(4711, 2**30, "ann", "worker", run=run, started=NOW, mine=True))
    stopped = []
    monkeypatch.setattr(local, "stop", lambda folder, now=False: stopped.append((folder.id, now)))

    async def script(app, pilot):
        await press(pilot, "4", "X")
        assert f"Stop {run}?" in text_of(app)
        assert "writes a checkpoint" in text_of(app)
        await press(pilot, "y")
        await wait_until(pilot, lambda: stopped == [(run, False)])
        assert ended == []

    drive(lab, script)


def test_readonly_ends_no_process(lab, monkeypatch):
    on_a_card(monkeypatch, CardProcess(4711, 2**30, "ann", "python mine.py", started=NOW, mine=True))

    async def script(app, pilot):
        await press(pilot, "4", "X")
        assert "read-only" in said(app)
        assert "End your process" not in text_of(app)

    drive(lab, script, readonly=True)
