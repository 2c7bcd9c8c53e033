"""What a figure depends on beside its recipe: this code's commit, the packages in use, the processor."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    *("oelm-lab", "torch", "transformers", "tokenizers", "datasets", "numpy", "scipy"),
    *("peft", "safetensors", "accelerate", "nvidia-ml-py"),
)

DIRTY = "+changes"
"""Ends the commit of a tree whose package differs from it."""


class CodeState(NamedTuple):
    """The checkout this package runs from; both None when it is installed, or git does not answer."""

    commit: str | None = None
    """With `+changes` where the package's own files differ from it."""
    diff: str | None = None
    """Hash of those changes, so that two dirty trees can be told apart; None for a clean one."""


def code_state(root: Path | None = None) -> CodeState:
    """Of the files a worker would import now: tracked changes and untracked Python files of the package.

    Looked up each time, for a screen stays open while its user edits.
    """
    root = root or Path(__file__).resolve().parents[1]
    package = Path(__file__).parent.name
    if not (root / ".git").exists():
        return CodeState()
    try:
        commit = _git(root, "rev-parse", "HEAD").decode().strip()
        changes = _git(root, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--", package)
        added = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", f"{package}/*.py").split(b"\0")
        known = hashlib.sha256(changes)
        for name in sorted(filter(None, added)):
            content = (root / os.fsdecode(name)).read_bytes()
            known.update(b"\0%s\0%d\0%s" % (name, len(content), content))
    except (OSError, subprocess.SubprocessError):
        return CodeState()
    dirty = bool(changes) or any(added)
    return CodeState(f"{commit}{DIRTY}", known.hexdigest()[:16]) if dirty else CodeState(commit)


def _git(root: Path, *words: str) -> bytes:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, timeout=5, check=True).stdout


@functools.lru_cache(maxsize=1)
def package_versions() -> dict[str, str]:
    """Of Python and of those PACKAGES that are installed."""
    found = {name: _version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **{name: version for name, version in found.items() if version}}


def _version(package: str) -> str | None:
    """By its line alone: to parse all of a package's metadata, as `metadata.version` does, takes four times as long."""
    try:
        text = metadata.distribution(package).read_text("METADATA") or ""
    except metadata.PackageNotFoundError:
        return None
    return next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("Version: ")), None)


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
