"""A/A data: what twelve seeds of each demo baseline scored, example by example, at each validation.

`aa-PRESET.npz` was packed from trained runs by `python -m tests.golden.same_preset HOME`, and is unpacked into run
folders from which the lab compares a preset with itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from oelm_core.compare.arms import same_inputs
from oelm_core.compare.self_comparison import own_runs
from oelm_core.config import Experiment, as_dict, config_hash
from oelm_core.config.catalogue import load_catalogue
from oelm_core.metric import best_of, metric_named
from oelm_core.runs.evaluations import kept_losses, kept_predictions, step_file
from oelm_core.runs.folder import write_record
from oelm_core.runs.schema import DocumentLosses, Losses, MetricLine, Predictions, encode_metric
from oelm_core.runs.store import list_runs
from oelm_core.scores import SCORES, confusion
from tests.run_factory import write_run

HERE = Path(__file__).parent
PRESETS = ("demo-bert-baseline", "demo-gpt-baseline")


def preset(name: str) -> Experiment:
    return load_catalogue().experiment(name)


def pack(name: str, home: Path) -> None:
    """Writes aa-PRESET.npz from the finished runs of a home."""
    evidence, _ = own_runs(config_hash(as_dict(preset(name))), list_runs(home / "runs"))
    assert all(same_inputs(evidence[0], e) for e in evidence)
    known = {"seeds": np.array([e.seed for e in evidence], np.int16), "text": np.array(evidence[0].text)}
    if metric_named(evidence[0].metric).computed_from == "losses":
        kept = [kept_losses(e.run.folder) for e in evidence]
        documents = [[one.documents for one in run if one.documents] for run in kept]
        arrays = {
            "steps": np.array([one.step for one in kept[0]], np.int32),
            "tokens": np.array(documents[0][0].tokens, np.int32),
            "losses": np.array([[one.losses for one in run] for run in documents], np.float32),
        }
    else:
        found = [kept_predictions(e.run.folder) for e in evidence]
        arrays = {
            "steps": np.array([one.step for one in found[0]], np.int32),
            "labels": np.array(found[0][0].labels, np.uint8),
            "predictions": np.packbits(np.array([[one.predictions for one in run] for run in found], np.uint8), -1),
        }
    np.savez_compressed(HERE / f"aa-{name}.npz", **known, **arrays)


def unpack(name: str, root: Path, seeds: Sequence[int] | None = None) -> None:
    """Run folders of the preset under `root`, one a seed, with the details of every validation."""
    exp = preset(name)
    with np.load(HERE / f"aa-{name}.npz") as data:
        steps, known, text = data["steps"].tolist(), data["seeds"].tolist(), str(data["text"])
        runs = _losses(data) if "losses" in data else _predictions(data)
    for number, (seed, run) in enumerate(zip(known, runs, strict=True)):
        if seeds is not None and seed not in seeds:
            continue
        evaluated = [{"step": step, **values} for step, (values, _) in zip(steps, run, strict=True)]
        facts = {"name": exp.data.name, "fingerprint": text, "classes": exp.data.classes}
        result = {"best": best_of(evaluated, exp.metric), "data": facts}
        curve = [values[exp.metric] for values, _ in run]
        folder = write_run(root, exp, seed=seed, number=number, curve=curve, result=result).folder
        lines = [MetricLine(step, "eval", values=values) for step, (values, _) in zip(steps, run, strict=True)]
        folder.metrics.write_bytes(b"".join(map(encode_metric, lines)))
        for step, (_, record) in zip(steps, run, strict=True):
            kept = folder.losses if isinstance(record, Losses) else folder.predictions
            write_record(step_file(kept, step), record, durable=False)


Validation = tuple[dict[str, float], Predictions | Losses]


def _predictions(data: Mapping[str, np.ndarray]) -> list[list[Validation]]:
    labels = data["labels"].astype(int)
    predicted = np.unpackbits(data["predictions"], -1, count=len(labels)).astype(int)  # [seeds, evaluations, examples]

    def validation(row: np.ndarray) -> Validation:
        counts = confusion(labels, row, 2)
        values = {name: float(score(counts)) for name, score in SCORES.items()}
        return values, Predictions(labels.tolist(), row.tolist())

    return [[validation(row) for row in run] for run in predicted]


def _losses(data: Mapping[str, np.ndarray]) -> list[list[Validation]]:
    tokens = data["tokens"].tolist()

    def validation(row: np.ndarray) -> Validation:
        total, loss = float(row.sum()), float(row.sum() / sum(tokens))
        values = {"loss": loss, "perplexity": math.exp(loss)}
        return values, Losses([total], [sum(tokens)], documents=DocumentLosses(row.tolist(), tokens))

    return [[validation(row) for row in run] for run in data["losses"].astype(float)]


if __name__ == "__main__":
    for one in PRESETS:
        pack(one, Path(sys.argv[1]))
