"""Results that were chosen, as a user would choose them at the command line, and what `oelm compare` says to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oelm_core.config.catalogue import SHIPPED, load_folders
from oelm_core.config.overrides import override
from oelm_core.launch import local
from tests.functional.oelm import Oelm
from tests.run_factory import write_run

ARMS = load_folders([SHIPPED]).experiments
BASE, OELM = ARMS["demo-bert-baseline"], ARMS["demo-bert-oelm"]
STUDY = """\
id: chosen
title: Chosen seeds
question: Is it as planned?
arms: [demo-bert-baseline, demo-bert-oelm]
seeds: [42, 43, 44]
"""


@pytest.fixture
def oelm(tmp_path: Path) -> Oelm:
    return Oelm(tmp_path / "home")


def findings(oelm: Oelm, *arguments: str, code: str) -> list[dict[str, Any]]:
    (group,) = oelm.json("compare", *arguments)["groups"]
    assert group["pairs"][0]["delta"] > 0  # it looks like a win
    return [found for found in group["audit"] if found["code"] == code]


def test_the_best_three_of_ten_seeds_the_others_deleted(oelm: Oelm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OELM_HOME", str(oelm.home))
    runs = oelm.home / "runs"
    for place, seed in enumerate(range(42, 52)):
        write_run(runs, BASE, seed=seed, number=2 * place, score=0.9)
        made = write_run(runs, OELM, seed=seed, number=2 * place + 1, score=0.95 if seed in (43, 45, 50) else 0.85)
        if seed not in (43, 45, 50):
            local.delete(made.folder)  # as `oelm delete` does
    (found,) = (one for one in findings(oelm, "demo", code="search") if one["grade"] == "breaks")
    assert "7 runs of demo-bert-oelm" in found["why"]
    assert "were deleted" in found["why"]
    assert "85.00 %" in found["why"]
    assert found["settle_with"].startswith("oelm run demo-bert-oelm --seed")


def test_the_best_of_eight_rates_against_a_baseline_run_once(oelm: Oelm) -> None:
    runs = oelm.home / "runs"
    base = write_run(runs, BASE, number=1, score=0.9)
    tried = [
        write_run(runs, override(OELM, [f"train.lr={place}e-4"]), number=1 + place, score=0.84 + place / 100)
        for place in range(1, 9)
    ]
    counted, hidden, unknown = findings(oelm, base.id, tried[-1].id, code="search")
    assert [one["grade"] for one in (counted, hidden, unknown)] == ["confounds", "confounds", "note"]
    assert "8 configurations were tried for demo-bert-oelm" in counted["why"]
    assert "7 runs of demo-bert-oelm with 7 configurations not shown here" in hidden["why"]
    assert "the ledger does not know any of these 2 runs" in unknown["why"]


def test_other_seeds_than_a_study_plans(oelm: Oelm) -> None:
    folder = oelm.home / "presets" / "studies"
    folder.mkdir(parents=True)
    (folder / "chosen.yaml").write_text(STUDY)
    for place, seed in enumerate((45, 47, 51)):
        write_run(oelm.home / "runs", BASE, seed=seed, number=2 * place, score=0.9)
        write_run(oelm.home / "runs", OELM, seed=seed, number=2 * place + 1, score=0.95)
    found = [one for one in findings(oelm, "chosen", code="registration") if one["grade"] == "breaks"]
    assert {arm for one in found for arm in one["arms"]} == {BASE.id, OELM.id}
    assert all("seeds 45, 47 and 51 and not seeds 42-44" in one["why"] for one in found)
    assert "oelm run demo-bert-oelm --seeds 42-44" in {one["settle_with"] for one in found}
