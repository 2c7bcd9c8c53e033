"""A pretend NVIDIA driver: compiles our libnvidia-ml.so.1 and writes the scenarios it answers from."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
GB = 1_000_000_000
NOT_SUPPORTED, NO_PERMISSION, LOST, MISMATCH = "!3", "!4", "!15", "!18"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """The folder with libnvidia-ml.so.1 in it, to be put on LD_LIBRARY_PATH."""
    library = folder / "libnvidia-ml.so.1"
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def card(number: int, **values: object) -> str:
    """One card's line; keyword arguments replace what an idle card would say."""
    usual: dict[str, object] = {
        "uuid": f"GPU-{number:08x}-0000-4000-8000-000000000000",
        "name": "Pretend-4090",
        "util": 0,
        "used": GB // 2,
        "total": 24 * GB,
        "temp": 41,
        "power": 52_000,
        "limit": 450_000,
        "throttle": 1,
        "capability": 86,
    }
    return "card " + " ".join(f"{key}={value}" for key, value in {**usual, **values}.items()) + "\n"


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def process(pid: int, memory: int | None = 18_200_000_000) -> str:
    return f"process pid={pid}" + (f" memory={memory}" if memory is not None else "") + "\n"


class Machine:
    """A pretend machine: `environment` for a subprocess that is to see it, `show` to change what it sees."""

    def __init__(self, folder: Path, library: Path, *lines: str) -> None:
        self.scenario = folder / "scenario.txt"
        self.library = library
        self.show(*lines)

    def show(self, *lines: str) -> None:
        """Replaces the scenario in one step, as the program may read it at any moment."""
        handle, draft = tempfile.mkstemp(dir=self.scenario.parent)
        with os.fdopen(handle, "w") as file:
            file.writelines(lines)
        os.replace(draft, self.scenario)

    @property
    def environment(self) -> dict[str, str]:
        others = os.environ.get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": str(self.library) + (f":{others}" if others else ""),
            "FAKE_NVML": str(self.scenario),
        }
