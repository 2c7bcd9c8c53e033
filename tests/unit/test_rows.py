"""All runs as tables: what a row holds, the same through the command line and in Python, and the page that shows it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas
import pytest

import oelm_core
from oelm_core.compare import compare_runs
from oelm_core.config.catalogue import load_catalogue
from oelm_core.errors import BadInput, NotFound
from oelm_core.report import render
from oelm_core.runs.store import list_runs
from oelm_tui import cli
from tests.run_factory import FROZEN, experiment, write_run

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
BASE = experiment("rev-baseline")
ARM = experiment("rev-oelm", method=FROZEN, baseline="rev-baseline")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    for number, (exp, seed) in enumerate([(BASE, 42), (BASE, 43), (ARM, 42), (ARM, 43)]):
        write_run(tmp_path / "runs", exp, seed=seed, number=number, score=0.9 + number / 100)
    write_run(tmp_path / "runs", ARM, seed=44, number=4, state="failed", reason="nonfinite")
    return tmp_path


def test_a_row_has_what_a_run_is_what_came_of_it_and_its_settings(lab: Path) -> None:
    runs = oelm_core.load_runs().runs.set_index("run").sort_index()
    assert len(runs) == 5
    row = runs.iloc[2]
    assert (row.preset, row.method, row.seed, row.state) == ("rev-oelm", "oelm-freeze", 42, "finished")
    assert (row.metric, row.direction, row["value"], row.accuracy) == ("accuracy", "higher", 0.92, 0.92)
    assert (row["train.lr"], row["method.freeze"], row["method.scale"]) == (1e-3, '["query", "key"]', "unit")
    assert (row.total - row.trainable, row.frozen) == (row.frozen, 16384)
    assert row.created.tzname() == "UTC"
    assert runs.state.tolist() == ["finished"] * 4 + ["failed"]


def test_metrics_are_one_number_a_row_and_agree_with_the_file(lab: Path) -> None:
    tables = oelm_core.load_runs("rev-baseline-s42")
    evals = tables.metrics.query("kind == 'eval' and name == 'accuracy'")
    assert evals.step.tolist() == [100, 200, 300, 400]
    assert evals["value"].max() == tables.runs["value"].item() == 0.9


def test_pairs_are_those_of_the_comparison(lab: Path) -> None:
    (row,) = oelm_core.load_runs().pairs.itertuples()
    (pair,) = compare_runs(list_runs(), load_catalogue()).groups[0].pairs
    assert (row.arm, row.baseline, row.delta) == (pair.arm, pair.baseline, pair.delta)
    assert pair.interval is None or (row.interval_low, row.interval_high) == pair.interval
    assert (row.verdict, row.failed) == (pair.verdict, pair.seeds.failed)


def test_a_setting_that_is_a_word_here_and_a_number_there_is_text(lab: Path) -> None:
    write_run(lab / "runs", experiment("rev-scaled", method=FROZEN | {"scale": 0.5}, baseline="rev-baseline"), number=9)
    assert set(oelm_core.load_runs().runs["method.scale"]) == {"unit", "0.5"}


def test_the_command_writes_the_same_tables(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("runs", "metrics", "pairs"):
        file = lab / f"{table}.parquet"
        monkeypatch.setattr("sys.argv", ["oelm", "export", "--format", "parquet", "--table", table, "-o", str(file)])
        cli.main()
        pandas.testing.assert_frame_equal(pandas.read_parquet(file), getattr(oelm_core.load_runs(), table))


def test_a_comparison_exports_its_runs(lab: Path) -> None:
    written = render(compare_runs(list_runs(), load_catalogue()), "parquet")
    assert isinstance(written, bytes)
    assert sorted(pandas.read_parquet(io.BytesIO(written)).seed) == [42, 42, 43, 43, 44]


def test_an_empty_lab_has_empty_tables_with_their_columns(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    tables = oelm_core.load_runs(home=tmp_path)
    assert [len(frame) for frame in (tables.runs, tables.metrics, tables.pairs)] == [0, 0, 0]
    assert {"run", "value", "trainable"} <= set(tables.runs)


def test_what_is_not_there_is_a_sentence(lab: Path) -> None:
    with pytest.raises(NotFound, match="no run 'nothing'"):
        oelm_core.load_runs("nothing")
    with pytest.raises(NotFound, match="no such folder"):
        oelm_core.load_runs(home=lab / "elsewhere")
    with pytest.raises(BadInput, match="one of runs, metrics, pairs"):
        oelm_core.load_runs().arrow("arms")  # type: ignore[arg-type]


def test_the_page_about_it_runs(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
    assert "oelm-freeze" in capsys.readouterr().out
