"""Finding presets: extending, joining folders, and surviving broken files."""

from __future__ import annotations

from pathlib import Path

import pytest

from oelm_core.config.catalogue import Catalogue, load_catalogue, load_folders
from oelm_core.errors import BadInput, NotFound
from tests.in_process import oelm

PART = """
part: tiny
family: bert
model: {name: tiny, shape: {layers: 2, d_model: 8, heads: 2, d_ff: 8, vocab: 10, positions: 128}}
data: {name: sst2, classes: 2}
method: {name: baseline}
train: {epochs: 3, batch_size: 32, lr: 2e-5}
---
"""
BASE = PART + "{id: base, title: the baseline, extends: tiny}\n"


def load(folder: Path, **files: str) -> Catalogue:
    for name, text in files.items():
        kind = "studies" if name.startswith("study") else "experiments"
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / f"{name}.yaml").write_text(text)
    return load_folders([folder])


def test_an_experiment_inherits_what_it_extends_and_parts_are_not_listed(tmp_path: Path) -> None:
    found = load(tmp_path, a=BASE + "---\n{id: arm, title: t, extends: base, baseline: base, train: {lr: 1e-4}}\n")
    arm = found.experiment("arm")
    assert (arm.train.lr, arm.train.batch_size, arm.title) == (1e-4, 32, "t")
    assert list(found.experiments) == ["base", "arm"]
    assert found.warnings == []


def test_ids_match_without_regard_to_case(tmp_path: Path) -> None:
    found = load(tmp_path, a=PART + "{id: GPT-01, title: t, extends: tiny}\n")
    assert found.experiment("gpt-01").id == "GPT-01"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{id: x, title: t, extends: nothing}", "extends 'nothing', which does not exist."),
        ("{id: x, title: t, extends: y}\n---\n{part: y, extends: x}", "extends leads back to itself: x -> y -> x."),
        ("{id: x, title: t, extends: tiny, colour: red}", "unknown key 'colour'."),
        ("{id: x, extends: tiny}", "key 'title' is missing."),
        ("{id: x, title: t, extends: tiny, baseline: gone}", "baseline 'gone' is not among the presets."),
        ("{id: x, title: t, extends: 5}", "key 'extends' is 5; it should be a preset's id or a list of ids."),
        ("{id: ../x, title: t, extends: tiny}", "id '../x' should be letters, digits"),
        ("{id: base, title: t, extends: tiny}", "the id is already used in"),
        ("{id: x, title: t, extends: tiny, seed: one}", "key 'seed' is \"one\"; it should be a whole number."),
    ],
)
def test_a_broken_preset_is_one_warning_and_the_rest_still_loads(tmp_path: Path, text: str, sentence: str) -> None:
    found = load(tmp_path, a=BASE, b=text)
    assert len(found.warnings) == 1
    assert sentence in found.warnings[0]
    assert found.experiment("base")


def test_a_command_that_names_a_broken_preset_is_told_why(tmp_path: Path) -> None:
    found = load(tmp_path, a=BASE, b="{id: x, title: t, extends: tiny, colour: red}")
    with pytest.raises(BadInput, match="colour"):
        found.experiment("X")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1", "is not valid YAML"),
        ("a: 1\na: 2", "key 'a' appears twice"),
        ("- 1", "expected keys such as id and title, found a list."),
        ("hello", "expected keys such as id and title, found a single value."),
        ("title: t", "key 'id' is missing"),
        ("id: 5", "key 'id' is missing or not text"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    found = load(tmp_path, a=BASE, b=text)
    assert sentence in found.warnings[0]
    assert "b.yaml" in found.warnings[0]
    assert found.experiment("base")


@pytest.mark.parametrize("text", ["id: mine\ntitle: [x", "id: mine\n\ttitle: x", "{id: 'mine', title: a, title: b}"])
def test_a_command_that_names_a_preset_of_an_unreadable_file_is_told_why(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"b\.yaml: line \d: is not valid YAML"):
        load(tmp_path, a=BASE, b=text).experiment("mine")


def test_a_missing_baseline_is_answered_with_its_file_and_never_with_itself(tmp_path: Path) -> None:
    warning = load(tmp_path, a=BASE, b="{id: nop, title: t, extends: tiny, baseline: nope}").warnings[0]
    assert warning.endswith("b.yaml: nop: baseline 'nope' is not among the presets.")


def test_a_presets_folder_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BASE)
    with pytest.raises(BadInput, match="there is no folder experiments or studies in it"):
        load_catalogue(tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    load(tmp_path, a=BASE)
    (tmp_path / "experiments" / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert "b.yaml: is not UTF-8 text." in load_folders([tmp_path]).warnings[0]


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    found = load(tmp_path, a=BASE, study1="{id: first, title: t, question: q, arms: [base]}")
    with pytest.raises(NotFound, match="Did you mean base"):
        found.experiment("bass")
    with pytest.raises(NotFound, match="is a study, not a preset; use: oelm study first"):
        found.experiment("first")
    with pytest.raises(NotFound, match="is a preset, not a study; use: oelm run base"):
        found.study("base")


def test_a_study_of_a_missing_arm_is_broken(tmp_path: Path) -> None:
    found = load(tmp_path, a=BASE, study1="{id: first, title: t, question: q, arms: [base, bsae]}")
    with pytest.raises(BadInput, match=r"arm 'bsae' is not among the presets\. Did you mean base"):
        found.study("first")


def test_a_users_folder_joins_the_catalogue(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    load(tmp_path, a=BASE)
    load(mine, b="{id: own, title: t, extends: base, baseline: base}")
    found = load_folders([tmp_path, mine])
    assert found.experiment("own").data.name == "sst2"


def test_an_arms_story_is_not_inherited(tmp_path: Path) -> None:
    text = PART + (
        "{id: told, title: t, extends: tiny, about: a, published: {source: s, accuracy: 0.9}}\n---\n"
        "{id: silent, title: u, extends: told, baseline: told}\n"
    )
    silent = load(tmp_path, a=text).experiment("silent")
    assert silent.published is None
    assert silent.about == ""


def test_a_thousand_broken_presets_are_ten_lines_and_a_count(tmp_path: Path, monkeypatch) -> None:
    load(tmp_path / "presets", a=BASE, b="\n---\n".join(f"{{id: x{n}, extends: tiny}}" for n in range(1_000)))
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    *first, last = oelm("presets").err.splitlines()
    assert len(first) == 10
    assert last == "oelm: and 990 more like these; oelm presets show ID says what is wrong with one."
