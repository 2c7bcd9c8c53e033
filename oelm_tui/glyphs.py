"""Signs that say what colour says, in Unicode and in ASCII; the choice is made once per process."""

from __future__ import annotations

import os
import sys

_STATES = {
    "queued": ("◌", ".", "wait"),
    "waiting": ("◷", "w", "wait"),
    "starting": ("▹", ">", "ok"),
    "running": ("▶", ">", "ok"),
    "stopping": ("◼", "#", "wait"),
    "finished": ("✔", "+", "done"),
    "failed": ("✗", "x", "bad"),
    "stopped": ("■", "#", "faint"),
    "lost": ("?", "?", "bad"),
    "unknown": ("?", "?", "faint"),
}
"""A run's state to its sign, the same in ASCII, and its role."""


class Signs:
    """All other signs of the screen."""

    ascii_only = False
    open, shut = "▾", "▸"
    never, partly, done = "○", "◐", "●"
    marked, flag, cursor = "◆", "⚑", "›"
    up, down, dot, ellipsis = "↑", "↓", "·", "…"
    good, warn, bad, note = "✔", "⚠", "✗", "·"
    spread, borrowed = "±", "†"
    saved, let_go = "◇", "┊"
    arms = ("●", "▲", "■", "◆", "○", "△", "□", "▼")
    bar_steps, spark, track = " ▏▎▍▌▋▊▉█", " ▁▂▃▄▅▆▇█", "░"
    more_left, more_right = "‹", "›"

    def state(self, name: str) -> str:
        return _STATES.get(name, _STATES["unknown"])[1 if self.ascii_only else 0]


class AsciiSigns(Signs):
    ascii_only = True
    open, shut = "v", ">"
    never, partly, done = "o", "~", "*"
    marked, flag, cursor = "*", "!", ">"
    up, down, dot, ellipsis = "^", "v", "-", "~"
    good, warn, bad, note = "+", "!", "x", "-"
    spread, borrowed = "+-", "*"
    saved, let_go = "c", "!"
    arms = ("*", "o", "x", "+", "@", "%", "&", "=")
    bar_steps, spark, track = " #", " .:-=+*#@", "-"
    more_left, more_right = "<", ">"


def state_role(name: str) -> str:
    return _STATES[name][2] if name in _STATES else ""


UNICODE, ASCII = Signs(), AsciiSigns()


def wants_ascii() -> bool:
    """OELM_ASCII=1, or a terminal whose encoding cannot show anything else."""
    chosen = os.environ.get("OELM_ASCII")
    if chosen is not None:
        return chosen not in ("", "0")
    encoding = getattr(sys.__stdout__, "encoding", None) or "utf-8"
    return "utf" not in encoding.lower()


signs: Signs = ASCII if wants_ascii() else UNICODE


def use_ascii(ascii_only: bool) -> None:
    """Switches the signs for the whole process."""
    global signs
    signs = ASCII if ascii_only else UNICODE


def bar(share: float | None, width: int) -> str:
    """A bar of eighths; unknown is dots."""
    if share is None:
        return "." * width
    steps = signs.bar_steps
    filled = max(0.0, min(1.0, share)) * width
    whole = int(filled)
    part = round((filled - whole) * (len(steps) - 1))
    text = steps[-1] * whole + (steps[part] if whole < width and part else "")
    return text.ljust(width)[:width]


def sparkline(values: list[float], width: int, top: float = 100.0) -> str:
    """The newest values as little columns, right-aligned."""
    steps = signs.spark
    recent = values[-width:]
    drawn = "".join(
        steps[min(len(steps) - 1, max(0, round(value / top * (len(steps) - 1))))] if value == value else " "
        for value in recent
    )
    return drawn.rjust(width)
