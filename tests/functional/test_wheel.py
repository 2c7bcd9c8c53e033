"""The wheel carries the presets and works away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import oelm_core

pytestmark = pytest.mark.xdist_group("wheel")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in ("oelm_core", "oelm_tui", "presets", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    out = tmp_path_factory.mktemp("wheel")
    pip_wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        source,
    ]
    subprocess.run(pip_wheel, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_contains_the_presets_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "oelm_core/presets/experiments/sst2.yaml" in names
    assert "oelm_core/presets/studies/demo.yaml" in names
    assert {"oelm_tui/app.tcss", "oelm_core/py.typed", "oelm_tui/py.typed"} <= set(names)
    assert {"oelm_core/report/page.html", "oelm_core/report/zh.yaml"} <= set(names)
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"oelm_core", "oelm_tui"}


def test_the_wheel_bears_the_version_the_command_prints(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == oelm_core.__version__


def test_an_installed_oelm_lists_its_presets_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "venv"
    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    site = Path(
        subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    )
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # the same dependencies, seen through a .pth file; our own editable install must stay out of sight
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**inherited, "OELM_HOME": str(tmp_path / "home")}
    where = "import oelm_tui; from oelm_core.config.catalogue import SHIPPED; print(oelm_tui.__file__, SHIPPED)"
    found = subprocess.check_output([python, "-c", where], text=True, cwd=tmp_path, env=environment)
    assert all(path.startswith(str(fresh)) for path in found.split())
    listed = subprocess.check_output([fresh / "bin" / "oelm", "presets", "--json"], cwd=tmp_path, env=environment)
    ids = {row["id"] for row in json.loads(listed)}
    assert {"sst2-oelm", "GPT-02", "demo"} <= ids
    asked = {"_OELM_COMPLETE": "complete_bash", "COMP_WORDS": "oelm presets show GPT-0", "COMP_CWORD": "3"}
    offered = subprocess.check_output([fresh / "bin" / "oelm"], cwd=tmp_path, env={**environment, **asked}, text=True)
    assert "GPT-02" in offered.split()
    source = {**environment, "_OELM_COMPLETE": "source_bash"}  # what --install-completion has the shell read
    script = subprocess.check_output([fresh / "bin" / "oelm"], cwd=tmp_path, env=source, text=True)
    assert "_OELM_COMPLETE=complete_bash" in script
