"""Copying through tmux and screen, which keep the terminal's own way (OSC 52) to themselves."""

from __future__ import annotations

import base64
from collections.abc import Mapping

SCREEN_TAKES = 700
"""Characters that GNU screen passes on in one piece."""


def within_screen(text: str, environment: Mapping[str, str]) -> str:
    """What is to be written so that GNU screen hands the text on to the terminal; nothing outside of screen."""
    if not environment.get("STY"):
        return ""
    whole = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a"
    pieces = (whole[at : at + SCREEN_TAKES] for at in range(0, len(whole), SCREEN_TAKES))
    return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)


def give_to_tmux(text: str, environment: Mapping[str, str]) -> None:
    """Into tmux's own buffer, and from there to the terminal: tmux as it comes drops what a program in it copies."""
    if not environment.get("TMUX"):
        return
    import subprocess

    for command in (["tmux", "load-buffer", "-w", "-"], ["tmux", "load-buffer", "-"]):  # -w came with tmux 3.2
        try:
            done = subprocess.run(command, input=text.encode(), env=dict(environment), capture_output=True, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            return
        if done.returncode == 0:
            return
