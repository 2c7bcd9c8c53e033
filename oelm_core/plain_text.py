"""Text of somebody's file as a part of ours: what a terminal, a page or a program would obey is written out instead."""

from __future__ import annotations

import re

# Line breaks, what a terminal obeys, halves of characters, and what turns the direction of reading.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Breaks and control characters written out, as Python writes them.

    >>> visible("a" + chr(10) + "b" + chr(27) + "[31m")
    'a\\\\nb\\\\x1b[31m'
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def json_text(content: object, *, ascii_only: bool = False) -> str:
    r"""JSON for people and programs: other alphabets as they are, control characters escaped, for JSON leaves some.

    >>> json_text({"title": "é" + chr(155)})
    '{\n "title": "é\\u009b"\n}'
    """
    import json  # late: a waiting runner does without

    text = json.dumps(content, indent=1, ensure_ascii=ascii_only)
    return _CONTROLS.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)
