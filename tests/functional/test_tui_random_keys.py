"""Random bursts of text and keys through a real terminal: nothing is started, stopped or deleted that no one confirmed.

A few here; OELM_BURSTS=200 makes it 200.
"""

from __future__ import annotations

import os
import random
import shlex
import sys
import time
from pathlib import Path

import pytest

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunState, Stop
from tests import needs
from tests.chaos.lab import open_lab
from tests.functional.real_terminal import Terminal, open_terminal
from tests.functional.tui_lab import run_id, write_lab

pytestmark = [pytest.mark.slow, needs.tmux]
BURSTS = int(os.environ.get("OELM_BURSTS", "8"))
TEXTS = [
    "family:gpt",
    "seed:78 family:gpt",
    "yesterday",
    "Kay's Diary",
    "sky",
    "Dry",
    "resume y",
    "train.lr=3e-3",
    "42-44",
]
KEYS = [*"/sKrDlyynctvzoa123", " ", "\r", "\r", "\t", "\x13", "\x10", "\x1b[A", "\x1b[B", "\x1b[3~", "\x1b[15~"]
"""Without q, which leaves: what follows would be typed into a shell."""


def burst_of(chance: random.Random) -> bytes:
    """Two to eight keys and texts in one piece, half of them after a key that opens a field or a question."""
    parts = [chance.choice(["/", "s", "K", "D", "r", "l", "t", "\x10"])] if chance.random() < 0.5 else []
    parts += [chance.choice(TEXTS if chance.random() < 0.4 else KEYS) for _ in range(chance.randint(2, 8))]
    return "".join(parts).encode()


def fates(runs: Path) -> dict[str, tuple[str, int, bool]]:
    """Of each run what a start, resume, stop or delete would change."""
    found = {}
    for path in runs.iterdir():
        folder = RunFolder(path)
        state = folder.read(RunState)
        if state is not None:
            asked = folder.read(Stop) is not None
            found[path.name] = (state.state, len(list(folder.attempts.glob("*.json"))), asked)
    return found


def go_home(terminal: Terminal) -> None:
    """Out of whatever the keys have opened, with single escapes that a person could have pressed."""
    given_up = time.monotonic() + 60  # a busy machine paints late
    while time.monotonic() < given_up:
        terminal.press("Escape")
        time.sleep(0.25)
        lines = [line for line in terminal.text.splitlines() if line.strip()]
        if lines and "l Launch" in lines[-1] and "esc" not in lines[-1] and not any("esc)" in line for line in lines):
            return
    raise AssertionError(f"no way home from here:\n{terminal.text}")


def test_bursts_of_keys_start_stop_and_delete_nothing(tmp_path):
    with open_lab(tmp_path) as lab, open_terminal(tmp_path, **lab.environment) as terminal:
        write_lab(lab.root.parent)
        live = lab.start(steps=1_000_000)
        lab.worker(live)
        terminal.start(100, 30)
        terminal.type(f"{shlex.quote(sys.executable)} -m oelm_tui\n")
        terminal.wait_for("stand-in")
        terminal.wait_until(lambda _: fates(lab.root)[live.id][0] == "running")
        before = fates(lab.root)
        assert run_id("sst2-oelm", 5) in before

        terminal.burst(b"/seed:78 family:gpt")  # this stopped a training
        terminal.wait_for("seed:78 family:gpt")
        go_home(terminal)
        chance = random.Random(18)
        for number in range(BURSTS):
            keys = burst_of(chance)
            terminal.burst(keys)
            time.sleep(0.4)
            assert fates(lab.root) == before, f"burst {number}: {keys!r}\n{terminal.text}"
            go_home(terminal)
        assert fates(lab.root) == before

        # And yet what is confirmed is done, however the keys have sorted and marked the runs.
        terminal.press("2", "Escape", "/")
        terminal.type("stand-in")
        terminal.wait_until(lambda text: "stand-in" in text and "GPT-01" not in text)
        terminal.press("Enter", "Home", "s")
        terminal.wait_for("Stop stand-in")
        time.sleep(0.5)
        terminal.press("y")
        assert lab.end(live)[:2] == ("stopped", "user")
