"""Files and named sets: which file is which split, what is read from it, and what is said when it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oelm_core.config import Data
from oelm_core.data import classification, files, hub, sets
from oelm_core.data.tokenizers import load_named, tokenizer_hash, word_tokenizer
from oelm_core.errors import BadInput, NotFound

WORDS = ["good", "bad", "film", "a", "not", "the", "was"]


def table(folder: Path, name: str, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    return folder


def data(path: Path, **settings: Any) -> Data:
    return Data(**{"name": "mine", "path": str(path), "classes": 2, "max_length": 16, **settings})


def load(path: Path, cache: Path | None = None, **settings: Any) -> classification.ClassificationData:
    from oelm_core.config import build_experiment
    from tests.training_runs import BERT

    chosen = build_experiment({**BERT, "data": data(path, **settings).model_dump()}, "test")
    return classification.load(chosen, word_tokenizer(WORDS), cache or path.parent / "cache")


def pair_of_files(folder: Path, header: str = "sentence\tlabel") -> Path:
    table(folder, "train.tsv", f'{header}\na good film\t1\nthe film was bad\t0\nnot "good\t0\n')
    return table(folder, "dev.tsv", f"{header}\ngood\t1\n")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.tsv", "train"),
        ("en.dev.tsv", "validation"),
        ("validation_matched.jsonl", "validation"),
        ("dev_mismatched.tsv", "mismatched"),
        ("test_mismatched.tsv", "test"),
        ("TRAIN-00000-of-00001.parquet", "train"),
        ("trainer-notes.txt", None),
    ],
)
def test_a_files_name_says_its_split(name: str, split: str | None) -> None:
    assert files.split_of(Path(name)) == split


def test_tab_separated_sentences_become_arrays(tmp_path: Path) -> None:
    found = load(pair_of_files(tmp_path))
    assert found.train.labels.tolist() == [1, 0, 0]
    assert found.train.lengths.tolist() == [5, 6, 4]  # with [CLS] and [SEP]; a stray quote is just a character
    assert list(found.validation) == ["validation"]


def test_json_lists_json_lines_csv_and_parquet_are_read_alike(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = [{"sentence": "a good film", "label": 1}, {"sentence": "bad", "label": 0}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "c.csv").write_text('sentence,label\n"a good film",1\nbad,0\n')
    (tmp_path / "e.json").write_text(json.dumps({"data": rows}))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    for file in sorted(tmp_path.iterdir()):
        read = [(row["sentence"], int(row["label"])) for row in files.read_rows(file)]
        assert read == [("a good film", 1), ("bad", 0)], file.name


def test_sentence_pairs_carry_segments(tmp_path: Path) -> None:
    table(tmp_path, "train.tsv", "premise\thypothesis\tlabel\na film\tthe film was bad\tneutral\n")
    table(tmp_path, "validation.tsv", "premise\thypothesis\tlabel\na film\tbad\tcontradiction\n")
    found = load(tmp_path, name="mnli", classes=3)
    assert found.train.segments.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert found.train.labels.tolist() == [1]
    assert found.validation["validation"].labels.tolist() == [2]


def test_mnlis_second_validation_set_is_found(tmp_path: Path) -> None:
    for name in ("train", "dev_matched", "dev_mismatched"):
        table(tmp_path, f"{name}.tsv", "sentence1\tsentence2\tlabel\na\tb\tentailment\n")
    assert list(load(tmp_path, name="mnli", classes=3).validation) == ["validation", "mismatched"]


@pytest.mark.parametrize(
    ("train", "settings", "sentence"),
    [
        ("sentence\tlabel\ngood\t2\n", {}, r"row 1 of train has label '2'; labels of 2 classes run from 0 to 1"),
        ("sentence\tlabel\ngood\tgreat\n", {}, r"label 'great'.*data\.labels"),
        ("sentence\tlabel\n", {}, r"train\.tsv: the train split is empty"),
        ("", {}, r"train split is empty"),
        (
            "words\tlabel\ngood\t1\n",
            {},
            r"no column.*the columns are words, label\. Name the text with --set data\.text",
        ),
        ("sentence\tclass\ngood\t1\n", {}, r"no column 'label' for the labels; the columns are sentence, class"),
        ("sentence\tlabel\ngood\t1\n", {"text": ["review"]}, r"no column review; the columns are sentence, label"),
        ("sentence\tlabel\ngood\n", {}, r"label 'None'"),
    ],
)
def test_bad_tables_are_refused_with_the_values(
    tmp_path: Path, train: str, settings: dict[str, Any], sentence: str
) -> None:
    table(tmp_path, "train.tsv", train)
    table(tmp_path, "dev.tsv", "sentence\tlabel\ngood\t1\n")
    with pytest.raises(BadInput, match=sentence):
        load(tmp_path, **settings)


def test_missing_files_and_splits_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or folder"):
        load(tmp_path / "nowhere")
    table(tmp_path / "odd", "numbers.tsv", "sentence\tlabel\n")
    with pytest.raises(BadInput, match=r"named after a split.*found numbers\.tsv"):
        load(tmp_path / "odd")
    table(tmp_path / "alone", "train.tsv", "sentence\tlabel\ngood\t1\n")
    with pytest.raises(BadInput, match=r"no validation file beside train\.tsv.*data\.validation=random"):
        load(tmp_path / "alone")


def test_a_part_can_be_held_out_and_the_rest_trains(tmp_path: Path) -> None:
    rows = "".join(f"{'good ' * (i + 1)}\t{i % 2}\n" for i in range(10))
    table(tmp_path, "train.tsv", f"sentence\tlabel\n{rows}")
    chosen = {"validation": "random", "validation_fraction": 0.2}
    found = load(tmp_path, **chosen)
    assert (len(found.train), len(found.validation["validation"])) == (8, 2)
    together = np.concatenate([found.train.lengths, found.validation["validation"].lengths])
    assert sorted(together) == list(range(3, 13))
    assert load(tmp_path, **chosen).train.labels.tolist() == found.train.labels.tolist()
    tail = load(tmp_path, validation="tail", validation_fraction=0.2)
    assert tail.validation["validation"].lengths.tolist() == [11, 12]


def test_tokenised_arrays_are_kept_and_noticed_when_the_file_changes(tmp_path: Path) -> None:
    folder, cache = pair_of_files(tmp_path / "texts"), tmp_path / "cache"
    first = load(folder, cache)
    kept = sorted((cache / "tokens").iterdir())
    assert len(kept) == 2
    assert load(folder, cache).fingerprint == first.fingerprint
    assert sorted((cache / "tokens").iterdir()) == kept
    kept[0].write_bytes(b"half")  # a damaged cache is made again
    assert load(folder, cache).fingerprint == first.fingerprint
    table(folder, "dev.tsv", "sentence\tlabel\nbad\t0\n")
    assert load(folder, cache).fingerprint != first.fingerprint


def test_a_tokenizers_name_does_not_depend_on_what_it_was_used_for() -> None:
    tokenizer = word_tokenizer(WORDS)
    before = tokenizer_hash(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(7)
    assert tokenizer_hash(tokenizer) == before
    assert tokenizer_hash(word_tokenizer([*WORDS, "more"])) != before


def test_a_tokenizer_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data\.tokenizer .*nowhere: no such folder"):
        load_named(str(tmp_path / "nowhere"))


def test_an_unknown_set_offers_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="Did you mean sst2"):
        sets.known_set("sst3")


def test_availability_says_where_or_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for variable in ("HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    assert sets.available("demo-sentiment")[0]
    here, how = sets.available("sst2")
    assert not here
    assert "oelm data prepare sst2" in how
    assert "HF_ENDPOINT" in how
    (tmp_path / "hf" / "datasets" / "nyu-mll___glue" / "sst2").mkdir(parents=True)
    assert sets.available("SST-2")[0]
    assert not sets.available("mrpc")[0]  # the same repository, another configuration
    kept = tmp_path / "data" / "mrpc"
    kept.mkdir(parents=True)
    (kept / "manifest.json").write_text("{}")
    assert sets.available("mrpc") == (True, str(kept))


def test_the_hub_is_asked_for_only_when_something_must_come_from_it(tmp_path: Path) -> None:
    local = {"family": "bert", "model": {"name": "x", "path": str(tmp_path)}, "data": {"name": "y", "path": "z"}}
    assert not hub.needs_hub(local)
    assert hub.needs_hub({**local, "model": {"name": "bert-base-uncased"}})
    assert hub.needs_hub({**local, "data": {"name": "sst2"}})
    assert not hub.needs_hub({"family": "gpt", "model": {"name": "demo-gpt"}, "data": {"name": "demo-stories"}})


def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't connect")

    monkeypatch.setenv("OELM_HOME", str(tmp_path))
    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(NotFound) as caught:
        classification.find_sources(Data(name="qqp", classes=2))
    for part in ("dataset qqp", "no network", str(tmp_path / "data" / "qqp"), "oelm data prepare qqp", "HF_ENDPOINT"):
        assert part in str(caught.value)


@pytest.mark.parametrize("content", ["[1, 2]", '{"sentence": "a", "label": 1}\n3\n'])
def test_json_rows_without_columns_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(BadInput, match="not an object with named columns"):
        list(files.read_rows(tmp_path / "train.json"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half"])
def test_a_damaged_token_cache_is_made_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept.npz").write_bytes(content)
    assert classification._read_cached(tmp_path / "kept.npz") is None
