"""Every kind of fault and a few kills, from one seed; `make chaos` does two hundred."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.lab import open_lab
from tests.chaos.monkey import Monkey


def test_faults_of_every_kind_lose_nothing_hold_no_lease_and_leave_no_orphan(tmp_path: Path) -> None:
    with open_lab(tmp_path) as lab:
        monkey = Monkey(lab, seed=20, resumers=6)
        monkey.torment(len(FAULTS) + 4, share_of_kills=1.0)
        assert monkey.broken == []
        assert set(monkey.faults) == {fault.__name__ for fault in FAULTS}
        assert sum(monkey.kills.values()) >= 4
