"""The state of the code that a run is started from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oelm_core.provenance import CodeState, code_state


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for name in ("oelm_core/loop.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_tree_has_a_commit_and_no_diff(checkout: Path) -> None:
    assert code_state(checkout) == CodeState(git(checkout, "rev-parse", "HEAD").strip())
    (checkout / "README.md").write_text("2\n")  # no result depends on it
    assert code_state(checkout).diff is None


def test_two_dirty_trees_of_one_commit_are_told_apart(checkout: Path) -> None:
    states = []
    for content in ("2\n", "3\n", "2\n"):
        (checkout / "oelm_core" / "loop.py").write_text(content)
        states.append(code_state(checkout))
    assert states[0] == states[2] != states[1]
    assert states[0].commit == states[1].commit == f"{git(checkout, 'rev-parse', 'HEAD').strip()}+changes"


def test_an_untracked_module_of_the_package_counts(checkout: Path) -> None:
    (checkout / "oelm_core" / "new.py").write_text("1\n")
    first = code_state(checkout)
    (checkout / "oelm_core" / "new.py").write_text("2\n")
    (checkout / "oelm_core" / "notes.txt").write_text("not code")
    second = code_state(checkout)
    assert None not in (first.diff, second.diff)
    assert first.diff != second.diff


def test_without_a_checkout_nothing_is_known(tmp_path: Path) -> None:
    assert code_state(tmp_path) == CodeState(None, None)
