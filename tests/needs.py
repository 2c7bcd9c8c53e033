"""What some tests need and a machine may lack: each is skipped there, with the sentence that says how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

from tests.pretend_cuda.library import missing

_CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
CHROMIUM = _CHROMIUM or "chromium"

tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here (apt-get install tmux)")
compiler = pytest.mark.skipif(
    (shutil.which("cc") or shutil.which("gcc")) is None, reason="no C compiler here (apt-get install gcc libc6-dev)"
)
chromium = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium here (apt-get install chromium)")
latex = pytest.mark.skipif(
    not (shutil.which("pdflatex") or shutil.which("tectonic")),
    reason="neither pdflatex nor tectonic here (apt-get install texlive-latex-recommended)",
)
root = pytest.mark.skipif(os.getuid() != 0, reason="not root here: only root can be several users (sudo make test)")
torch_2_8 = "torch before 2.8 here: train.shard needs it (make test TORCH=torch==2.8.0)"
two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core here: two ranks need two (taskset, or a larger machine)"
)
pretend_card = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def _library(name: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(name) is not None
    return pytest.mark.skipif(not there, reason=f"no {name} here (pip install 'oelm-lab[{name}]')")


tensorboard, wandb, trackio, mlflow = map(_library, ("tensorboard", "wandb", "trackio", "mlflow"))
