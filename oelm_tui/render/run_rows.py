"""One run in a row of the runs table and in a headline; sorting and filtering the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len

from oelm_core import formatting
from oelm_core.devices.card import short_devices
from oelm_core.metric import metric_named
from oelm_core.registry import method_name
from oelm_tui import glyphs
from oelm_tui.glyphs import bar, state_role
from oelm_tui.render.reason import words_for
from oelm_tui.run_filter import Query
from oelm_tui.snapshots.run_view import PASSING, RunView
from oelm_tui.text import Cell, Column, Line, Row

COLUMNS = (
    Column("state", "", 1, keep=200),
    Column("preset", "preset", 18, keep=190, grow=True),
    Column("method", "method", 11, keep=90),
    Column("seed", "seed", 4, right=True, keep=70),
    Column("dev", "dev", 4, keep=40),
    Column("step", "step", 11, right=True, keep=150),
    Column("rate", "rate", 8, right=True, keep=20),
    Column("left", "left", 6, right=True, keep=80),
    Column("metric", "best", 11, right=True, keep=120),
    Column("age", "age", 4, right=True, keep=30),
    Column("remark", "", 14, keep=60, grow=True),
    Column("flag", "", 1, keep=180),
)
SORTS = ("state", "created", "preset", "metric", "left", "step")
_STATE_ORDER = {
    state: place
    for place, state in enumerate(
        ("running", "stopping", "starting", "waiting", "queued", "failed", "lost", "unknown", "stopped")
    )
}


def remark(view: RunView) -> Cell:
    """Why it stands where it stands, or what people noted."""
    run = view.run
    if view.alarm is not None and view.alarm.kind in PASSING:
        return (view.alarm.words, "bad")
    if run.state in ("failed", "lost"):
        return (words_for(run.reason).short or run.message or run.state, "bad")
    if run.state in ("waiting", "queued", "unknown"):
        return (run.message or run.state, "wait")
    if run.state == "stopped" and run.reason not in (None, "user"):
        return (run.message or str(run.reason), "faint")
    words = " ".join([*(f"#{tag}" for tag in view.notes.tags), view.notes.note])
    return (words, "faint")


def row_of(view: RunView, now: float) -> Row:
    run = view.run
    role = state_role(run.state)
    over = run.is_over
    total = formatting.count(run.total) if run.total else ""
    step = (
        formatting.count(run.step) if over and run.step == run.total else f"{formatting.count(run.step)}/{total or '?'}"
    )
    metric = ""
    if run.metric_value is not None:
        arrow = glyphs.signs.up if metric_named(run.metric_name).higher_is_better else glyphs.signs.down
        metric = f"{formatting.metric(run.metric_name, run.metric_value)} {arrow}"
    left: Cell = (formatting.duration(view.left), "") if not over else (formatting.duration(view.took), "faint")
    return Row(
        run.id,
        {
            "state": (glyphs.signs.state(run.state), role),
            "preset": (run.preset, "faint" if over and run.state != "failed" else ""),
            "method": method_name(run.method),
            "seed": str(run.seed),
            "dev": short_devices(run.devices) or "-",
            "step": (step if run.step or run.state != "queued" else "", ""),
            "rate": formatting.rate(view.pace),
            "left": left,
            "metric": metric,
            "age": (formatting.age(now - run.created) if run.created else "", "faint"),
            "remark": remark(view),
            "flag": (glyphs.signs.flag if view.needs_a_look else "", "bad"),
        },
        spill="remark",
    )


def chosen(views: Sequence[RunView], query: Query, sort: str, descending: bool) -> list[RunView]:
    """Filtered and sorted; runs without a value for the sort key come last either way."""
    found = [view for view in views if query.matches(view.fields())] if query.terms else list(views)
    if sort in ("created", "age", ""):
        return found if descending or not sort else found[::-1]
    key: Callable[[RunView], Any] = _SORT_KEYS.get(sort, lambda view: view.run.preset.lower())
    keyed = [(key(view), view) for view in found]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [view for _, view in known] + [view for value, view in keyed if value is None]


_SORT_KEYS: dict[str, Callable[[RunView], Any]] = {
    "state": lambda view: _STATE_ORDER.get(view.run.state, 99),
    "method": lambda view: view.run.method,
    "seed": lambda view: view.run.seed,
    "dev": lambda view: short_devices(view.run.devices),
    "step": lambda view: view.run.step,
    "rate": lambda view: view.pace,
    "left": lambda view: view.left,
    "metric": lambda view: view.run.metric_value,
}


def headline(view: RunView, with_bar: bool = True) -> Line:
    """State, step, time left and metric of a run in one line; the end of it is left out where it gets narrow."""
    run = view.run
    role = state_role(run.state)
    state = (words_for(run.reason).short if run.state == "failed" else "") or run.state
    parts: Line = [(f" {glyphs.signs.state(run.state)} ", role), (f"{run.preset} ", "label")]
    parts.append((f"{method_name(run.method)} s{run.seed} ", ""))
    parts.append((f"{state} ", role))
    if run.total:
        share = run.step / run.total
        if run.state in ("running", "stopping"):
            drawn = f"{bar(share, 8)} " if with_bar else ""
            parts.append((f"{drawn}{share * 100:.0f}% ", "arm0"))
        parts.append((f"{formatting.count(run.step)}/{formatting.count(run.total)} ", "faint"))
    if view.left is not None:
        parts.append((f"{formatting.duration(view.left)} left ", ""))
    if run.metric_value is not None:
        parts.append((f"{formatting.metric(run.metric_name, run.metric_value)} ", "accent"))
    return [*parts, (" ", "")]


def shortened(parts: Line, width: int) -> Line:
    """Whole words of a headline: method and seed go first where it is narrow, then the end."""

    def size(line: Line) -> int:
        return sum(cell_len(text.rstrip() if text is line[-1][0] else text) for text, _ in line)

    line = [part for part in parts if part[0].strip()]
    if size(line) > width and len(line) > 3:
        del line[2]
    while len(line) > 2 and size(line) > width:
        line.pop()
    return line
