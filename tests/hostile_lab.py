"""A lab with two sound runs and one that somebody tampers with, and what must hold whatever was done to it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Notes, Stop
from oelm_core.runs.store import list_runs
from oelm_tui.render.config import config_lines
from oelm_tui.render.measured import check_lines, sample_lines, timing_lines
from oelm_tui.render.reason import reason_lines
from oelm_tui.render.run_rows import row_of
from oelm_tui.snapshots.detail import DetailReader, DetailRequest
from oelm_tui.snapshots.sampler import LabSampler, Sources
from tests.in_process import Ended, oelm
from tests.run_factory import BERT, FROZEN, experiment, predictions_with, write_run

READING = (
    ("runs",),
    ("runs", "--json"),
    ("runs", "--state", "finished"),
    ("compare", "--all"),
    ("compare", "--all", "--json"),
    *(("export", "--all", "--format", form) for form in ("csv", "markdown", "html", "latex", "json")),
    ("logs", "bad"),
    ("logs", "bad", "--raw"),
)
RAW = (
    *(
        "null",
        "1.5",
        "true",
        "[]",
        "{}",
        "[[]]",
        '""',
        '"fast"',
        "-1",
        "0",
        "1e18",
        "1e308",
        "1e999",
        "NaN",
        "-Infinity",
    ),
    *("9" * 19, "9" * 30, "9" * 5_000, "0." + "9" * 5_000, "[" * 100_000, '{"a":' * 100_000, "[" * 60 + "]" * 60),
    *(
        '"a\\nb"',
        '"\\u001b]0;title\\u0007"',
        '"\\u009b31m"',
        '"\\ud800"',
        '"\\u0000"',
        '"=1+1"',
        '"[/nope]"',
        '"\\u202e"',
    ),
    *(
        '{"a": {"b": [1]}}',
        '[1, "a", null]',
        '["query", 3]',
        '{"1": 2}',
        "tru",
        '"open',
        "{,}",
        '"' + "é" * 3_000 + '"',
    ),
)
"""What may stand in the place of any value."""
BYTES = (b"", b"\0" * 200, b"\xff\xfe", b"null", b"[]", b'"x"', b"7", b"[" * 100_000, b"9" * 5_000, b"\xef\xbb\xbf{}")
"""What may stand in the place of a whole file."""


def write_lab(home: Path) -> Path:
    """Three runs; the folder of the one that is called bad, which has every file that a run can have."""
    root = home / "runs"
    base = experiment("good-base")
    arm = experiment("good-arm", BERT, method=FROZEN, baseline="good-base")
    labels = [0, 1] * 50
    for number, one in enumerate((base, arm)):
        write_run(root, one, number=number, labels=labels, predictions=predictions_with(labels, range(number + 5)))
    made = write_run(root, arm, number=2, seed=43, labels=labels, predictions=predictions_with(labels, [1, 5]))
    folder = RunFolder(root / "bad")
    os.rename(made.path, folder.path)
    folder.write(Notes(tags=["mine"], note="look at this"))
    folder.write(Stop("me@lab", 1_770_000_000.0))
    folder.log.write_text("step 1\nstep 2\n")
    folder.samples.write_text('{"step": 1, "prompt": "a", "text": "b"}\n')
    return folder.path


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside, of the first few of a long list."""
    if not isinstance(content, dict | list):
        return [path]
    inner = content.items() if isinstance(content, dict) else list(enumerate(content))[:3]
    return [*([path] if path else []), *(one for key, value in inner for one in places(value, (*path, key)))]


def with_raw(content: Any, path: tuple[Any, ...], raw: str) -> str:
    """The content as JSON, which is YAML too, with `raw` in place of one of its values."""
    copy = json.loads(json.dumps(content))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = "@raw@"
    return json.dumps(copy, ensure_ascii=False).replace('"@raw@"', raw)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every path with its mode and content; the list's index, which may be written at any time, left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        plain = stat.S_ISREG(status.st_mode)
        content = (
            hashlib.sha256(path.read_bytes()).hexdigest() if plain else os.readlink(path) if path.is_symlink() else ""
        )
        found[str(path.relative_to(root))] = status.st_mode, content
    return {name: facts for name, facts in found.items() if not name.endswith(".index.json")}


_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def is_harmless(line: str) -> bool:
    """Whether nothing in it breaks the line, steers a terminal or turns the reading."""
    return not _OBEYED.search(line)


BUG = re.compile(r"^oelm: unexpected |cannot be used \(\w+: ", re.MULTILINE)
"""How an error that nobody foresaw is said, of a command and of a preset; YAML itself says "found unexpected ':'"."""


def check(ended: Ended, *expected: str) -> None:
    """No bug, one line a message, nothing that a terminal would obey, and the sound runs are there."""
    said = f"{ended.code} {ended.err[:400]} {ended.out[:200]}"
    assert not BUG.search(ended.err), said
    assert ended.code in (0, 2, 3, 4), said
    lines = ended.err.split("\n")
    assert lines.pop() == "", said
    assert all(line.startswith("oelm: ") and is_harmless(line) for line in lines), said
    if ended.code:
        assert len(lines) == 1, said
    assert all(is_harmless(line) for line in ended.out.split("\n")), said
    for words in expected:
        assert words in ended.out, said


def check_reading(command: tuple[str, ...]) -> Ended:
    ended = oelm(*command)
    if command[-1] == "--raw":
        assert not BUG.search(ended.err), ended.err
        return ended
    check(ended, *(() if command[0] == "logs" else ("good-arm",)))
    if command[0] != "logs":
        assert ended.code == 0, ended.err
    return ended


def check_screen(home: Path) -> dict[str, str]:
    """The screen's rows, and its panes of the bad run; what each row remarks, by run."""
    shot = LabSampler(Sources(runs=lambda: list_runs(home / "runs"), now=lambda: 1_770_100_000.0)).sample()
    assert len([view for view in shot.runs if view.id.startswith("good-")]) == 2
    remarks = {}
    for view in shot.runs:
        cells = row_of(view, shot.now).cells
        remarks[view.id] = str(cells)
    bad = shot.by_id.get("bad")
    detail = DetailReader().read(DetailRequest(bad)) if bad else None
    if detail is not None and bad is not None:
        reason_lines(detail, 80)
        timing_lines(detail)
        check_lines(detail)
        sample_lines(detail.samples, 80)
        config_lines(bad, None, None, 80)
        assert all(isinstance(bad.get(key), str) for key in ("id", "state", "text"))
        bad.get("train.lr")
    return remarks
