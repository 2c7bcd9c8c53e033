"""What a figure depends on beside its recipe: this code's commit, the packages in use, the processor."""

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
    root = Path(__file__).resolve().parents[1]
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
