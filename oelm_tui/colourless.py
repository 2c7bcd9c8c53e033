"""NO_COLOR: colours are left to the terminal; a coloured ground, such as a cursor's, is shown reversed."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_TERMINALS_OWN = Style(color="default", bgcolor="default")


class Colourless(LineFilter):
    """Instead of Textual's own, which draws in shades of grey: those are colours too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, without_colour(style) if style else style, more) for text, style, more in segments]


@lru_cache(1024)
def without_colour(style: Style) -> Style:
    """
    >>> str(without_colour(Style.parse("bold red"))), str(without_colour(Style.parse("black on yellow")))
    ('bold default on default', 'reverse default on default')
    """
    coloured_ground = style.bgcolor is not None and not style.bgcolor.is_default
    return style + _TERMINALS_OWN + (Style(reverse=True) if coloured_ground else Style.null())
