"""Threads with much to read rest after a key."""

from __future__ import annotations

import pytest

from oelm_tui.lab import courtesy


def test_a_reader_rests_until_keys_have_been_quiet_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        if len(slept) == 1:
            courtesy.key_pressed()  # another key while it rests

    monkeypatch.setattr(courtesy.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(courtesy.time, "sleep", sleep)
    monkeypatch.setattr(courtesy, "_pressed", float("-inf"))
    courtesy.give_way()
    assert slept == []
    courtesy.key_pressed()
    courtesy.give_way()
    assert slept == pytest.approx([courtesy.REST, courtesy.REST])
