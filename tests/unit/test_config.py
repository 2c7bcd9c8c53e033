"""The preset schema: what it takes, what it refuses, and with which sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oelm_core.config import (
    Experiment,
    as_dict,
    build_experiment,
    build_study,
    config_hash,
    layer_numbers,
    merge,
    override,
    parse_overrides,
)
from oelm_core.errors import BadData, BadInput, LabError, NotFound, Refused

SHAPE = {"layers": 4, "d_model": 64, "heads": 4, "d_ff": 128, "vocab": 100, "positions": 128}


def raw(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "x",
        "title": "an arm",
        "family": "bert",
        "model": {"name": "tiny", "shape": SHAPE},
        "data": {"name": "sst2", "classes": 2},
        "method": {"name": "baseline"},
        "train": {"epochs": 3, "batch_size": 32, "lr": 2e-5},
    }
    return merge(base, changes)


def experiment(**changes: Any) -> Experiment:
    return build_experiment(raw(**changes), "file.yaml: x")


def refusal(**changes: Any) -> str:
    with pytest.raises(BadInput) as caught:
        experiment(**changes)
    return str(caught.value)


def test_defaults_follow_the_family() -> None:
    bert = experiment()
    gpt = experiment(family="gpt", data={"classes": None})
    assert (bert.start, bert.metric, bert.arch) == ("pretrained", "accuracy", "bert")
    assert (gpt.start, gpt.metric, gpt.arch) == ("scratch", "perplexity", "gpt")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train": {"lrr": 1}}, "file.yaml: x: unknown key 'train.lrr'. Did you mean lr?"),
        ({"train": {"lr": "fast"}}, "key 'train.lr' is \"fast\"; it should be a number."),
        ({"train": {"batch_size": 0}}, "key 'train.batch_size' is 0; it should be greater than 0"),
        ({"train": {"max_steps": 10}}, "give either max_steps or epochs"),
        ({"baseline": "b", "method": {"unfreeze": 3}}, "is 3; it should be keys such as at, order, every."),
        ({"method": {"freeze": "query"}}, "it should be a list."),
        ({"train": {"compile": "maybe"}}, "key 'train.compile' is \"maybe\"; it should be true or false or 'graphs'."),
        ({"train": {"batch_size": True}}, "key 'train.batch_size' is true; it should not be true or false."),
        ({"title": "a\nb"}, "title: it should be one line."),
        ({"title": "a\x1b[2J"}, "title: it should have no control characters, and has one in 'a\\x1b[2J'."),
        ({"title": "a" * 3000}, "title: it is too long, 3,000 characters."),
        ({"family": "rnn"}, "key 'family' is \"rnn\"; it should be 'bert', 'gpt' or 'decoder'"),
        ({"method": {"scale": "big"}}, "it should be 'unit' or 'keep' or a number."),
        ({"model": {"shape": {"heads": 5}}}, "d_model 64 cannot be split into 5 equal heads"),
        ({"data": {"max_length": 512}}, "data.max_length 512 is longer than the model's 128 positions"),
        ({"data": {"classes": None}}, "data.classes is missing"),
        ({"method": {"init": "head-qr"}}, "a baseline's Q/K stay untouched"),
        ({"method": {"freeze": ["query"]}}, "method.freeze is set on a baseline"),
        ({"baseline": "b", "method": {"layers": "2-9"}}, "names layer 4, but the model's layers are 0 to 3"),
        ({"baseline": "b", "method": {"layers": "last:5"}}, "asks for more than the model's 4 layers"),
        ({"baseline": "b", "method": {"layers": "some"}}, "'some' is none of: all, none, first:N"),
        (
            {"baseline": "b", "model": {"start": "scratch"}, "method": {"init": "polar"}},
            "method.from is pretrained but the model starts from scratch",
        ),
        (
            {
                "baseline": "b",
                "train": {"epochs": None, "max_steps": 100},
                "method": {"freeze": ["key"], "unfreeze": {"at": 100}},
            },
            "method.unfreeze.at 100 is past the end of training at step 100",
        ),
        ({"baseline": "b", "method": {"unfreeze": {"at": 0.5}}}, "unfreeze is set but nothing is frozen"),
        ({"target": {"metric": "accuracy"}}, "give exactly one of above, at_least, at_most"),
    ],
)
def test_a_mistake_gets_one_sentence_naming_the_key(changes: dict[str, Any], expected: str) -> None:
    sentence = refusal(**changes)
    assert expected in sentence
    assert "\n" not in sentence


def test_a_model_folder_brings_its_own_limits(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 6, "hidden_size": 24, "num_attention_heads": 3, "max_position_embeddings": 512}

    def said(layers: str = "all", **changed: int) -> str:
        (tmp_path / "config.json").write_text(json.dumps({**sizes, **changed}))
        return refusal(baseline="b", model={"path": str(tmp_path)}, method={"freeze": ["query"], "layers": layers})

    assert "method.layers names layer 8, but the model's layers are 0 to 5" in said("8-9")
    assert "its width 24 cannot be split into 5 equal heads" in said(num_attention_heads=5)
    assert "data.max_length 128 is longer than the model's 64 positions" in said(max_position_embeddings=64)
    (tmp_path / "config.json").write_text("{ not json")
    model = {"path": str(tmp_path)}
    assert experiment(model=model).model.path == str(tmp_path)  # what cannot be read is for the loader to refuse


def test_a_range_that_runs_backwards_is_refused_instead_of_freezing_nothing() -> None:
    with pytest.raises(ValueError, match="5-3 runs backwards and names no layer; write 3-5"):
        layer_numbers("5-3", 12)


def test_steps_of_a_recipe_in_epochs_are_known_when_its_data_is() -> None:
    late = {"freeze": ["query", "key"], "unfreeze": {"at": 7000}}
    in_epochs = {"max_steps": None, "epochs": 3, "batch_size": 32}
    data = {"train_examples": 67349}
    said = refusal(baseline="b", method=late, train=in_epochs, data=data)
    assert "method.unfreeze.at 7000 is past the end of training at step 6315" in said
    experiment(baseline="b", method=late, train=in_epochs, data={**data, "path": "/own/files"})
    nothing = {"freeze": ["query"], "layers": "none", "unfreeze": {"at": 0.5, "order": "top-down"}}
    assert "method.layers chooses no layer" in refusal(baseline="b", method=nothing)
    rounded = {"freeze": ["query"], "unfreeze": {"at": 0.9999999}}
    assert "past the end" in refusal(baseline="b", method=rounded, train={"max_steps": 100, "epochs": None})


def test_overrides_are_read_as_yaml_and_win() -> None:
    changed = override(experiment(), ["train.lr=1e-4", "data.path=/some/where", "method.layers=2"])
    assert changed.train.lr == 1e-4
    assert changed.data.path == "/some/where"
    assert changed.method.layers == "2"


def test_a_number_of_steps_replaces_a_number_of_epochs() -> None:
    changed = override(experiment(), ["train.max_steps=5"])
    assert (changed.train.max_steps, changed.train.epochs) == (5, None)


@pytest.mark.parametrize("text", ["train.lr", "=5", "train.lr=", "train=5", "train.lr.x=1"])
def test_an_unreadable_override_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        override(experiment(), [text])


def test_a_resolved_experiment_survives_a_round_trip() -> None:
    arm = experiment(baseline="b", method={"init": "head-qr", "from": "pretrained", "freeze": ["query", "key"]})
    assert build_experiment(as_dict(arm), "again") == arm


def test_a_study_takes_a_seed_written_twice_once() -> None:
    study = build_study({"id": "s", "title": "t", "question": "q?", "arms": ["x"], "seeds": [43, 42, 43]}, "here")
    assert study.seeds == [43, 42]


def test_the_hash_ignores_seed_paths_and_labels_but_no_setting_that_matters() -> None:
    plain = config_hash(as_dict(experiment()))
    for same in ({"seed": 7}, {"title": "other"}, {"data": {"path": "/x"}}, {"model": {"path": "/y"}}):
        assert config_hash(as_dict(experiment(**same))) == plain
    for other in ({"train": {"lr": 1e-3}}, {"data": {"name": "mnli"}}, {"train": {"accumulate": 2}}):
        assert config_hash(as_dict(experiment(**other))) != plain


def test_the_hash_ignores_what_cannot_change_a_result() -> None:
    plain = config_hash(as_dict(experiment()))
    train = {"log_every": 1, "samples": 0, "attention_stats": True, "keep_checkpoints": 9, "checkpoint_every": 3}
    train |= {"checkpoint_activations": True, "shard": True}
    assert config_hash(as_dict(experiment(train={**train, "threads": 2}))) == plain


def test_a_model_that_is_shared_out_is_not_compiled() -> None:
    with pytest.raises(BadInput, match=r"train: shard and compile do not go together; leave one of them out"):
        experiment(train={"shard": True, "compile": True})
    assert experiment(train={"shard": True, "gradient_compression": "bf16", "precision": "fp16"}).train.shard


def test_graphs_of_a_card_take_steps_of_one_pass() -> None:
    with pytest.raises(
        BadInput, match=r"train: compile: graphs needs accumulate: 1; make it true, or batch_size larger"
    ):
        experiment(train={"compile": "graphs", "accumulate": 2})
    assert [experiment(train={"compile": way}).train.compile for way in ("graphs", True)] == ["graphs", True]
    with pytest.raises(BadInput, match=r"train: compile: graphs does not go with checkpoint_activations"):
        experiment(train={"compile": "graphs", "checkpoint_activations": True})


def test_a_setting_added_later_does_not_rename_the_runs_before_it() -> None:
    config = as_dict(experiment())
    later = {**config, "data": {**config["data"], "test": None}, "train": {**config["train"], "news": None}}
    assert config_hash(later) == config_hash(config)


@given(layers=st.integers(1, 30), data=st.data())
def test_layer_choices_are_sorted_distinct_and_inside_the_model(layers: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, layers))
    first, last = layer_numbers(f"first:{count}", layers), layer_numbers(f"last:{count}", layers)
    assert first == list(range(count))
    assert last == list(range(layers - count, layers))
    assert layer_numbers("all", layers) == list(range(layers))
    numbers = data.draw(st.lists(st.integers(0, layers - 1)))
    assert layer_numbers(numbers, layers) == sorted(set(numbers))


def test_merging_joins_sections_and_replaces_lists() -> None:
    assert merge({"a": {"x": 1, "y": [1, 2]}}, {"a": {"y": [3]}, "b": 4}) == {"a": {"x": 1, "y": [3]}, "b": 4}


def test_yaml_surprises_are_gone() -> None:
    read = parse_overrides(["a=1e-4", "b=no", "c=2026-01-01", "d=true", "e=0777", "f=1_000"])
    assert read == {"a": 1e-4, "b": "no", "c": "2026-01-01", "d": True, "e": 777, "f": 1000}


def test_an_error_says_as_which_reason_a_run_fails_with_it() -> None:
    reasons = {kind: kind("why").reason for kind in (LabError, BadInput, BadData, NotFound, Refused)}
    assert reasons == {LabError: "error", BadInput: "config", BadData: "data", NotFound: "data", Refused: "error"}


def test_a_short_key_is_understood_in_a_setting() -> None:
    from oelm_core.config.setting_keys import setting_keys

    arm = experiment()
    assert override(arm, ["lr=3e-3", "shape.heads=2"]).train.lr == 3e-3
    with pytest.raises(BadInput, match=r"Write data\.path or model\.path"):
        override(arm, ["path=x"])
    with pytest.raises(BadInput, match=r"no such setting\. Did you mean train\.lr"):
        override(arm, ["lrr=1"])
    assert [key for key, one in setting_keys().items() if not one.meaning] == []
