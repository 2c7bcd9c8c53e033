"""A real terminal for tests of the screen: a tmux of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SIZE = ("COLUMNS", "LINES")
"""Of the terminal that tests were started in, or what xdist made up: they would win over the real one's."""


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

    def burst(self, data: bytes) -> None:
        """Bytes that arrive in one piece."""
        self("send-keys", "-t", "lab", "-H", *(f"{byte:02x}" for byte in data))

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


@contextmanager
def open_terminal(tmp_path: Path, **settings: str) -> Iterator[Terminal]:
    """Its OELM_HOME is `lab` unless `settings` say otherwise; what it started of the demo is stopped at the end."""
    inherited = {name: value for name, value in os.environ.items() if name not in SIZE}
    environment = {
        **inherited,
        "OELM_HOME": str(tmp_path / "lab"),
        "OELM_LEASES": str(tmp_path / "leases"),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "PS1": "$ ",
        **settings,
    }
    home = Path(environment["OELM_HOME"])
    home.mkdir(exist_ok=True)
    one = Terminal(tmp_path, environment)
    try:
        yield one
    finally:
        oelm = [sys.executable, "-m", "oelm_tui"]
        for run in (home / "runs").glob("demo-*"):
            subprocess.run([*oelm, "stop", run.name, "--now"], env=environment, capture_output=True)
        one("kill-server")
