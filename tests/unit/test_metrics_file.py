"""metrics.jsonl: whole lines only, read as it grows, read anew when it was cut."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oelm_core.runs.metrics_file import MetricsReader, MetricsWriter, parse, read_metrics
from oelm_tui.snapshots.columns import Columns


def test_what_was_written_is_read_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer, reader = MetricsWriter(path), MetricsReader(path)
    writer.write("train", 1, loss=2.0)
    assert [line.values["loss"] for line in reader.read_new()[1]] == [2.0]
    writer.write("eval", 2, accuracy=0.5)
    writer.write("train", 3, loss=float("nan"))
    restarted, lines = reader.read_new()
    assert not restarted
    assert [(line.kind, line.step) for line in lines] == [("eval", 2), ("train", 3)]
    assert reader.read_new() == (False, [])
    writer.close()
    assert [line.step for line in read_metrics(path, "train")] == [1, 3]


def test_a_file_cut_by_a_resume_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2, "kind": "train"}\n')
    reader = MetricsReader(path)
    assert len(reader.read_new()[1]) == 2
    beside = tmp_path / "cut"
    beside.write_text('{"step": 1, "kind": "train"}\n')
    os.replace(beside, path)
    restarted, lines = reader.read_new()
    assert restarted
    assert [line.step for line in lines] == [1]


def test_foreign_and_broken_lines_are_skipped_and_a_missing_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_bytes(b'\xff\xfe\n[1]\n{"step": 1}\nnot json\n{"step": 2, "kind": "eval"}\n')
    assert [line.step for line in read_metrics(path)] == [2]


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_however_the_appends_are_torn_each_record_is_read_exactly_once(
    tmp_path_factory: object, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("m") / "metrics.jsonl"  # type: ignore[attr-defined]
    content = b"".join(b'{"step": %d, "kind": "train"}\n' % step for step in range(7))
    reader, seen, start = MetricsReader(path), [], 0
    for end in [*sorted(cuts), len(content)]:
        with open(path, "ab") as file:
            file.write(content[start:end])
        start = max(start, min(end, len(content)))
        seen += [line.step for line in reader.read_new()[1]]
    assert seen == list(range(7))


def test_long_backlogs_can_be_read_in_bites(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "kind": "train"}}\n' for step in range(100)))
    reader, seen = MetricsReader(path), []
    while lines := reader.read_new(max_bytes=200)[1]:
        assert len(lines) <= 8
        seen += [line.step for line in lines]
    assert seen == list(range(100))
    assert len(MetricsReader(path).read_new(max_bytes=5)[1]) == 1  # a line longer than the bite is not stuck upon


def test_a_number_that_is_not_finite_is_written_as_null_and_read_back_as_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    writer.write("train", 1, loss=math.nan, lr=0.5)
    writer.close()
    assert b'"loss":null' in path.read_bytes()
    [line] = read_metrics(path)
    assert math.isnan(line.values["loss"])
    assert line.values["lr"] == 0.5


def test_half_a_line_is_a_full_disk_and_not_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write may end early without an error; the next line behind it would be lost with it."""
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    monkeypatch.setattr(os, "write", lambda file, content: len(content) // 2)
    with pytest.raises(OSError, match="No space left"):
        writer.write("train", 1, loss=1.0)


VALUES = st.one_of(
    st.floats(), st.integers(-(10**400), 10**400), st.none(), st.booleans(), st.text(max_size=3), st.just([1])
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "t": st.one_of(st.floats(0, 10), st.sampled_from([3, 10**400, None])),
        "step": st.one_of(st.integers(0, 9), st.sampled_from([10**400, -(10**400)]), st.floats(0, 9), st.booleans()),
        "kind": st.sampled_from(["train", "eval", "system", "event", "other", 3, None]),
        **dict.fromkeys(("loss", "lr", "what", "message"), VALUES),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.one_of(ROWS, st.just("torn"), st.just([1])), max_size=4)), st.booleans())
def test_lines_read_all_at_once_are_the_columns_of_lines_read_one_by_one(pieces: list[Any], known: bool) -> None:
    at_once, one_by_one = Columns(), Columns()
    first = [{"t": 1, "step": 1, "kind": kind, "loss": 1} for kind in ("train", "eval", "system") if known]
    for rows in [first, *pieces]:
        chunk = b"".join(json.dumps(row)[: 5 if row == "torn" else None].encode() + b"\n" for row in rows)
        at_once.add_lines(chunk)
        one_by_one.add(parse(chunk.split(b"\n")))
    for kind, table in one_by_one.tables.items():
        shown = {name: list(map(str, column)) for name, column in table.columns.items()}
        assert {name: list(map(str, column)) for name, column in at_once[kind].columns.items()} == shown
    assert [line.message for line in at_once.events] == [line.message for line in one_by_one.events]


def test_names_and_kinds_that_a_struct_could_not_have_are_columns_all_the_same() -> None:
    columns = Columns()
    line = {
        "t": 1.0,
        "step": 1,
        "kind": "train",
        "loss": 1.0,
        'quoted "name"': 2.0,
        "größe": 3.0,
        "layers.0.class": 4.0,
    }
    for _ in range(3):
        columns.add_lines(json.dumps(line).encode() + b"\n")
    assert {name: list(columns["train"].column(name)) for name in line if name != "kind"} == {
        name: [value] * 3 for name, value in line.items() if name != "kind"
    }
