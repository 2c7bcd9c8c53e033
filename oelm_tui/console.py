"""How commands print: tables for people, JSON for scripts, notes on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oelm_tui import streams

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


def console() -> Console:
    """Rich's console. Into a pipe it is wide, so that no cell is cut."""
    from rich.console import Console

    class Printer(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process itself, with 1

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    out = Printer(width=200 if piped else None, highlight=False, soft_wrap=False)
    out.width = max(out.width, streams.NARROWEST)
    return out


def print_json(content: Any) -> None:
    from oelm_core.plain_text import json_text

    print(json_text(content, ascii_only=not streams.speaks_unicode()))


def note(sentence: str) -> None:
    """A remark that must not get into a script's input."""
    from oelm_core.errors import one_line

    print(f"oelm: {one_line(sentence)}", file=sys.stderr)


MOST_NOTES = 10


def notes(sentences: Sequence[str], how_to_see: str) -> None:
    """Remarks of one kind: the first ten, then how many more there are, and how to see one of those."""
    for sentence in sentences[:MOST_NOTES]:
        note(sentence)
    if len(sentences) > MOST_NOTES:
        note(f"and {len(sentences) - MOST_NOTES:,} more like these; {how_to_see}.")


def write_file(path: Path, content: str | bytes) -> None:
    from oelm_core.errors import Refused

    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}.") from None


def print_once_or_watch(show: Callable[[], object], watch: bool, *, clear: bool) -> None:
    """Prints; to `watch` it again every two seconds until Ctrl-C, each time on a clear screen where that is wanted."""
    while True:
        if watch and clear and streams.can_move_cursor():
            print("\033[H\033[2J", end="")
        show()
        if not watch:
            return
        time.sleep(2)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> None:
    """Aligned columns without boxes: good to read, good to grep.

    The last column takes the room that is left and ends in an ellipsis; in a narrow terminal `drop` columns go first.
    """
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    from oelm_core.plain_text import visible

    out, cells = console(), [[visible(cell) for cell in row] for row in rows]
    widths = {name: max(map(cell_len, (name, *(row[at] for row in cells)))) for at, name in enumerate(columns)}
    shown = _fitting(list(columns), widths, drop, out.width)
    rest = sum(widths[name] + 2 for name in shown[:-1])
    widths[shown[-1]] = max(min(widths[shown[-1]], out.width - rest), 0)
    layout = [(columns.index(name), widths[name], name in right) for name in shown]

    def line(row: Sequence[str]) -> str:
        parts = []
        for at, width, to_the_right in layout:
            text = row[at]
            taken = cell_len(text)
            if taken > width:
                text = set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
                taken = cell_len(text)
            padding = " " * (width - taken)
            parts.append(padding + text if to_the_right else text + padding)
        return "  ".join(parts).rstrip()

    out.print(Text(line(columns), style="bold"), overflow="ignore", no_wrap=True, crop=False)
    for row in cells:  # plain, and rich would take most of the time that thousands of them need
        print(line(row))


def _fitting(columns: list[str], widths: dict[str, int], drop: Sequence[str], room: int) -> list[str]:
    """The columns without as many of `drop` as it takes to leave the last one its width, or a third of the room."""
    last = columns[-1]
    for name in drop:
        needed = sum(widths[other] + 2 for other in columns if other != last) + min(widths[last], room // 3)
        if needed <= room:
            break
        columns = [other for other in columns if other != name]
    return columns
