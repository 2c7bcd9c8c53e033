"""Threads with much to read rest after a key."""

from __future__ import annotations

import pytest

from oelm_tui.snapshots import key_priority


def test_a_reader_rests_until_keys_have_been_quiet_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        if len(slept) == 1:
            key_priority.key_pressed()  # another key while it rests

    monkeypatch.setattr(key_priority.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(key_priority.time, "sleep", sleep)
    monkeypatch.setattr(key_priority, "_pressed", float("-inf"))
    key_priority.give_way()
    assert slept == []
    key_priority.key_pressed()
    key_priority.give_way()
    assert slept == pytest.approx([key_priority.REST, key_priority.REST])
