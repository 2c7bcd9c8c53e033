"""Threads with much to read rest after a key."""

from __future__ import annotations

import pytest

from oelm_tui.snapshots import background


def test_a_reader_rests_until_keys_have_been_quiet_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        if len(slept) == 1:
            background.key_pressed()  # another key while it rests

    monkeypatch.setattr(background.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(background.time, "sleep", sleep)
    monkeypatch.setattr(background, "_pressed", float("-inf"))
    background.give_way()
    assert slept == []
    background.key_pressed()
    background.give_way()
    assert slept == pytest.approx([background.REST, background.REST])
