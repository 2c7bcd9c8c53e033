"""Comparison of runs, computed from their folders, never typed.

evidence (what a run proves) -> arms -> statistics, significance -> audit (settings), audit_runs -> build -> tuned,
selection (what else was tried, what was planned).
What the author published is added by whoever shows it: `oelm_core.published.column`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oelm_core.compare.arms import newest_per_seed, study_runs
from oelm_core.compare.build import build_comparison
from oelm_core.compare.comparison import Arm, ComparedStudy, Comparison, Finding, Group, Measure, Pair, SignificanceTest
from oelm_core.compare.evidence import gather
from oelm_core.compare.selection import with_selection
from oelm_core.compare.tuned import with_tuning
from oelm_core.runs.store import list_runs

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.config.catalogue import Catalogue
    from oelm_core.runs.store import Run

__all__ = [
    "Arm",
    "Comparison",
    "Finding",
    "Group",
    "Measure",
    "Pair",
    "SignificanceTest",
    "compare_runs",
    "compare_study",
]


def compare_runs(runs: Sequence[Run], catalogue: Catalogue, *, baseline: str | None = None) -> Comparison:
    """Any set of runs, grouped by data, model and metric; unfinished ones are shown and marked as such.

    `baseline`: a run id, a prefix of one, or a preset. Raises NotFound when there is nothing at all to compare.
    """
    evidence, notes = newest_per_seed(gather(run) for run in runs)
    comparison = build_comparison(evidence, catalogue, list(catalogue.experiments), notes, asked=baseline)
    every = list_runs(Path(runs[0].path).parent)  # those that were not asked for count too
    return with_selection(with_tuning(comparison, every), every)


def compare_study(
    study: Study, runs: Sequence[Run], catalogue: Catalogue, *, baseline: str | None = None
) -> Comparison:
    """The finished runs of a study's presets, the newest per configuration and seed; the rest are footnoted."""
    evidence, notes = study_runs(study, runs)
    contrasts = tuple((one, other) for one, other in study.contrasts)
    about = ComparedStudy(
        study.id, study.title, study.question, study.table, tuple(study.seeds), tuple(study.arms), contrasts
    )
    comparison = build_comparison(evidence, catalogue, study.arms, notes, asked=baseline, study=about)
    return with_selection(with_tuning(comparison, runs), runs, study)
