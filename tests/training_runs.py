"""Tiny runs that train for real in a second or two: run folders, text files, and the figures two runs must share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oelm_core.config import Experiment, as_dict, build_experiment, config_hash, override
from oelm_core.data import synthetic
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.metrics_file import read_metrics
from oelm_core.runs.schema import MetricLine, RunRecord

SHAPE = {"layers": 2, "d_model": 32, "heads": 2, "d_ff": 64, "vocab": len(synthetic.vocabulary()) + 16, "positions": 64}
OELM_BERT = {"name": "oelm-freeze", "init": "head-qr", "from": "gaussian", "freeze": ["query", "key"]}

BERT: dict[str, Any] = {
    "id": "tiny-bert",
    "title": "a tiny encoder",
    "family": "bert",
    "baseline": "tiny-baseline",
    "model": {"name": "demo-bert", "start": "scratch", "shape": SHAPE},
    "data": {"name": "demo-sentiment", "classes": 2, "max_length": 48},
    "method": OELM_BERT,
    "train": {"max_steps": 12, "batch_size": 4, "accumulate": 2, "lr": 1e-3, "warmup_ratio": 0.1, "eval_every": 5},
}
GPT: dict[str, Any] = {
    "id": "tiny-gpt",
    "title": "a tiny GPT",
    "family": "gpt",
    "baseline": "tiny-baseline",
    "model": {"name": "demo-gpt", "shape": SHAPE},
    "data": {"name": "demo-stories", "max_length": 32},
    "method": OELM_BERT,
    "train": {"max_steps": 12, "batch_size": 4, "lr": 1e-3, "schedule": "cosine", "warmup_steps": 2, "eval_every": 5},
}


def texts(folder: Path) -> Path:
    """Small train and validation files of both families."""
    for name in ("reviews", "stories"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    synthetic.write_sentiment(folder / "reviews", train=90, valid=20)
    synthetic.write_stories(folder / "stories", train=40, valid=4)
    return folder


def experiment(base: dict[str, Any], data: Path, *settings: str) -> Experiment:
    """`base` on the files of `texts(data)`, with `--set` settings."""
    path = data / ("reviews" if base["family"] == "bert" else "stories")
    return override(build_experiment(base, "test"), [f"data.path={path}", "train.log_every=2", *settings])


def run_folder(root: Path, chosen: Experiment) -> RunFolder:
    config = as_dict(chosen)
    record = RunRecord(preset=chosen.id, config=config, config_hash=config_hash(config), seed=chosen.seed)
    return create(root, record, None)


CLOCK = ("step_time", "tokens_per_s", "examples_per_s", "data_wait", "seconds")


def figures(folder: RunFolder) -> list[MetricLine]:
    """Train and eval records without their clock readings: what a resume must reproduce to the last bit."""
    lines = read_metrics(folder.metrics, "train", "eval")
    for line in lines:
        line.t, line.values = 0.0, {key: value for key, value in line.values.items() if key not in CLOCK}
    return lines


def weights(folder: RunFolder) -> dict[str, Any]:
    """Checksums of the last checkpoint's weights and moments."""
    state = json.loads((folder.checkpoints / "latest" / "state.json").read_text())
    return {name: state["files"][name]["sha256"] for name in ("model.safetensors", "optimiser.safetensors")}
