"""The blocks of docs/contributing.md are run here, and what each adds must then be known where it matters."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from textual.app import App

from oelm_core.compare import compare_runs
from oelm_core.compare.comparison import Pair
from oelm_core.config import build_experiment
from oelm_core.config.catalogue import Catalogue, load_catalogue
from oelm_core.config.plain_yaml import read_yaml
from oelm_core.data.sets import SETS
from oelm_core.errors import BadInput
from oelm_core.method.initialisers import ROWS
from oelm_core.metric import METRICS, Metric
from oelm_core.models import build
from oelm_core.registry import FAMILIES, INITIALISERS, Family
from oelm_core.report import FORMATS
from oelm_core.scores import SCORES
from oelm_tui import actions
from tests import run_factory

PAGE = (Path(__file__).parents[2] / "docs" / "contributing.md").read_text()
TABLES: tuple[dict[str, Any], ...] = (FAMILIES, INITIALISERS, ROWS, METRICS, SCORES, SETS, FORMATS)
SHAPE = {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 64, "vocab": 50, "positions": 16}


@pytest.fixture
def tables() -> Iterator[None]:
    """What a block adds is taken out again."""
    before, keys = [dict(table) for table in TABLES], actions.ACTIONS
    yield
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)
    actions.ACTIONS = keys
    sys.modules.pop("oelm_core.models.toy", None)


def block(heading: str, language: str = "python") -> str:
    section = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} block under '{heading}'"
    return found[1]


def run(heading: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block(heading), names)
    return names


def experiment(**parts: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "id": "toys-baseline",
        "title": "a toy",
        "family": "bert",
        "model": {"name": "toy", "start": "scratch", "shape": SHAPE},
        "data": {"name": "toys", "classes": 2, "max_length": 16},
        "method": {"name": "baseline"},
        "train": {"max_steps": 10, "batch_size": 2, "lr": 1e-3},
    }
    return raw | parts


def test_an_arm_is_a_few_lines_of_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "presets" / "experiments"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(block("An arm, or a study", "yaml"))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    written = read_yaml(block("An arm, or a study", "yaml"))
    assert load_catalogue().named(written["id"]).method.layers == "last:2"


def test_an_initialiser_can_be_named_by_a_preset(tables: None) -> None:
    run("An initialiser")
    method = {"name": "toy", "init": "unit-vectors", "freeze": ["query", "key"]}
    assert build_experiment(experiment(baseline="b", method=method), "toy").method.init == "unit-vectors"


def test_a_metric_can_be_the_headline(tables: None) -> None:
    run("A metric")
    data = {"name": "toys", "classes": 2, "max_length": 16, "metric": "errors"}
    assert build_experiment(experiment(data=data), "toy").metric == "errors"


def compared(tmp_path: Path, metric: str, baseline: float, arm: float) -> Pair:
    """Two arms judged by a metric, with these values; the baseline gets 40 of 400 examples wrong, the arm 100."""
    data = {**run_factory.BERT["data"], "metric": metric}
    first = run_factory.experiment("rev-baseline", data=data)
    second = run_factory.experiment("rev-oelm", data=data, method=run_factory.FROZEN, baseline="rev-baseline")
    labels = [place % 2 for place in range(400)]
    runs = [
        run_factory.write_run(
            tmp_path,
            exp,
            number=number,
            score=score,
            labels=labels,
            predictions=run_factory.predictions_with(labels, range(wrong)),
        )
        for number, (exp, score, wrong) in enumerate([(first, baseline, 40), (second, arm, 100)])
    ]
    (pair,) = compare_runs(runs, Catalogue(experiments={exp.id: exp for exp in (first, second)})).groups[0].pairs
    return pair


def test_a_metric_is_compared_by_its_own_function(tables: None, tmp_path: Path) -> None:
    run("A metric")
    pair = compared(tmp_path, "errors", baseline=0.1, arm=0.25)
    assert (pair.kind, pair.direction, pair.delta) == ("points", "lower", pytest.approx(0.15))
    assert pair.models is not None
    assert pair.models.interval is not None
    assert pair.models.estimate == pytest.approx(0.15)
    assert 0 < pair.models.interval[0] < 0.15 < pair.models.interval[1]


def test_a_metric_that_is_no_share_is_compared_as_a_ratio_of_its_own(tables: None, tmp_path: Path) -> None:
    METRICS["cost"] = Metric("cost", higher_is_better=False, is_share=False, short="cost")
    SCORES["cost"] = lambda table: 10 * table[..., 0, 1] + table[..., 1, 0]
    pair = compared(tmp_path, "cost", baseline=220, arm=550)
    assert (pair.kind, pair.delta) == ("relative", pytest.approx(1.5))
    assert pair.models is not None
    assert pair.models.interval is not None
    assert 0 < pair.models.interval[0] < 1.5 < pair.models.interval[1]


def test_a_metric_nobody_can_compute_again_has_no_interval(tables: None, tmp_path: Path) -> None:
    METRICS["errors"] = Metric("errors", higher_is_better=False, is_share=True, short="err")
    pair = compared(tmp_path, "errors", baseline=0.1, arm=0.25)
    assert (pair.delta, pair.interval, pair.p, pair.models) == (pytest.approx(0.15), None, None, None)


def test_a_data_set_is_listed(tables: None) -> None:
    run("A data set")
    assert SETS["toys"].labels == ("bad", "good")


def test_an_export_format_is_known_by_its_ending(tables: None) -> None:
    run("An export format")


def test_a_key_does_what_it_says_and_stands_in_the_help(tables: None) -> None:
    screen = run("A key of the screen")["Greeting"]

    async def press() -> object:
        app: App[str] = App()
        async with app.run_test() as pilot:
            await app.push_screen(screen())
            await pilot.press("H")
        return app.return_value

    assert asyncio.run(press()) == "hello"
    assert [action.title for action in actions.hints("greeting")] == ["Greet"]


def test_a_family_builds_its_network(tables: None) -> None:
    run("A model family")
    toy = build_experiment(experiment(family="toy"), "toy")
    assert (toy.arch, toy.start) == ("toy-small", "scratch")
    assert sum(p.numel() for p in build(toy, seed=1).parameters()) > 0


def test_a_language_model_that_training_cannot_use_is_refused_with_what_it_lacks(tables: None) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = LlamaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    FAMILIES["toy"] = Family("toy", "Toy", ("toy-small",), start="scratch", language=True, qk_bias=False)
    module: Any = ModuleType("toy")
    module.build = lambda experiment, *, meta: LlamaForCausalLM(sizes)
    sys.modules["oelm_core.models.toy"] = module
    toy = build_experiment(experiment(family="toy", data={"name": "toys", "max_length": 16}), "toy")
    lacks = r"no token_losses\(\), forward's shift_labels and forward's num_items_in_batch; see LanguageModel"
    with pytest.raises(BadInput, match=lacks):
        build(toy, seed=1)
