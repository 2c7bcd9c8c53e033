"""The screen under fire: keys, pastes and sizes without end, folders that change and a home that goes. It lives, and
does nothing to a run. A little here; `make fire` (OELM_FIRE=20) does twenty times as much.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.events import Key, Paste

from oelm_core.launch import launcher
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunState
from oelm_core.runs.store import list_runs
from oelm_tui.actions import ACTIONS
from oelm_tui.app import OelmApp
from oelm_tui.screens import considered
from oelm_tui.screens.home import Home
from oelm_tui.snapshots.sampler import Sources
from tests.functional.tui_lab import NOW, catalogue, facts, machine, settle, wait_until
from tests.run_factory import experiment, write_run

TIMES = int(os.environ.get("OELM_FIRE", "1"))
LEAVING = {"q", "ctrl+q", "ctrl+z", "ctrl+c"}
KEYS = sorted({key for action in ACTIONS for key in action.keys.split(",")} - LEAVING)
LETTERS = "abcdefghijklmnoprstuvwxyzDKyyyn0123456789:/.=-"
SIZES = [(200, 60), (120, 36), (80, 24), (60, 20), (40, 12), (20, 5), (3, 2), (1, 1)]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done to runs. No question counts as read here, so nobody can have confirmed anything."""
    found: list[str] = []
    for name in ("start", "stop", "resume", "delete"):
        monkeypatch.setattr(launcher, name, lambda *about, name=name, **_: found.append(f"{name} {about}"))
    monkeypatch.setattr(considered, "GRACE", 1e9)
    return found


def open_app(lab: Path, every: float = 60.0) -> OelmApp:
    real = Sources(lambda: list_runs(lab / "runs"), machine=machine, now=lambda: NOW)
    return OelmApp(sources=real, load=catalogue, every=every, facts=facts)


def key(name: str) -> Key:
    return Key(name, name if len(name) == 1 else None)


def under_fire(lab: Path, script, every: float = 60.0) -> None:
    """The script against an open screen, which must answer at its end."""
    app = open_app(lab, every)

    async def main() -> None:
        async with app.run_test(size=(120, 36)) as pilot:
            await settle(pilot)
            await script(app, pilot)
            await pilot.resize_terminal(120, 36)
            for _ in range(30):  # out of whatever was opened, and then it listens
                if isinstance(app.screen, Home):
                    break
                await pilot.press("escape")
            await wait_until(pilot, lambda: isinstance(app.screen, Home))
            await pilot.press("question_mark")
            await wait_until(pilot, lambda: type(app.screen).__name__ == "Help")

    asyncio.run(main())
    assert app.return_code in (0, None)
    assert app.crash_file is None


def test_keys_and_bursts_of_them_do_nothing_to_any_run(lab, done):
    chance = random.Random(13)
    before = sorted(os.listdir(lab / "runs"))

    async def script(app, pilot):
        for _ in range(10 * TIMES):
            for _ in range(10):
                app.post_message(key(chance.choice(KEYS)))
            app.post_message(Paste("".join(chance.choices(LETTERS, k=20))))
            for _ in range(chance.randint(2, 12)):
                app.post_message(key(chance.choice(LETTERS + "yyyKKDD").replace("/", "slash")))
            await pilot.pause()

    under_fire(lab, script)
    assert done == []
    assert sorted(name for name in os.listdir(lab / "runs") if not name.startswith(".")) == before


def test_a_megabyte_is_pasted_everywhere_and_answers_nothing(lab, done):
    megabyte = "y\nD\nK\n\x1b[A" + "seed:42 family:gpt y " * (2**20 // 21)

    async def script(app, pilot):
        for opens in ("", "slash", "s", "D", "l", "t", "ctrl+p")[: 4 if TIMES == 1 else None]:
            if opens:
                await pilot.press(opens)
            app.post_message(Paste(megabyte))
            await pilot.pause()
            await pilot.press("escape", "escape")

    under_fire(lab, script)
    assert done == []


def test_a_storm_of_sizes_is_lived_through_on_every_screen(lab, done):
    chance = random.Random(7)

    async def script(app, pilot):
        for opens in ("2", "c", "l", "question_mark", "f"):
            await pilot.press(opens)
            for _ in range(2 * TIMES):
                await pilot.resize_terminal(*chance.choice(SIZES))
            await pilot.resize_terminal(120, 36)
            await pilot.press("escape")

    under_fire(lab, script)
    assert done == []


def test_a_page_key_before_the_palette_has_its_list_ends_nothing(lab, done):
    async def script(app, pilot):
        await pilot.press("ctrl+p")
        commands = app.screen.query_one("CommandList")
        await wait_until(pilot, lambda: commands.option_count > 3)
        commands._line_cache.clear()
        commands._update_lines = lambda: None  # as before its first layout
        await pilot.press("pagedown", "pageup")

    under_fire(lab, script)


class Changing:
    """While it is entered: so many folders, of which 300 a second get another step, come or go."""

    def __init__(self, runs: Path, count: int) -> None:
        self._folders = []
        me = process.me()
        who = {"host": me.host, "boot_id": me.boot_id, "boot_time": me.boot_time, "pid": me.pid, "started": me.started}
        first = write_run(runs, experiment("fire"), number=0, without=["result"]).folder
        state = first.read(RunState)
        assert state is not None
        self._state = replace(state, state="running", reason=None, ended=None, workers=[], heartbeat=time.time(), **who)
        for number in range(count):
            path = runs / f"fire-s{number}-20260203-{number:06d}-{number:04x}"
            shutil.copytree(first.path, path)
            self._folders.append(RunFolder(path))
            self._folders[-1].write(self._state, durable=False)
        self.changes, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._change, daemon=True)

    def __enter__(self) -> Changing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _change(self) -> None:
        chance, began = random.Random(3), time.monotonic()
        while not self._over.wait(0.02):
            for _ in range(max(0, int((time.monotonic() - began) * 300) - self.changes)):
                folder, self.changes = chance.choice(self._folders), self.changes + 1
                if self.changes % 50 == 0:
                    elsewhere = folder.path.with_name(f".gone-{folder.id}")
                    folder.path.rename(elsewhere)
                    elsewhere.rename(folder.path)
                folder.write(replace(self._state, step=self.changes), durable=False)


def test_it_follows_300_folders_that_change_a_second(lab, done):
    with Changing(lab / "runs", 300) as changing:

        async def script(app, pilot):
            await wait_until(pilot, lambda: len(app.snapshot.runs) > 250)
            until, keys = time.monotonic() + 1.5 * TIMES, random.Random(5)
            while time.monotonic() < until:
                await pilot.press(keys.choice(["down", "up", "pagedown", "end", "home", "o", "2", "space"]))
            seen = max(view.run.step for view in app.snapshot.runs if view.run.preset == "fire")
            assert seen > 0
            assert changing.changes > 200

        under_fire(lab, script, every=0.2)
    assert done == []


def test_a_home_deleted_under_the_open_screen_is_an_empty_one(lab, done):
    async def script(app, pilot):
        while lab.exists():  # the screen may be writing in it
            shutil.rmtree(lab, ignore_errors=True)
        app.threads["lab"].ask(None)
        await wait_until(pilot, lambda: app.snapshot.runs == ())
        for name in ("2", "down", "enter", "c", "escape", "l", "escape", "s", "D", "t", "escape", "f", "escape", "a"):
            await pilot.press(name)
        await settle(pilot)

    under_fire(lab, script)
    assert done == []
