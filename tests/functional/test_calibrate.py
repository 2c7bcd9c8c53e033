"""`oelm calibrate` as its user calls it: what is missing is started, followed, and not started again."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.lab import STAND_IN
from tests.functional.oelm import Oelm
from tests.golden.same_preset import unpack

SHORT = "id: short\ntitle: Short\nextends: demo-bert\nmethod: {name: baseline}\ntrain: {max_steps: 5}\n"


def test_missing_seeds_are_started_once_and_then_compared(tmp_path: Path) -> None:
    own = tmp_path / "presets" / "experiments"
    own.mkdir(parents=True)
    (own / "short.yaml").write_text(SHORT)
    oelm = Oelm(tmp_path / "home", OELM_WORKER=str(STAND_IN), STAND_IN_STEP="0.001")
    asked = ("calibrate", "short", "--presets", str(tmp_path / "presets"))
    assert "short has no finished seeds" in oelm.refusal(*asked, code=3)
    assert "takes at least 4 seeds" in oelm.refusal(*asked, "--seeds", "1", code=2)
    assert oelm.json("runs") == []
    ended = oelm(*asked, "--seeds", "4", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    assert "starting short with seeds 42, 43, 44 and 45" in ended.stderr
    assert "4 seeds (42-45)" in ended.stdout
    found = oelm.json(*asked, "--seeds", "4")
    assert (found["seeds"], found["sides"][0]["possible"]) == ([42, 43, 44, 45], 3)
    assert len(oelm.json("runs")) == 4
    assert [path.name[:6] for path in (tmp_path / "home" / "calibrations").iterdir()] == ["short-"]


def test_twelve_seeds_are_compared_and_kept_for_the_tables_of_their_recipe(tmp_path: Path) -> None:
    unpack("demo-gpt-baseline", tmp_path / "runs")
    found = Oelm(tmp_path).json("calibrate", "demo-gpt-baseline")
    assert (found["basis"], found["unit"], found["examples"]) == ("cross-fitted", "documents", 400)
    assert [side["seeds"] for side in found["sides"]] == [2, 3, 4, 5, 6]
    assert 0.02 <= found["false_alarms"] <= 0.07
    assert (tmp_path / "calibrations" / "demo-gpt-baseline-6909c697.json").is_file()
