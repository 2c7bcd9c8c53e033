"""What the heads of each arm look at: a table of means, and the dots of a figure; svg_heads.py draws it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from oelm_core.compare.comparison import Arm, Group, Head
from oelm_core.report.cells import DASH, Column, ReportTable, arm_id, group_title, make_table, share
from oelm_core.report.translations import Translations


@dataclass(frozen=True)
class HeadPanels:
    """Entropy against distance, one panel an arm, the baseline's heads pale in each."""

    title: str
    arms: tuple[tuple[str, tuple[Head, ...]], ...]
    baseline: tuple[Head, ...]


def attention_table(group: Group, translate: Translations) -> ReportTable:
    """Means over heads and seeds; of entropy also the sharpest and the flattest head."""

    def over_heads(read: Callable[[Head], float | None], show: Callable[[float], str]) -> Callable[[Arm], str]:
        def shown(arm: Arm) -> str:
            found = [value for head in arm.heads if (value := read(head)) is not None]
            return show(math.fsum(found) / len(found)) if found else DASH

        return shown

    def range_of(arm: Arm) -> str:
        found = [head.entropy for head in arm.heads]
        return f"{min(found):.2f} to {max(found):.2f}" if found else DASH

    columns: list[Column[Arm]] = [
        ("Arm", "l", arm_id),
        ("Entropy, nats", "r", over_heads(lambda head: head.entropy, "{:.2f}".format)),
        ("Of single heads", "r", range_of),
        ("Distance, tokens", "r", over_heads(lambda head: head.distance, "{:.1f}".format)),
        ("From the baseline's", "r", over_heads(lambda head: head.from_baseline, share)),
    ]
    return make_table(group_title(group), translate, group.arms, columns)


def head_panels(group: Group) -> HeadPanels | None:
    """None unless two arms have looked."""
    seen = [arm for arm in group.arms if arm.heads]
    if len(seen) < 2:
        return None
    baseline = next((arm.heads for arm in seen if arm.is_baseline), ())
    return HeadPanels(group_title(group), tuple((arm.id, arm.heads) for arm in seen), baseline)
