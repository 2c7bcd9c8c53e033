"""The pretend card's library: built by the machine's C++ compiler, and loaded before torch is. Imports no torch."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
CACHE = "PRETEND_CUDA_CACHE"
"""Names another folder for what is built than one in the temporary directory."""


def compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def missing() -> str | None:
    """Why there can be no pretend card here, in a sentence; None where there can."""
    if compiler() is None:
        return (
            "no C++ compiler to build the pretend card with: apt install g++ (dnf install gcc-c++, conda install gxx)"
        )
    if list((_torch() / "lib").glob("libtorch_cuda*")):
        return (
            "this torch is a CUDA build: the pretend card needs a CPU build (a real one proves more: oelm doctor --gpu)"
        )
    return None


def plug_in() -> None:
    """Loads it for good: torch asks once, while it is imported, whether there is CUDA."""
    if "torch" in sys.modules:
        raise RuntimeError("the pretend card must be there before torch is imported")
    _loaded()


def waits_below_python() -> int:
    """How often torch's own C++ has waited for the card so far."""
    return int(_loaded().waits_below_python())


@functools.cache
def _loaded() -> ctypes.CDLL:
    return ctypes.CDLL(str(build()))


def build() -> Path:
    """The library, built once for each version of it, of its flags and of torch."""
    libraries = str(_torch() / "lib")
    places = ["-I", str(_torch() / "include"), "-L", libraries, f"-Wl,-rpath,{libraries}"]
    command = [compiler() or "c++", "-std=c++20", "-shared", "-fPIC", *places, str(SOURCE), "-ltorch_cpu", "-lc10"]
    key = hashlib.sha256(f"{version('torch')} {command}".encode() + SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(os.environ.get(CACHE) or Path(tempfile.gettempdir()) / f"pretend-cuda-{os.getuid()}")
    built = folder / f"device-{key}.so"
    if not built.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = built.with_suffix(f".{os.getpid()}")
        ended = subprocess.run([*command, "-o", str(draft)], capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"the pretend card could not be built: {ended.stderr}")
        os.replace(draft, built)  # two may build at once
    return built


def _torch() -> Path:
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
