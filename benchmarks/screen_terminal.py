"""A pty with `oelm` in it: keys go in, what is drawn comes out with the time it came."""

from __future__ import annotations

import atexit
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 120, 36
CHOSEN = re.compile(rb"48;2;36;64;90m([^\x1b]*)")  # what the dark theme lays under the row with the cursor
NAME = re.compile(rb"(?:live|bench)-\d+")


@cache
def _bytecode() -> str:
    """Where bytecode is kept, as an installed package has it, also where the environment forbids writing it."""
    place = tempfile.mkdtemp(prefix="oelm-bench-pyc-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


class TimedTerminal:
    """`oelm` in a pty of its own; a thread keeps reading what it draws."""

    def __init__(self, home: Path, extra: Mapping[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "OELM_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": _bytecode(), **(extra or {})}
        for name in ("PYTHONDONTWRITEBYTECODE", "NO_COLOR", "OELM_ASCII"):
            environment.pop(name, None)
        self.output = bytearray()
        self._new = threading.Condition()
        self.started = self.last = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oelm_tui"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        os.close(slave)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self.master], [], [], 1.0)
                chunk = os.read(self.master, 65536) if ready else b""
            except (OSError, ValueError):
                return
            if chunk:
                with self._new:
                    self.output += chunk
                    self.last = time.perf_counter()
                    self._new.notify_all()

    @property
    def size(self) -> int:
        """Bytes drawn so far: a place to look from."""
        return len(self.output)

    def wait_until(self, seen: Callable[[bytes], bool], since: int = 0, timeout: float = 30.0) -> float:
        """Waits until what was drawn after `since` satisfies `seen`; the moment its last byte came."""
        give_up = time.perf_counter() + timeout
        with self._new:
            while not seen(bytes(self.output[since:])):
                if time.perf_counter() > give_up:
                    raise TimeoutError(f"not drawn within {timeout:.0f} s")
                self._new.wait(0.5)
            return self.last

    def wait_for(self, text: bytes, since: int = 0) -> float:
        return self.wait_until(lambda drawn: text in drawn, since)

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def chosen(self, since: int = 0) -> bytes | None:
        """Name of the run whose row was last drawn with the cursor on it."""
        return _chosen(bytes(self.output[since:]))

    def key_to_cursor(self, key: bytes) -> float:
        """Seconds from a key to the cursor drawn on another run."""
        before, place = self.chosen(), self.size
        begun = time.perf_counter()
        self.press(key)
        return self.wait_until(lambda drawn: _chosen(drawn) not in (None, before), place) - begun

    @property
    def cpu_seconds(self) -> float:
        return sum(psutil.Process(self.process.pid).cpu_times()[:2])

    @property
    def resident(self) -> float:
        """Megabytes."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def close(self) -> None:
        os.write(self.master, b"q")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def _chosen(drawn: bytes) -> bytes | None:
    names = NAME.findall(b"".join(CHOSEN.findall(drawn)))
    return names[-1] if names else None


@contextmanager
def terminal(home: Path, extra: Mapping[str, str] | None = None) -> Iterator[TimedTerminal]:
    one = TimedTerminal(home, extra)
    try:
        yield one
    finally:
        one.close()
