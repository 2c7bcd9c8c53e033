"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; two torches with all cores each only fight
gc.disable()  # until all tests are loaded


def pytest_collection_finish() -> None:
    """What was loaded stays loaded: no later collection of garbage walks through all of torch."""
    gc.collect()
    gc.freeze()
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
    """An OELM_HOME in which the demo study was trained for real, for a few steps."""
    home = tmp_path_factory.mktemp("demo") / "home"
    home.mkdir()
    environment = {**os.environ, "OELM_HOME": str(home)}
    short = ["--set", "train.max_steps=20", "--set", "train.eval_every=10"]
    ended = subprocess.run(
        [sys.executable, "-m", "oelm_tui", "study", "demo", "--device", "cpu", "--follow", *short],
        env=environment,
        capture_output=True,
        text=True,
        cwd=home,
    )
    assert ended.returncode == 0, ended.stderr
    return home
