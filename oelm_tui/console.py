"""How commands print: tables for people, JSON for scripts, notes on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Rich's console. Into a pipe it is wide, so that no cell is cut."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=200 if piped else None, highlight=False, soft_wrap=False)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=1, ensure_ascii=False))


def note(sentence: str) -> None:
    """A remark that must not get into a script's input."""
    print(f"oelm: {sentence}", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Aligned columns without boxes: good to read, good to grep."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)
