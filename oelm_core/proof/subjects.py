"""What is trained to prove a card: a tiny GPT and a tiny BERT, by the very loop that trains a run."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oelm_core.config import as_dict, build_experiment, config_hash, override
from oelm_core.data import synthetic
from oelm_core.home import home
from oelm_core.runs.folder import RunFolder, create
from oelm_core.runs.schema import RunRecord
from oelm_core.training.loop import Loop
from oelm_core.training.session import Session, set_up
from oelm_core.training.supervision import StopRequest

SHAPE = {
    "layers": 2,
    "d_model": 64,
    "heads": 2,
    "d_ff": 128,
    "vocab": len(synthetic.vocabulary()) + 16,
    "positions": 64,
}
FROZEN = {"name": "oelm-freeze", "init": "head-qr", "from": "gaussian", "freeze": ["query", "key"]}
SUBJECTS: dict[str, dict[str, Any]] = {
    "gpt": {
        "id": "proof-gpt",
        "title": "a tiny GPT",
        "family": "gpt",
        "baseline": "proof",
        "model": {"name": "demo-gpt", "shape": SHAPE},
        "data": {"name": "demo-stories", "max_length": 32},
        "method": FROZEN,
        "train": {"batch_size": 4, "accumulate": 2, "max_steps": 20, "lr": 1e-3, "warmup_steps": 2, "samples": 0},
    },
    "bert": {
        "id": "proof-bert",
        "title": "a tiny BERT",
        "family": "bert",
        "baseline": "proof",
        "model": {"name": "demo-bert", "start": "scratch", "shape": SHAPE},
        "data": {"name": "demo-sentiment", "classes": 2, "max_length": 48},
        "method": FROZEN,
        "train": {"batch_size": 4, "accumulate": 2, "max_steps": 20, "lr": 1e-3, "warmup_ratio": 0.1},
    },
}


@dataclass
class Trained:
    """A subject after its last step."""

    session: Session

    @property
    def skipped(self) -> int:
        return self.session.progress.skipped

    def mean_gradients(self) -> dict[str, Tensor]:
        """Adam's first moment of every weight that trains: its gradients, the newest counting most."""
        names: dict[Tensor, str] = {weight: name for name, weight in self.session.model.named_parameters()}
        states = self.session.optimiser.state.items()
        return {names[parameter]: state["exp_avg"].detach().cpu() for parameter, state in states}

    def weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach().cpu() for name, parameter in self.session.model.named_parameters()}


def folder_of(name: str, *settings: str) -> RunFolder:
    """A run folder of a subject, with `--set` settings; its text is written when it is first needed."""
    text = _texts() / name
    defaults = ("train.log_every=1", f"data.path={text}", "train.eval_every=1000")
    experiment = override(build_experiment(SUBJECTS[name], "proof"), [*defaults, *settings])
    config = as_dict(experiment)
    record = RunRecord(preset=experiment.id, config=config, config_hash=config_hash(config), seed=experiment.seed)
    root = home() / "runs"
    root.mkdir(parents=True, exist_ok=True)
    return create(root, record, None)


def train(name: str, device: torch.device, *settings: str) -> Trained:
    """A subject trained on a device to its last step."""
    return train_folder(folder_of(name, *settings), device)


def train_folder(folder: RunFolder, device: torch.device) -> Trained:
    """Trains what a run folder says, from its newest checkpoint on."""
    with at(folder, device) as session:
        Loop(session).fit()
        return Trained(session)


@contextlib.contextmanager
def at(folder: RunFolder, device: torch.device) -> Iterator[Session]:
    """The session of a run folder on a device."""
    before = os.environ.get("OELM_DEVICE")
    os.environ["OELM_DEVICE"] = device.type
    try:
        session = set_up(folder, StopRequest())
    finally:
        if before is None:
            del os.environ["OELM_DEVICE"]
        else:
            os.environ["OELM_DEVICE"] = before
    try:
        yield session
    finally:
        session.recorder.close()


@contextlib.contextmanager
def stepping(session: Session) -> Iterator[Callable[[int], None]]:
    """Single optimiser steps of a session, by number from 1 on, without what comes between steps of a run."""
    loop = Loop(session)
    try:
        yield loop._step
        loop._settle(wait=True)
    finally:
        loop._loader.shutdown(wait=True, cancel_futures=True)


def _texts() -> Path:
    """Texts of both subjects, the same on every machine."""
    folder = home() / "texts"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".texts-"))
        for name in SUBJECTS:
            (draft / name).mkdir()
        synthetic.write_stories(draft / "gpt", train=60, valid=4)
        synthetic.write_sentiment(draft / "bert", train=200, valid=20)
        draft.rename(folder)
    return folder
