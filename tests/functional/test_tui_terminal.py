"""The whole lab in a real terminal: tmux at 80x24, real runs on the processor, quit and reopen, compare, export."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.tui_lab import write_lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A tmux of our own; what is on its screen can be read and waited for."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux.sock"), "-f", "/dev/null"]
        self.folder = folder
        self._environment = environment

    def __call__(self, *arguments: str) -> str:
        ended = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, env=self._environment)
        return ended.stdout

    def start(self, width: int, height: int) -> None:
        self("new-session", "-d", "-s", "lab", "-x", str(width), "-y", str(height), "-c", str(self.folder), "sh")
        self.wait_for("$", "#")

    def type(self, text: str) -> None:
        self("send-keys", "-t", "lab", "-l", text)

    def press(self, *keys: str) -> None:
        self("send-keys", "-t", "lab", *keys)

    @property
    def text(self) -> str:
        return self("capture-pane", "-p", "-t", "lab")

    def wait_for(self, *any_of: str, timeout: float = 90.0) -> str:
        return self.wait_until(lambda text: any(words in text for words in any_of), timeout)

    def wait_until(self, holds: Callable[[str], bool], timeout: float = 90.0) -> str:
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            text = self.text
            if holds(text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"this never came on the screen; it shows:\n{self.text}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    environment = {
        **os.environ,
        "OELM_HOME": str(tmp_path / "lab"),
        "OELM_LEASES": str(tmp_path / "leases"),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "PS1": "$ ",
    }
    (tmp_path / "lab").mkdir()
    one = Terminal(tmp_path, environment)
    try:
        yield one
    finally:
        oelm = [sys.executable, "-m", "oelm_tui"]
        for run in (tmp_path / "lab" / "runs").glob("demo-*"):
            subprocess.run([*oelm, "stop", run.name, "--now"], env=environment, capture_output=True)
        one("kill-server")


def states(home: Path) -> dict[str, str]:
    found = {}
    for path in (home / "runs").glob("*/state.json"):
        content = json.loads(path.read_text())
        found[path.parent.name] = content["state"]
    return found


def test_from_the_first_launch_to_the_exported_table(terminal, tmp_path):
    command = f"{shlex.quote(sys.executable)} -m oelm_tui"
    home = tmp_path / "lab"
    terminal.start(80, 24)
    terminal.type(command + "\n")
    terminal.wait_for("demo stories")  # no runs yet: it opens on the presets, the demo unfolded
    screen = terminal.text
    assert "[1 Presets]" in screen

    # Mark the baseline and the OELM arm of the demo's GPT, and launch them on the processor for a few steps.
    walk_to(terminal, "demo stories", "baseline")
    terminal.press("Space")
    walk_to(terminal, "demo stories", "oelm")
    terminal.press("Space", "l")
    terminal.wait_for("Cards per run")
    terminal.press("Down", "Space")
    terminal.wait_for("2 runs on the processor")
    for _ in range(3):
        terminal.press("Tab")
        time.sleep(0.5)  # where the focus is cannot be read off the screen
    terminal.type("train.max_steps=30 train.eval_every=10 train.samples=0")
    terminal.wait_until(lambda text: "Settings as read" in text and "train.samples=0" in text)
    terminal.press("C-s")

    # They appear, and move.
    terminal.wait_until(lambda _: len(states(home)) == 2)
    terminal.press("2")
    terminal.wait_for("▶", "✔", timeout=120)

    # Quit: the terminal is clean again and the runs go on to their end.
    terminal.press("q")
    terminal.wait_until(lambda text: "OELM" not in text)
    terminal.wait_until(lambda _: set(states(home).values()) == {"finished"}, timeout=240)

    # Reopen, compare, export.
    terminal.type("clear; " + command + "\n")
    terminal.wait_for("2 finished")
    terminal.press("c")
    terminal.wait_for("perplexity", timeout=120)
    terminal.press("e")
    terminal.wait_for("Export this comparison")
    terminal.press("C-u")
    terminal.type("table.md")
    terminal.press("Enter")
    terminal.wait_until(lambda _: (tmp_path / "table.md").exists())
    text = (tmp_path / "table.md").read_text()
    assert "demo-gpt-baseline" in text
    assert "demo-gpt-oelm" in text

    # Suspend and come back, then leave.
    terminal.press("Escape")
    terminal.press("C-z")
    terminal.wait_for("Stopped", "Suspended", "suspended")
    terminal.type("fg\n")
    terminal.wait_for("esc Back", "2 finished")
    terminal.press("Escape", "q")
    terminal.wait_until(lambda shown: "2 finished" not in shown)


def walk_to(terminal: Terminal, group: str, arm: str) -> None:
    """Moves the cursor of the tree down to an arm of a group, by counting the rows on the screen."""
    lines = [line for line in terminal.text.splitlines() if line.strip()]
    top = next(number for number, line in enumerate(lines) if group in line)
    here = next(number for number, line in enumerate(lines) if number > top and arm in line)
    first = next(number for number, line in enumerate(lines) if "BERT" in line)
    terminal.press("Home", *["Down"] * (here - first))
    time.sleep(0.3)


def test_what_is_copied_inside_an_untouched_tmux_can_be_pasted(terminal, tmp_path):
    """tmux as it comes ignores OSC 52 of programs in it, so `copied` would be a lie."""
    write_lab(tmp_path / "lab")
    terminal.start(80, 24)
    terminal.type(f"{shlex.quote(sys.executable)} -m oelm_tui\n")
    terminal.wait_for("2 finished")
    terminal.press("End", "p")
    terminal.wait_for("path copied")
    terminal.wait_until(lambda _: "sst2-" in terminal("show-buffer"))
    terminal.press("q")


def test_a_crash_leaves_a_clean_terminal_and_names_a_file(terminal, tmp_path):
    script = tmp_path / "crash.py"
    script.write_text(
        "from oelm_tui import app\n"
        "def explode(self, event):\n    raise RuntimeError('a made-up crash')\n"
        "app.OelmApp.on_sampled = explode\n"
        "app.run_app(None, False)\n"
    )
    terminal.start(80, 24)
    terminal.type(f"{shlex.quote(sys.executable)} {script}; echo left with $?\n")
    text = terminal.wait_for("left with 1")
    assert "the details are in" in text
    assert "Traceback" not in text
    crash = next((tmp_path / "lab" / "crashes").glob("*.txt"))
    assert "a made-up crash" in crash.read_text()
