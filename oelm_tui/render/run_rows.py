"""One run in a row of the runs table and in a headline; sorting and filtering the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
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

LOSS = 16
"""Columns of a loss's little curve."""
COLUMNS = (
    Column("state", "", 1, keep=200, about="state, as a sign"),
    Column("preset", "preset", 18, keep=190, grow=True, about="the name given to it, its preset"),
    Column("changed", "changed", 16, keep=100, grow=True, optional=True, about="settings that are not the preset's"),
    Column("method", "method", 11, keep=90, about="method"),
    Column("seed", "seed", 4, right=True, keep=95, about="seed"),
    Column("dev", "dev", 4, keep=40, about="device"),
    Column("step", "step", 11, right=True, keep=150, about="step, of how many"),
    Column("rate", "rate", 8, right=True, keep=20, optional=True, about="steps a second, or seconds a step"),
    Column("left", "left", 6, right=True, keep=80, optional=True, about="time left"),
    Column("took", "took", 6, right=True, keep=15, optional=True, about="how long it took"),
    Column("metric", "best", 11, right=True, keep=120, about="best validation value"),
    Column("loss", "loss", LOSS, keep=10, optional=True, about="how the training loss went"),
    Column("age", "age", 4, right=True, keep=30, about="when it was launched"),
    Column("tags", "tags", 10, keep=50, grow=True, optional=True, about="tags"),
    Column("remark", "", 14, keep=60, grow=True, about="why it stands where it stands; its note"),
    Column("flag", "", 1, keep=180, about="whether it needs a look"),
)
FIXED = ("state", "preset", "flag")
"""Columns that are always there."""
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
    if run.unreadable:
        return (run.unreadable, "bad")
    return (view.notes.note, "faint")


def rate_of(view: RunView) -> Cell:
    """Of a live run its pace; of one that went through in one go, that of the whole."""
    run = view.run
    if view.pace is not None or not view.took or run.state != "finished" or run.attempt > 1:
        return formatting.rate(view.pace)
    return (formatting.rate(run.step / view.took), "faint")


def loss_curve(losses: Sequence[float]) -> str:
    """The loss as little columns: the greatest fills one, the least still shows."""
    if len(losses) < 2:
        return ""
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0
    return glyphs.sparkline([0.15 + 0.85 * (loss - low) / span for loss in losses], len(losses), top=1.0)


def name_cell(view: RunView) -> Cell:
    return ((view.notes.name, ""), (f" {view.run.preset}", "faint")) if view.notes.name else (view.run.preset, "")


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
    return Row(
        run.id,
        {
            "state": (glyphs.signs.state(run.state), role),
            "preset": name_cell(view),
            "method": (method_name(run.method), "faint"),
            "seed": str(run.seed),
            "dev": short_devices(run.devices) or "-",
            "step": (step if run.step or run.state != "queued" else "", ""),
            "rate": rate_of(view),
            "left": "" if over else formatting.duration(view.left),
            "took": (formatting.duration(view.took) if over else "", "faint"),
            "metric": metric,
            "age": (formatting.age(now - run.created) if run.created else "", "faint"),
            "changed": (", ".join(view.changed), "accent"),
            "loss": (loss_curve(view.losses), "arm0" if not over else "faint"),
            "tags": (" ".join(f"#{tag}" for tag in view.notes.tags), "faint"),
            "remark": remark(view),
            "flag": (glyphs.signs.flag if view.needs_a_look else "", "bad"),
        },
        spill="remark",
    )


def chosen(views: Sequence[RunView], query: Query, sort: str, descending: bool) -> list[RunView]:
    """Filtered and sorted; runs without a value for the sort key come last either way."""
    found = query.among(views)
    if sort in ("created", "age", ""):
        return found if descending or not sort else found[::-1]
    key: Callable[[RunView], Any] = _SORT_KEYS.get(sort, lambda view: view.run.preset.lower())
    valued = [(view, value) for view in found if (value := key(view)) is not None]
    last = [view for view in found if key(view) is None] if len(valued) < len(found) else []
    return [view for view, _ in sorted(valued, key=itemgetter(1), reverse=descending)] + last


_SORT_KEYS: dict[str, Callable[[RunView], Any]] = {
    "state": lambda view: _STATE_ORDER.get(view.run.state, 99),
    "preset": lambda view: view.name.lower(),
    "changed": lambda view: view.changed or None,
    "tags": lambda view: view.notes.tags or None,
    "loss": lambda view: view.losses[-1] if view.losses else None,
    "method": lambda view: view.run.method,
    "seed": lambda view: view.run.seed,
    "dev": lambda view: short_devices(view.run.devices),
    "step": lambda view: view.run.step,
    "rate": lambda view: view.pace,
    "left": lambda view: view.left,
    "took": lambda view: view.took,
    "metric": lambda view: view.run.metric_value,
}


def ended_words(view: RunView) -> str:
    """What a run came to, in a line for who waited for it."""
    run = view.run
    parts = [f"{run.preset} s{run.seed} {run.state}"]
    if run.metric_value is not None:
        parts.append(formatting.metric(run.metric_name, run.metric_value))
    if run.state != "finished":
        parts.append(f"step {formatting.count(run.step)} of {formatting.count(run.total) if run.total else '?'}")
    if view.took:
        parts.append(f"after {formatting.duration(view.took)}")
    return ", ".join(parts)


def headline(view: RunView, with_bar: bool = True) -> Line:
    """State, step, time left and metric of a run in one line; the end of it is left out where it gets narrow."""
    run = view.run
    role = state_role(run.state)
    state = (words_for(run.reason).short if run.state == "failed" else "") or run.state
    parts: Line = [(f" {glyphs.signs.state(run.state)} ", role), (f"{view.name} ", "label")]
    parts.append((f"{method_name(run.method)} s{run.seed} ", "faint"))
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
