"""Pictures of the screen at every size and in every kind of terminal, compared with the ones kept here.

The lab is made up, the clock stands still and nothing blinks, so any difference is a change of the screen.
After a wanted change: pytest tests/functional/test_tui_snapshots.py --snapshot-update
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oelm_tui import glyphs
from tests.functional.tui_lab import make_app, press, run_id, settle


@pytest.fixture(autouse=True)
def _still(template: Path, monkeypatch: pytest.MonkeyPatch):
    """The same place, time zone and colours everywhere, and Slurm as if it were installed."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if name == "sbatch" else None)
    monkeypatch.chdir(template.parent)
    monkeypatch.setenv("OELM_HOME", str(template))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def home(*keys: str, theme: str = "", select: str = ""):
    async def before(pilot) -> None:
        await settle(pilot)
        if theme:
            pilot.app.theme = theme
        if select:
            pilot.app.screen.runs_table.go_to(select)
        await settle(pilot)
        await press(pilot, *keys)
        await settle(pilot)

    return before


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
def test_home(snap_compare, template, size):
    assert snap_compare(make_app(template), terminal_size=size, run_before=home())


def test_home_in_sixteen_colours(snap_compare, template):
    assert snap_compare(make_app(template), terminal_size=(120, 40), run_before=home(theme="ansi-dark"))


def test_home_in_the_light(snap_compare, template):
    assert snap_compare(make_app(template), terminal_size=(120, 40), run_before=home(theme="oelm-light"))


def test_home_without_colour(snap_compare, template, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(make_app(template), terminal_size=(120, 40), run_before=home())


def test_home_in_ascii(snap_compare, template):
    glyphs.use_ascii(True)
    try:
        assert snap_compare(make_app(template), terminal_size=(120, 40), run_before=home())
    finally:
        glyphs.use_ascii(False)


def test_a_failed_run(snap_compare, template):
    shown = home("3", select=run_id("mnli-oelm", 6, 43))
    assert snap_compare(make_app(template), terminal_size=(80, 24), run_before=shown)


def test_the_devices(snap_compare, template):
    assert snap_compare(make_app(template), terminal_size=(80, 24), run_before=home("4"))


def test_a_log(snap_compare, template):
    shown = home("f", select=run_id("mnli-oelm", 6, 43))
    assert snap_compare(make_app(template), terminal_size=(60, 20), run_before=shown)


def test_a_question(snap_compare, template):
    asked = home("s", select=run_id("GPT-01", 1))
    assert snap_compare(make_app(template), terminal_size=(80, 24), run_before=asked)


def test_the_launch_form(snap_compare, template):
    async def before(pilot) -> None:
        await home("1")(pilot)
        pilot.app.screen.tree_of_presets.go_to("arm/sst2-oelm")
        await press(pilot, "l")
        pilot.app.screen.query_one("#settings").cursor_blink = False

    assert snap_compare(make_app(template), terminal_size=(120, 36), run_before=before)


def test_a_comparison(snap_compare, template):
    async def before(pilot) -> None:
        await home("c", select=run_id("sst2-oelm", 5))(pilot)
        for _ in range(500):
            if pilot.app.screen.compared is not None:
                break
            await pilot.pause(0.02)
        await settle(pilot)

    assert snap_compare(make_app(template), terminal_size=(120, 40), run_before=before)
