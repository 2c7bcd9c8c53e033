"""The end of a log as plain lines, and what is added to it: `oelm logs` and `oelm logs -f`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from oelm_tui.logs.clean import plain
from oelm_tui.logs.reader import LogFile, Page

SCREENFUL = 500


def tail(path: Path, rows: int, *, follow: bool, ended: Callable[[], bool], pause: float = 0.3) -> Iterator[str]:
    """The last `rows` lines; with `follow`, whole new lines as they come until `ended` says so and nothing is left."""
    log = LogFile(path)
    log.refresh()
    page = log.last_page(rows) if rows else Page((), log.size, True)
    yield from _texts(page)
    position = page.lines[-1].end + 1 if page.lines else log.size
    while follow:
        last_look = ended()
        if log.refresh() == "restarted":
            position = 0
        while position < log.size:
            page = log.page_from(position, SCREENFUL)
            fresh = tuple(line for line in page.lines if line.start >= position and line.end < log.size)
            if not fresh:
                break
            yield from _texts(Page(fresh, page.size, page.at_end))
            position = fresh[-1].end + 1
        if last_look:
            return
        time.sleep(pause)


def _texts(page: Page) -> Iterator[str]:
    return (plain(line.shown) for line in page.lines)
