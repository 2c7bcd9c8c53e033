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
ROLES = {
    "ok": ("#7fbf8e", "#2b7a43", "green"),
    "wait": ("#dcb45c", "#8a6400", "yellow"),
    "bad": ("#e0706f", "#b3302f", "red"),
    "done": ("#8fb8a0", "#3d6b50", "green"),
    "faint": ("#6b7a89", "#7d8892", "bright_black"),
    "other": ("#8b8494", "#85788f", "magenta"),
    "label": ("bold #c9d1d9", "bold #26303a", "bold"),
    "key": ("#6cb0d6", "#1f6f9f", "cyan"),
    "accent": ("#e2a65a", "#a8620c", "yellow"),
    "axis": ("#5c6b7a", "#8a96a0", "bright_black"),
    "cursor": ("#e6e6e6", "#000000", "bold"),
    "arm0": ("#6cb0d6", "#1f6f9f", "cyan"),
    "arm1": ("#e2a65a", "#b3660a", "yellow"),
    "arm2": ("#b497d6", "#7a4fa3", "magenta"),
    "arm3": ("#7fbf8e", "#2b7a43", "green"),
    "arm0-pale": ("#33566b", "#a5c8dc", "bright_black"),
    "arm1-pale": ("#6b5433", "#e3c8a0", "bright_black"),
    "arm2-pale": ("#574b68", "#cdbcdf", "bright_black"),
    "arm3-pale": ("#425f4a", "#a9cfb4", "bright_black"),
    "head": ("#8aa3b8", "#566a7c", "bold"),
    "chosen": ("on #24405a", "on #c4dcec", "reverse"),
    "blurred": ("on #272c33", "on #dfe6e8", "underline"),
    "hit": ("#11161d on #dcb45c", "#ffffff on #8a6400", "black on yellow"),
    "title": ("bold #6cb0d6", "bold #1f6f9f", "bold cyan"),
}
"""Role to its style in a dark theme, in a light one, and in 16 colours."""
_PARSED: dict[tuple[str, str], Style] = {}


def role_style(role: str, theme: Theme) -> Style:
    """The style of a role in a theme; "" and unknown roles are plain, and a rich style in words is taken as it is."""
    key = (theme.name, role)
    found = _PARSED.get(key)
    if found is None:
        kind = 2 if theme.name.startswith("ansi") else 0 if theme.dark else 1
        words = " ".join(ROLES[part][kind] if part in ROLES else part for part in role.split("|"))
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
