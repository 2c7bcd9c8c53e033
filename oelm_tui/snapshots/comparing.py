"""What can be compared, and comparing it in a thread: groups of runs of one family, data set and model, or a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oelm_core.data.sets import set_title
from oelm_core.errors import LabError
from oelm_tui import glyphs
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.snapshots.sampler import LabSnapshot

if TYPE_CHECKING:
    from oelm_core.compare import Comparison
    from oelm_core.config.catalogue import Catalogue

MOST = 120
"""Newest runs of a group that are looked at."""


@dataclass(frozen=True)
class Page:
    """One thing to compare: a study, or some runs."""

    title: str
    study: str | None
    runs: tuple[str, ...]
    group: int = 0
    """Which group of the comparison, when it has several."""


@dataclass(frozen=True)
class CompareRequest:
    page: Page
    baseline: str | None
    snapshot: LabSnapshot


@dataclass(frozen=True)
class Compared:
    """The answer: a comparison, or one sentence why there is none."""

    page: Page
    baseline: str | None
    comparison: Comparison | None
    problem: str = ""


def group_key(view: RunView) -> tuple[str, str, str]:
    return view.run.family, view.run.dataset, str(view.run.setting("model.name", ""))


def pages(snapshot: LabSnapshot, presets: Sequence[str], runs: Sequence[str]) -> list[Page]:
    """The marked runs or presets as one page; without any, one page for each group that has something to compare.

    Draws of a tuning chose a setting and show no arm's result: they are compared only where they are marked.
    """
    if runs:
        return [Page("marked runs", None, tuple(runs))]
    views = [
        view
        for view in snapshot.runs
        if view.run.config and not view.run.is_draw and (view.run.metric_value is not None or view.is_live)
    ]
    if presets:
        wanted = {name.lower() for name in presets}
        if len(wanted) == 1 and snapshot.catalogue is not None:
            wanted |= _with_baseline(next(iter(wanted)), snapshot.catalogue)
        chosen = tuple(view.id for view in views if view.run.preset.lower() in wanted)
        return [Page(", ".join(sorted(presets)), None, chosen)]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for view in views:
        groups.setdefault(group_key(view), []).append(view.id)
    return [Page(title_of(data, model), None, tuple(ids[:MOST])) for (_, data, model), ids in groups.items()]


def title_of(dataset: str, model: str) -> str:
    return f"{set_title(dataset)} {glyphs.signs.dot} {model}"


def _with_baseline(preset: str, catalogue: Catalogue) -> set[str]:
    found = next((e for name, e in catalogue.experiments.items() if name.lower() == preset), None)
    return {found.baseline.lower()} if found is not None and found.baseline else set()


def compare(request: CompareRequest) -> Compared:
    """Computes one page; slow the first time, for it imports the statistics."""
    from oelm_core.compare import compare_runs, compare_study
    from oelm_core.published.column import with_published_column

    page, snapshot = request.page, request.snapshot
    if snapshot.catalogue is None:
        return Compared(page, request.baseline, None, "the presets are still being read")
    try:
        if page.study is not None:
            study = snapshot.catalogue.study(page.study)
            everything = [view.run for view in snapshot.runs if view.run.config]
            found = compare_study(study, everything, snapshot.catalogue, baseline=request.baseline)
        else:
            runs = [snapshot.by_id[name].run for name in page.runs if name in snapshot.by_id]
            found = compare_runs(runs, snapshot.catalogue, baseline=request.baseline)
    except LabError as error:
        return Compared(page, request.baseline, None, str(error))
    return Compared(page, request.baseline, with_published_column(found, snapshot.catalogue))
