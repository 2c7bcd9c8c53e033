"""Adding a family, an initialiser or a data set takes one entry and one function; everything else reads the tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from oelm_core.compare.settings import settings_of
from oelm_core.config import as_dict, build_experiment
from oelm_core.config.catalogue import Catalogue
from oelm_core.data import classification, hub, prepare, sets
from oelm_core.data.sets import SETS, NamedSet, Split
from oelm_core.data.tokenizers import word_tokenizer
from oelm_core.errors import BadInput
from oelm_core.method.initialisers import ROWS, apply_method, check_model
from oelm_core.method.parameter_count import parameters
from oelm_core.models import bert, build
from oelm_core.registry import FAMILIES, INITIALISERS, Family, Initialiser
from oelm_tui.commands.presets import apps
from oelm_tui.render.preset_rows import tree_rows
from tests.small_models import OELM, SMALL, experiment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def toy_family(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A family of encoders that start from scratch, registered as a newcomer would; and a preset of it."""
    module = ModuleType("oelm_core.models.toy")
    module.build = lambda experiment, *, meta: bert.from_config(  # type: ignore[attr-defined]
        bert.encoder_config(experiment.model.shape, "bert", experiment.data.classes, experiment.model.dropout)
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    family = Family("toy", "Toy", ("toy-small",), start="scratch", language=False, qk_bias=True)
    monkeypatch.setitem(FAMILIES, "toy", family)
    return {
        "id": "toys-baseline",
        "title": "a toy",
        "family": "toy",
        "model": {"name": "toy", "shape": SMALL},
        "data": {"name": "toys", "classes": 2, "max_length": 16},
        "method": {"name": "baseline"},
        "train": {"max_steps": 10, "batch_size": 2, "lr": 1e-3},
    }


def test_a_family_is_an_entry_and_a_module(
    toy_family: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "presets" / "experiments").mkdir(parents=True)
    (home / "presets" / "experiments" / "toy.yaml").write_text(json.dumps(toy_family))
    monkeypatch.setenv("OELM_HOME", str(home))
    shown = json.loads(CliRunner().invoke(apps["presets"], ["show", "toys-baseline", "--json"]).stdout)
    toy = build_experiment(toy_family, "toy")
    assert (toy.arch, toy.start, toy.metric) == ("toy-small", "scratch", "accuracy")
    assert shown["parameters"]["total"] == sum(p.numel() for p in build(toy, seed=1).parameters())
    assert parameters(toy) == (shown["parameters"]["total"], 0)
    rows = tree_rows(Catalogue({toy.id: toy}), [], set())
    assert "Toy" in str(rows[0].cells["name"])
    assert settings_of(as_dict(toy))["start"] == "scratch"
    arm = build_experiment({**toy_family, "baseline": "b", "method": OELM}, "toy")
    model = build(arm, seed=1)
    apply_method(model, arm.method, torch.Generator().manual_seed(1))
    assert check_model(model, method=arm.method).worst < 1e-5
    assert not hub.needs_hub({**as_dict(toy), "data": {"name": "toys", "path": str(tmp_path)}})


def test_an_unknown_family_is_answered_with_those_there_are(toy_family: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="key 'family' is \"llama\"; it should be 'bert', 'gpt', 'decoder' or 'toy'"):
        build_experiment({**toy_family, "family": "llama"}, "toy")


def test_an_initialiser_is_an_entry_and_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def unit_vectors(matrices: Tensor) -> Tensor:
        return torch.eye(matrices.shape[-2], matrices.shape[-1], dtype=matrices.dtype).expand_as(matrices)

    monkeypatch.setitem(INITIALISERS, "unit-vectors", Initialiser("unit-vectors", orthonormal=True))
    monkeypatch.setitem(ROWS, "unit-vectors", unit_vectors)
    exp = experiment("bert", {**OELM, "name": "toy", "init": "unit-vectors"})
    model = build(exp, seed=1)
    apply_method(model, exp.method, torch.Generator().manual_seed(1))
    report = check_model(model, method=exp.method)
    assert report.worst == 0.0
    assert (settings_of(as_dict(exp))["qk_norm"], settings_of(as_dict(exp))["qk_from"]) == (1.0, "random")
    monkeypatch.setitem(ROWS, "unit-vectors", torch.ones_like)
    apply_method(model, exp.method, torch.Generator().manual_seed(1))
    with pytest.raises(AssertionError, match=r"although method\.init is unit-vectors"):
        check_model(model, method=exp.method)


def test_every_initialiser_has_its_function_and_its_place_in_the_documentation() -> None:
    assert set(ROWS) == set(INITIALISERS) - {"none"}
    text = (ROOT / "docs" / "method.md").read_text()
    assert [name for name in INITIALISERS if name not in text] == []


def test_a_data_set_is_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_family: dict[str, Any]) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr(hub, "hub_is_reachable", lambda: True)
    rows = [{"blurb": "a good toy", "label": 1}, {"blurb": "a bad toy", "label": 0}]
    asked: list[Split] = []
    monkeypatch.setattr(hub, "load_split", lambda name, place: asked.append(place) or rows)
    places = {split: Split("someone/toys", None, split) for split in ("train", "validation")}
    toys = NamedSet("toys", "Toys-2", "classification", "reviews of toys", places, ("blurb",), ("bad", "good"))
    monkeypatch.setitem(SETS, "toys", toys)
    assert not sets.available("toys")[0]
    folder = prepare.prepare("toys")
    assert (folder, asked) == (sets.kept_folder("toys"), list(places.values()))
    assert sets.available("toys") == (True, str(folder))
    words = word_tokenizer(["a", "good", "bad", "toy"])
    loaded = classification.load(build_experiment(toy_family, "toy"), words, tmp_path)
    assert loaded.train.labels.tolist() == [1, 0]
    toy = build_experiment(toy_family, "toy")
    assert "Toys-2" in str([row.cells["name"] for row in tree_rows(Catalogue({toy.id: toy}), [], {"family/toy"})])
