"""Makes a raw log line harmless: progress bars folded, colours kept, all else that controls a terminal is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oelm_tui.text import Line


_ESCAPE = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]*)m"  # colours and weights: kept
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # any other control sequence: cursor moves, clears
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, links, clipboard writes
    r"|\x1b[ -/]*[0-~]?"
)
_WORD = re.compile(rb"[A-Za-z]{3,}")
_STATES = 8
"""Overwritten texts that a line shows at most."""
# Everything that could move the cursor, reverse the reading direction or hide text.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_WEIGHTS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}


def fold(line: bytes) -> bytes:
    """A progress bar's last state: what follows the last carriage return, and before that what has other words.

    A terminal would let each text overwrite the one before it; a log must not be able to hide a line that way.
    """
    line = line.rstrip(b"\r\n")
    if b"\r" not in line:
        return line
    *before, last = line.split(b"\r")
    states = {frozenset(_WORD.findall(one)): one for one in before}  # the last of each
    seen = frozenset(_WORD.findall(last))
    hidden = [state for words, state in states.items() if not words <= seen]
    return b"\r".join([*hidden[:_STATES], last])


def pieces(line: bytes, ascii_only: bool = False) -> Line:
    """A folded line as styled text without any control character in it."""
    text = line.decode("utf-8", "replace").expandtabs(4)
    if "\x1b" not in text:
        return [(_visible(text, ascii_only), "")]
    found: Line = []
    style: dict[str, str] = {}
    at = 0
    for escape in _ESCAPE.finditer(text):
        if escape.start() > at:
            found.append((_visible(text[at : escape.start()], ascii_only), _words(style)))
        if escape["sgr"] is not None:
            _apply(escape["sgr"], style)
        else:
            found.append((_visible(escape[0], ascii_only), "dim"))
        at = escape.end()
    if at < len(text):
        found.append((_visible(text[at:], ascii_only), _words(style)))
    return found


def harmless(text: str) -> str:
    """What a run, a preset or a person wrote, as part of a line of the screen; as wide as it was."""
    return text if text.isprintable() else _visible(text, ascii_only=False)


def plain(line: bytes) -> str:
    """The folded line without styles, for searching and copying."""
    return "".join(text for text, _ in pieces(fold(line)))


def _visible(text: str, ascii_only: bool) -> str:
    text = _HIDDEN.sub(lambda match: _picture(match[0], ascii_only), text)
    return text.encode("ascii", "replace").decode() if ascii_only else text


def _picture(character: str, ascii_only: bool) -> str:
    code = ord(character)
    if code < 0x20 and not ascii_only:
        return chr(0x2400 + code)
    return f"^{chr(code + 64)}" if code < 0x20 else "?" if ascii_only else "�"


def _words(style: dict[str, str]) -> str:
    return " ".join(word for word in style.values() if word)


def _apply(codes: str, style: dict[str, str]) -> None:
    numbers = [int(code) if code.isdigit() else 0 for code in re.split("[;:]", codes or "0")]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            style.clear()
        elif code in _WEIGHTS:
            style[_WEIGHTS[code]] = _WEIGHTS[code]
        elif code in _ENDS:
            for word in _ENDS[code]:
                style.pop(word, None)
        elif code in (38, 48):
            style["fg" if code == 38 else "bg"] = ("" if code == 38 else "on ") + _extended(numbers)
        elif code in (39, 49):
            style.pop("fg" if code == 39 else "bg", None)
        else:
            _basic_colour(code, style)


def _basic_colour(code: int, style: dict[str, str]) -> None:
    for base, key, prefix in ((30, "fg", ""), (90, "fg", "bright_"), (40, "bg", "on "), (100, "bg", "on bright_")):
        if base <= code < base + 8:
            style[key] = prefix + _COLOURS[code - base]


def _extended(numbers: list[int]) -> str:
    kind = numbers.pop(0) if numbers else 0
    if kind == 5 and numbers:
        return f"color({min(numbers.pop(0), 255)})"
    if kind == 2 and len(numbers) >= 3:
        red, green, blue = (min(numbers.pop(0), 255) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    numbers.clear()
    return "default"
