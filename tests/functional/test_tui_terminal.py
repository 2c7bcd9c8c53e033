"""The whole lab in a real terminal: tmux 80 wide, real runs on the processor, quit and reopen, compare, export."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.functional.real_terminal import Terminal, open_terminal
from tests.functional.tui_lab import write_lab

pytestmark = [pytest.mark.slow, needs.tmux]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with open_terminal(tmp_path) as one:
        yield one


def states(home: Path) -> dict[str, str]:
    found = {}
    for path in (home / "runs").glob("*/state.json"):
        content = json.loads(path.read_text())
        found[path.parent.name] = content["state"]
    return found


def test_from_the_first_launch_to_the_exported_table(terminal, tmp_path):
    command = f"{shlex.quote(sys.executable)} -m oelm_tui"
    home = tmp_path / "lab"
    terminal.start(80, 36)  # with room for the first words above the tree
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
    text = terminal.wait_until(lambda text: arm in text.partition("BERT")[2].partition(group)[2])  # painted to the end
    lines = [line for line in text.splitlines() if line.strip()]
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
