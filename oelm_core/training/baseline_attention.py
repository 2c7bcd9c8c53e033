"""The baseline arm's attention on the same texts, kept beside a run's own so that every look can be held against it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from torch import Tensor

from oelm_core.config import Experiment
from oelm_core.method.attention_stats import is_of_batch
from oelm_core.runs.folder import RunFolder


def keep_baseline_pattern(folder: RunFolder, experiment: Experiment, tokens: Tensor) -> str | None:
    """Copies the last pattern of a finished baseline run to `attention/baseline.npz`; its id when it is new here.

    The baseline's run has the same seed, sits beside this one, and was looked at on the same tokens `[batch, tokens]`.
    A copy is never replaced: all looks of a run, before and after a resume, are held against one pattern.
    """
    own = folder.path / "attention" / "baseline.npz"
    if experiment.baseline is None or own.exists():
        return None
    for run in _finished(folder, experiment.baseline, experiment.seed):
        latest = run.path / "attention" / "latest.npz"
        if is_of_batch(latest, tokens):
            own.parent.mkdir(parents=True, exist_ok=True)
            beside = own.with_name(own.name + ".part")
            shutil.copyfile(latest, beside)
            beside.replace(own)
            return run.id
    return None


def _finished(folder: RunFolder, preset: str, seed: int) -> Iterator[RunFolder]:
    """Finished runs of a preset and seed, newest first: a run's id ends in the time it was made."""
    start = f"{preset}-s{seed}-".lower()
    names = [path.name for path in folder.path.parent.iterdir() if path.name.lower().startswith(start)]
    for name in sorted(names, key=str.lower, reverse=True):
        run = RunFolder(folder.path.parent / name)
        if run.read_dict("result") is not None:
            yield run
