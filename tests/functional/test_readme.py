"""Every offline `oelm` command of the README works as written, in the order written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.functional.oelm import Oelm

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """The lines after `$` in the README's console blocks, without their comments."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ oelm")]
    return [line[2:].split("#")[0].strip() for line in lines]


@pytest.mark.xdist_group("processes")
def test_the_tour_works_as_written(demo_home: Path) -> None:
    oelm = Oelm(demo_home)
    assert len(commands()) >= 12
    try:
        for command in commands():
            ended = oelm(*shlex.split(command)[1:], cwd=demo_home)
            assert ended.returncode == 0, f"{command}: {ended.stderr}"
            assert "Traceback" not in ended.stderr
    finally:
        oelm("stop", "@last", "--now")


def test_the_preset_of_the_readme_is_valid(tmp_path: Path) -> None:
    from oelm_core.config.catalogue import load_catalogue

    example = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert example
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.yaml").write_text(example[1])
    found = load_catalogue(tmp_path)
    assert found.warnings == []
    assert found.experiment("sst2-oelm-first-half").method.layers == "first:6"


def test_every_file_the_readme_points_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
