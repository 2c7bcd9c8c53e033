"""Which runs a study's table takes, and a footnote for each that it leaves out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oelm_core.compare.evidence import Evidence, gather
from oelm_core.compare.pairing import newest_per_seed

if TYPE_CHECKING:
    from oelm_core.config import Study
    from oelm_core.runs.store import Run


def study_runs(study: Study, runs: Sequence[Run]) -> tuple[list[Evidence], list[str]]:
    """(finished runs of the study's presets, newest per configuration and seed; footnotes about the rest).

    An arm with no finished run is kept without numbers, so that the table says what became of it.
    """
    arms = {arm.lower(): arm for arm in study.arms}
    mine = [run for run in runs if run.preset.lower() in arms]
    finished = [gather(run) for run in mine if run.state == "finished"]
    kept, notes = newest_per_seed(finished)
    for arm in study.arms:
        rest = [run for run in mine if run.preset.lower() == arm.lower() and run.state != "finished"]
        done = any(e.preset.lower() == arm.lower() for e in kept)
        if rest and not done:
            shown = max(rest, key=lambda run: run.created)
            newest = gather(shown)
            why = f"{arm}: no finished run; {shown.id} is {shown.state}" + (
                f" ({shown.reason})." if shown.reason else "."
            )
            values = _without_results(newest)
            kept.append(dataclasses.replace(newest, values=values, evals=(), train=(), missing=(why,)))
            rest = [run for run in rest if run is not shown]
        elif not done:
            notes.append(f"{arm}: no run of it yet.")
        for run in rest:
            reason = f" ({run.reason})" if run.reason else ""
            notes.append(f"{run.id} is left out: {run.state}{reason}.")
    return kept, notes


def _without_results(evidence: Evidence) -> dict[str, float]:
    return {key: value for key, value in evidence.values.items() if key in ("total", "trainable", "frozen")}
