"""`oelm tune` as its user runs it: real runners, a worker that only counts, killed in the middle and continued."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.lab import STAND_IN
from tests.functional.oelm import Oelm

PRESETS = """
part: quick
family: gpt
model: {name: tiny, shape: {layers: 1, d_model: 8, heads: 2, d_ff: 16, vocab: 32, positions: 16}}
data: {name: synthetic-stories, max_length: 16, metric: accuracy}
train: {max_steps: 6, batch_size: 1, lr: 1e-3, threads: 1}
---
id: quick-baseline
title: Quick, untouched
extends: quick
method: {name: baseline}
---
id: quick-oelm
title: Quick, frozen
extends: quick
baseline: quick-baseline
method: {name: oelm-freeze, init: head-qr, from: gaussian, freeze: [query, key]}
"""
STUDY = """
id: quick
title: Quick
question: Does it tune?
arms: [quick-baseline, quick-oelm]
seeds: [42]
tune: {space: {train.lr: [1e-4, 1e-3, 1e-2]}}
"""
TUNE = ("tune", "quick", "--budget", "2", "--device", "cpu")


@pytest.fixture
def oelm(tmp_path: Path) -> Oelm:
    home = tmp_path / "home"
    for name, text in (("experiments", PRESETS), ("studies", STUDY)):
        folder = home / "presets" / name
        folder.mkdir(parents=True)
        (folder / "quick.yaml").write_text(text)
    return Oelm(home, OELM_WORKER=str(STAND_IN), STAND_IN_STEP="0.01", OELM_LEASES=str(tmp_path / "leases"))


def records(oelm: Oelm) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in oelm.home.glob("runs/*/run.json")]


def runners(oelm: Oelm) -> list[int]:
    """Of the runs that have one; a run without waits ten seconds before it is called lost."""
    states = [json.loads(path.read_text()) for path in oelm.home.glob("runs/*/state.json")]
    return [state["pid"] for state in states if state["pid"]]


def test_killed_in_the_middle_the_same_command_ends_it(oelm: Oelm) -> None:
    plan = oelm(*TUNE, "--dry-run").stdout
    assert "2 points x 2 arms, seed 1: 4 runs (pruner none)" in plan
    assert "then each arm's best point, seed 42: 2 runs" in plan
    assert not records(oelm)

    command = [sys.executable, "-m", "oelm_tui", *TUNE]
    first = subprocess.Popen(command, env=oelm.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(runners(oelm)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()

    ended = oelm(*TUNE)
    assert ended.returncode == 0, ended.stderr
    tunings = [record["tuning"] for record in records(oelm)]
    jobs = Counter(
        (record["preset"], record["seed"], tuning["role"], tuning["point"])
        for record, tuning in zip(records(oelm), tunings, strict=True)
    )
    assert max(jobs.values()) == 1
    assert Counter(role for _, _, role, _ in jobs) == {"draw": 4, "chosen": 2}
    assert "quick-oelm chose point 1" in ended.stderr
    assert "Expected best after m draws" in ended.stdout

    (group,) = oelm.json("compare", "quick")["groups"]
    assert group["registered"]["hash"]
    assert group["registered"]["deviations"] == []
    assert [(arm["id"], arm["seeds"], arm["tuning"]["draws"]) for arm in group["arms"]] == [
        ("quick-baseline", [42], 2),
        ("quick-oelm", [42], 2),
    ]
