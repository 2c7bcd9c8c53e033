"""Colours by what they mean. Two calm themes of our own, plain ANSI colours for 16-colour terminals, and no colour."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

DARK = Theme(
    name="oelm-dark",
    primary="#6cb0d6",
    secondary="#8aa3b8",
    accent="#e2a65a",
    foreground="#c9d1d9",
    background="#11161d",
    surface="#161c24",
    panel="#23282e",
    success="#7fbf8e",
    warning="#dcb45c",
    error="#e0706f",
    dark=True,
    variables={"border-blurred": "#2c3846", "block-cursor-text-style": "none", "footer-key-foreground": "#6cb0d6"},
)
LIGHT = Theme(
    name="oelm-light",
    primary="#1f6f9f",
    secondary="#566a7c",
    accent="#a8620c",
    foreground="#26303a",
    background="#f7f8f6",
    surface="#f0f2ef",
    panel="#e4e8e4",
    success="#2b7a43",
    warning="#8a6400",
    error="#b3302f",
    dark=False,
    variables={"border-blurred": "#c3cbc6", "footer-key-foreground": "#1f6f9f"},
)
_DARK_ROLES = {
    "ok": "#7fbf8e",
    "wait": "#dcb45c",
    "bad": "#e0706f",
    "done": "#8fb8a0",
    "faint": "#6b7a89",
    "other": "#8b8494",
    "label": "bold #c9d1d9",
    "key": "#6cb0d6",
    "accent": "#e2a65a",
    "axis": "#5c6b7a",
    "cursor": "#e6e6e6",
    "arm0": "#6cb0d6",
    "arm1": "#e2a65a",
    "arm2": "#b497d6",
    "arm3": "#7fbf8e",
    "head": "#8aa3b8",
    "chosen": "on #24405a",
    "blurred": "on #272c33",
    "hit": "#11161d on #dcb45c",
    "title": "bold #6cb0d6",
}
_LIGHT_ROLES = _DARK_ROLES | {
    "ok": "#2b7a43",
    "wait": "#8a6400",
    "bad": "#b3302f",
    "done": "#3d6b50",
    "faint": "#7d8892",
    "other": "#85788f",
    "label": "bold #26303a",
    "key": "#1f6f9f",
    "accent": "#a8620c",
    "axis": "#8a96a0",
    "cursor": "#000000",
    "arm0": "#1f6f9f",
    "arm1": "#b3660a",
    "arm2": "#7a4fa3",
    "arm3": "#2b7a43",
    "head": "#566a7c",
    "chosen": "on #c4dcec",
    "blurred": "on #dfe6e8",
    "hit": "#ffffff on #8a6400",
    "title": "bold #1f6f9f",
}
_ANSI_ROLES = {
    "ok": "green",
    "wait": "yellow",
    "bad": "red",
    "done": "green",
    "faint": "bright_black",
    "other": "magenta",
    "label": "bold",
    "key": "cyan",
    "accent": "yellow",
    "axis": "bright_black",
    "cursor": "bold",
    "arm0": "cyan",
    "arm1": "yellow",
    "arm2": "magenta",
    "arm3": "green",
    "head": "bold",
    "chosen": "reverse",
    "blurred": "underline",
    "hit": "black on yellow",
    "title": "bold cyan",
}
_PARSED: dict[tuple[str, str], Style] = {}


def role_style(role: str, theme: Theme) -> Style:
    """The style of a role in a theme; "" and unknown roles are plain, and a rich style in words is taken as it is."""
    key = (theme.name, role)
    found = _PARSED.get(key)
    if found is None:
        table = _ANSI_ROLES if theme.name.startswith("ansi") else _DARK_ROLES if theme.dark else _LIGHT_ROLES
        words = " ".join(table.get(part, "") if part in _DARK_ROLES else part for part in role.split("|"))
        found = _PARSED[key] = Style.parse(words.strip()) if words.strip() else Style.null()
    return found


_TERMINALS_OWN = Style(color="default", bgcolor="default")


class Colourless(LineFilter):
    """NO_COLOR: colours are left to the terminal, a coloured ground such as a cursor's is shown reversed.

    Instead of Textual's own filter, which draws in shades of grey: those are colours too.
    """

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
