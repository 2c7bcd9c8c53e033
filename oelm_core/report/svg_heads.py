"""The heads of each arm as one figure of small panels: how far a head looks, and how sharply."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from oelm_core.compare.comparison import Head
from oelm_core.plain_text import visible
from oelm_core.report.attention import HeadPanels
from oelm_core.report.svg import CHARACTER, WIDTH, Drawing, ticks
from oelm_core.report.translations import Translations

ACROSS = 4
"""Panels in a row."""
LEFT, TOP, GAP, NAME = 40, 18, 10, 14
"""Room for ticks, for the title of the axis, between panels, and for an arm's name above its own."""
PANEL, HIGH = (WIDTH - LEFT - (ACROSS - 1) * GAP) / ACROSS, 104


def draw_heads(panels: HeadPanels, translate: Translations) -> Drawing:
    """Distance across, entropy up, on the same axes in every panel; the baseline's heads pale in those of others."""
    heads = [head for _, found in panels.arms for head in found]
    far = 1.05 * max(head.distance for head in heads) or 1.0
    flat = 1.05 * max(head.entropy for head in heads) or 1.0
    start = _common_start([name for name, _ in panels.arms])
    parts = [f'<text class="label" x="0" y="11">{html.escape(translate("Entropy, nats"))}</text>']
    for number, (name, found) in enumerate(panels.arms):
        row, column = divmod(number, ACROSS)
        left, base = LEFT + column * (PANEL + GAP), TOP + (row + 1) * (HIGH + NAME + GAP) - GAP
        shown, own = html.escape(visible(_short(name[len(start) :]))), found is panels.baseline
        parts += [
            f'<text class="label" x="{left:.1f}" y="{base - HIGH - 4}">{shown}</text>',
            f'<rect class="frame" x="{left:.1f}" y="{base - HIGH}" width="{PANEL:.1f}" height="{HIGH}"/>',
            "" if own else _dots(panels.baseline, "pale c0", left, base, far, flat),
            _dots(found, "c0" if own else "c1", left, base, far, flat),
        ]
        if column == 0:
            places = [(tick, base - HIGH * tick / flat + 4) for tick in ticks(0, flat, 4)]
            parts += [
                f'<text class="tick" x="{LEFT - 5}" y="{y:.1f}" text-anchor="end">{tick:g}</text>' for tick, y in places
            ]
        if number + ACROSS >= len(panels.arms):  # nobody below it
            places = [(tick, left + PANEL * tick / far) for tick in ticks(0, far, 4)]
            parts += [
                f'<text class="tick" x="{x:.1f}" y="{base + 12}" text-anchor="middle">{tick:g}</text>'
                for tick, x in places
            ]
    height = TOP + math.ceil(len(panels.arms) / ACROSS) * (HIGH + NAME + GAP) + 22
    words = html.escape(f"{translate('Distance, tokens')}; {translate('pale: the baseline')}")
    parts.append(f'<text class="label" x="{WIDTH / 2:g}" y="{height - 4}" text-anchor="middle">{words}</text>')
    return Drawing(f"{panels.title}: {translate('what each head looks at')}", "".join(parts), height)


def _dots(heads: Sequence[Head], style: str, left: float, base: float, far: float, flat: float) -> str:
    """All heads as one path: a line of no length with round ends is a dot, and takes the fewest bytes."""
    at = (f"M{left + PANEL * one.distance / far:.1f},{base - HIGH * one.entropy / flat:.1f}h0" for one in heads)
    return f'<path class="heads {style}" d="{"".join(at)}"/>'


def _short(name: str) -> str:
    most = int(PANEL / CHARACTER)
    return name if len(name) <= most else name[: most - 3] + "..."


def _common_start(names: Sequence[str]) -> str:
    """What all names begin with, up to a dash: it would only take room."""
    first, last = min(names), max(names)
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return first[: first.rfind("-", 0, same) + 1]
