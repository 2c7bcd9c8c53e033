"""What stands out in a log line without colours of its own: levels and numbers come forward, its time steps back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oelm_tui.text import Line

LONGEST = 2000
"""Characters of a line that are looked at; a longer one is data, not a message."""
_PARTS = re.compile(
    r"(?P<faint>^\W{0,2}\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\]?|^\[\d\d:\d\d:\d\d\])"
    r"|(?P<bad>\b(?:ERROR|FATAL|CRITICAL|FAILED|Traceback(?= \(most recent call last\))|Killed|[A-Z]\w*Error\b"
    r"|error(?=:)|failed(?=:)|out of memory)|\b(?:nan|NaN|inf)\b)"
    r"|(?P<wait>\b(?:WARNING|WARN|[A-Z]\w*Warning|warning(?=:)|stopped(?=:))\b)"
    r"|(?P<ok>\bfinished(?=:))"
    r"|(?P<key>\b(?:INFO|NOTICE)\b)"
    r"|(?P<other>\b(?:DEBUG|TRACE)\b)"
    r"|(?P<arm0>(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+(?:,\d{3})*)?%?(?![\w.]*\w))"
)


def emphasised(line: Line) -> Line:
    """Roles for the parts of a line that have none."""
    found: Line = []
    for text, role in line:
        found += [(text, role)] if role or len(text) > LONGEST else _parts(text)
    return found


def _parts(text: str) -> Line:
    found: Line = []
    at = 0
    for part in _PARTS.finditer(text):
        if part.start() > at:
            found.append((text[at : part.start()], ""))
        found.append((part[0], part.lastgroup or ""))
        at = part.end()
    return [*found, (text[at:], "")] if at < len(text) else found
