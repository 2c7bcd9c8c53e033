"""Anything in any file: presets, run folders, logs, settings. No bug, one line a message, no file lost.

300 examples, always the same; `make fuzz` tries 10,000 others (OELM_FUZZ is how many).
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from oelm_core.config.catalogue import SHIPPED, Catalogue
from oelm_core.published.import_runs import import_folders
from oelm_tui.logs.clean import plain
from oelm_tui.settings import Settings
from tests.hostile_lab import (
    BYTES,
    RAW,
    READING,
    check,
    check_reading,
    check_screen,
    files_of,
    is_harmless,
    places,
    tree,
    with_raw,
    write_lab,
)
from tests.in_process import oelm

EXAMPLES = int(os.environ.get("OELM_FUZZ", "300"))


def share(part: float) -> Any:
    """Settings for a part of the examples. What was asked for by hand is drawn anew each time."""
    return settings(
        max_examples=max(1, round(EXAMPLES * part)),
        derandomize="OELM_FUZZ" not in os.environ,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("fuzz") / "home"
    write_lab(home)
    return home


@pytest.fixture(scope="module")
def home(template, tmp_path_factory) -> Path:
    """Set right again after every example."""
    return Path(shutil.copytree(template, tmp_path_factory.mktemp("fuzzed") / "home"))


@pytest.fixture(autouse=True)
def _environment(home, monkeypatch):
    monkeypatch.setenv("OELM_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")


words = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["\x1b[2J", "\x1b]52;c;aGk=\x07", "\x9b31m", "=cmd|' /C calc'!A0", "[/nope]", "a\nb", "\u202e", "$(x)"]
    ),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-5, 5), st.floats(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
raw_values = st.one_of(st.sampled_from(RAW), values.map(lambda value: json.dumps(value)))
contents = st.one_of(
    st.sampled_from(BYTES), st.binary(max_size=60), values.map(lambda value: json.dumps(value).encode())
)


@st.composite
def spoilt(draw: st.DrawFn, path: Path) -> bytes:
    """A file with something done to it."""
    written = path.read_bytes()
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(contents)
    lines = written.splitlines(keepends=True)
    if kind <= 3 and path.suffix == ".json":
        content = json.loads(written)
        return with_raw(content, draw(st.sampled_from(places(content))), draw(raw_values)).encode(
            "utf-8", "surrogatepass"
        )
    if kind <= 3 and path.suffix == ".jsonl" and lines:
        at = draw(st.integers(0, len(lines) - 1))
        content = json.loads(lines[at])
        lines[at] = with_raw(content, draw(st.sampled_from(places(content))), draw(raw_values)).encode() + b"\n"
        return b"".join(lines)
    at = draw(st.integers(0, max(0, len(written) - 1)))
    return written[:at] + draw(contents) + written[at + draw(st.integers(0, 40)) :]


def restore(path: Path, template: Path, home: Path) -> None:
    original = template / path.relative_to(home)
    if original.exists():
        shutil.copy2(original, path)
        os.utime(path)  # another mark: what was read before must not be taken for it
    else:
        path.unlink()


@share(0.4)
@given(st.data())
def test_a_run_folder_with_anything_in_it_hides_no_other_run(template, home, data):
    file = data.draw(st.sampled_from(files_of(template / "runs" / "bad"))).relative_to(template)
    path = home / file
    path.write_bytes(data.draw(spoilt(template / file)))
    try:
        before = tree(home)
        check_reading(("runs",))
        check_reading(data.draw(st.sampled_from(READING)))
        check_screen(home)
        assert tree(home) == before
    finally:
        restore(path, template, home)


LAB_FILES = ("tui.json", "slurm.yaml", "ledger.jsonl", "ledger.head", "runs/.index.json", "calibrations/a.json")
LEDGER = {"event": "launched", "when": 1.0, "run": "bad", "preset": "good-arm", "seed": 43, "value": 0.5, "before": ""}
CALIBRATION = {
    "preset": "good-arm",
    "config_hash": "x",
    "metric": "accuracy",
    "basis": "best",
    "seeds": [1, 2],
    "scores": [0.5, 0.6],
    "false_alarms": {"1": 0.1},
    "splits": {"1": 3},
    "created": 1.0,
    "host": "lab",
}
SOUND = {"ledger.jsonl": LEDGER, "calibrations/a.json": CALIBRATION, "tui.json": {"theme": "x", "bell": True}}


@share(0.2)
@given(st.data())
def test_files_of_the_lab_with_anything_in_them_end_no_command(home, data):
    name = data.draw(st.sampled_from(LAB_FILES))
    path = home / name
    path.parent.mkdir(exist_ok=True)
    sound = SOUND.get(name)
    if sound is not None and data.draw(st.booleans()):
        text = with_raw(sound, data.draw(st.sampled_from(places(sound))), data.draw(raw_values)) + "\n"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    else:
        path.write_bytes(data.draw(contents))
    try:
        before = tree(home)
        check_reading(data.draw(st.sampled_from(READING[:6])))
        Settings.read(home)
        if name == "slurm.yaml":
            check(oelm("run", "demo-gpt-oelm", "--launcher", "slurm", "--device", "cpu", "--set", "train.lr=no"))
        assert {**tree(home), name: None} == {**before, name: None}
    finally:
        path.unlink()


PRESET = (SHIPPED / "experiments" / "sst2.yaml").read_text()
yaml_pieces = st.one_of(
    words,
    raw_values.filter(lambda raw: len(raw) < 9_000),
    st.sampled_from(["!!int x", "&a *a", "{[1]: 2}", "? [1]", "---"]),
)


@share(0.2)
@given(at=st.integers(0, len(PRESET) - 1), length=st.integers(0, 60), piece=yaml_pieces)
def test_a_preset_with_anything_in_it_hides_no_other(home, at, length, piece):
    folder = home / "presets" / "experiments"
    folder.mkdir(parents=True, exist_ok=True)
    text = PRESET.replace("id: sst2", "id: own-sst2")
    (folder / "own.yaml").write_bytes((text[:at] + piece + text[at + length :]).encode("utf-8", "surrogatepass"))
    before = tree(home)
    ended = oelm("presets", "--json")
    check(ended, "GPT-01", "sst2-oelm")
    assert ended.code == 0
    json.loads(ended.out)
    assert tree(home) == before


LOG = (
    b"2026-01-01 00:00:00 - seed: 42\nlearning rate: 1e-3\nHead-wise orthogonal initialization\n"
    b"Epoch 1:  10%|#  | 10/100 [00:01<00:09, loss=2.0, lr=1e-3]\r[Step 100] Validation - Loss: 1.5, PPL: 4.48\n"
    b"Step 200: Running validation\nValidation - Loss: 0.5, Accuracy: 0.8, F1: 0.7\nTraining complete\n"
)
numbers = st.one_of(
    st.sampled_from([b"9" * 7_000, b"1e999", b"-1", b"nan", b"99999999999999", b"9999-99-99"]), contents
)


@share(0.2)
@given(at=st.integers(0, len(LOG) - 1), length=st.integers(0, 20), piece=numbers, beside=contents)
def test_a_log_with_anything_in_it_is_shown_and_imported_or_refused(
    template, home, tmp_path_factory, at, length, piece, beside
):
    written = LOG[:at] + piece + LOG[at + length :]
    source = tmp_path_factory.getbasetemp() / "author" / "GPT-01_x"
    source.mkdir(parents=True, exist_ok=True)
    (source / "training.log").write_bytes(written)
    (source / "config.json").write_bytes(beside)
    kept, root = tree(source), source.parent / "runs"
    shutil.rmtree(root, ignore_errors=True)
    for imported in import_folders([source], Catalogue(), root):
        sentences = [str(imported)] if isinstance(imported, Exception) else [*imported.notes, imported.run.id]
        assert all(len(sentence.splitlines()) == 1 for sentence in sentences)
    assert tree(source) == kept
    assert all(is_harmless(plain(line)) for line in written.split(b"\n"))
    log = home / "runs" / "bad" / "training.log"
    log.write_bytes(written)
    check_reading(("logs", "bad"))
    assert oelm("logs", "bad", "--raw", "-n", "100000").err == ""
    restore(log, template, home)
