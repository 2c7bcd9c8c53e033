"""Writes the tables of all keys into docs/tui.md, from the list that binds them.

Run with: python -m benchmarks.screen_keys docs/tui.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from oelm_tui.actions import ACTIONS, shown_key

TITLE, AFTER = "## All keys\n", "## How it is built\n"


def tables() -> str:
    parts = [TITLE, "What `?` shows; `make pictures` writes it here."]
    for group in dict.fromkeys(action.group for action in ACTIONS):
        rows = [action for action in ACTIONS if action.group == group]
        parts += ["", f"| {group} | | |", "|---|---|---|"]
        for action in rows:
            keys = " ".join(f"`{shown_key(key)}`" for key in action.keys.split(","))
            parts.append(f"| {keys} | {action.title} | {action.help} |")
    return "\n".join([*parts, "", ""])


def with_keys(page: str) -> str:
    before, _, after = page.partition(AFTER)
    return before.partition(TITLE)[0] + tables() + AFTER + after


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(with_keys(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
