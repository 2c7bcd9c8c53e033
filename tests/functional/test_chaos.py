"""Twenty random kills; `make chaos` does two hundred."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.lab import open_lab
from tests.chaos.monkey import Monkey


def test_twenty_random_kills_leave_no_orphan_no_lease_and_the_same_results(tmp_path: Path) -> None:
    with open_lab(tmp_path) as lab:
        monkey = Monkey(lab, seed=20)
        monkey.rampage(20)
        assert monkey.broken == []
        assert sum(monkey.kills.values()) == 20
