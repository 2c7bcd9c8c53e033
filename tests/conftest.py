"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; two torches with all cores each only fight
gc.disable()  # until all tests are loaded


GROUPS = ("slurm", "processes")
"""Of tests that one worker runs: the longest, which mostly wait for what they started."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups begin first, so that no worker is left with one at the end, and two compute while two wait."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    if marker is None:
        return len(GROUPS) + 1
    return GROUPS.index(marker.args[0]) if marker.args[0] in GROUPS else len(GROUPS)


def pytest_collection_finish() -> None:
    """What was loaded stays loaded: no later collection of garbage walks through all of torch, and few are made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped and why, a line for each reason: pytest's own list has one for each test."""
    found = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in found)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:4}  {reason}")


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Devices are leased in a folder of the tests' own: they never queue behind a real run of this machine."""
    leases = tmp_path_factory.mktemp("leases")
    os.environ["OELM_LEASES"] = str(leases)
    return leases


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OELM_HOME in which the demo study was trained for real, for a few steps, by runners that load torch once."""
    from oelm_core.config.catalogue import load_catalogue
    from oelm_core.launch.request import LaunchRequest, queued_state
    from oelm_core.runs.folder import create
    from tests.warm_worker import WarmWorker

    home = tmp_path_factory.mktemp("demo") / "home"
    short = ("train.max_steps=20", "train.eval_every=10")
    asked = LaunchRequest(study="demo", settings=short, device="cpu").requests(load_catalogue(), ["oelm"])
    warm = WarmWorker({"OELM_HOME": str(home), "PRETRAINING_STEPS": "20"})
    records = [one.record("local", after=None, beside=None) for one in asked]
    runners = [warm.start(create(home / "runs", each, queued_state()).path, runner=True) for each in records]
    assert [warm.wait(runner) for runner in runners] == [0] * 6
    return home
