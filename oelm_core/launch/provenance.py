"""Where a run's code came from: the commit of this checkout and the versions of the packages that decide results."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = (
    *("oelm-lab", "torch", "transformers", "tokenizers", "datasets", "numpy", "scipy"),
    *("peft", "safetensors", "accelerate", "nvidia-ml-py"),
)


@functools.lru_cache(maxsize=1)
def git_commit() -> str | None:
    """The commit of the checkout this package runs from, with `+changes` when files differ; None when installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"],
            capture_output=True,
            text=True,
            timeout=2,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


@functools.lru_cache(maxsize=1)
def package_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
