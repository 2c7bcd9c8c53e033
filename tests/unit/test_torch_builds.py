"""Driver, torch and cards held against each other: what does not fit is named, with the line that installs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oelm_core import doctor
from oelm_core.devices import torch_builds
from oelm_core.devices.torch_builds import BUILDS, CardFacts, TorchFacts, has_kernels, install_line, judge
from tests import fake_nvml, needs
from tests.fake_nvml import LOST, Machine, card

V100 = CardFacts("0", "Tesla V100", (7, 0))
A5000 = CardFacts("0", "RTX A5000", (8, 6))
L40 = CardFacts("1", "L40", (8, 9))
B200 = CardFacts("2", "B200", (10, 0))
CU130 = TorchFacts("2.13.0+cu130", "13.0", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"), 1)
CU126 = TorchFacts("2.13.0+cu126", "12.6", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"), 1)


@pytest.mark.parametrize("driver", ["535.183.01", "550.54.14", "560.35.03", "575.51.03"])
def test_the_default_wheel_is_too_new_for_the_drivers_of_most_clusters(driver: str) -> None:
    verdict = judge(CU130, driver, [A5000])
    assert f"driver {driver} is older than R580, which torch's CUDA 13.0 needs" in verdict.found
    line, meaning = verdict.fix.splitlines()
    assert line == 'pip install "torch==2.13.0+cu126" --index-url "$PYTORCH_INDEX/cu126"'
    assert not set(line) & set("<>|;&"), "a shell would take it for something else"
    assert meaning.startswith("PYTORCH_INDEX is the address of PyTorch's wheel index")
    assert judge(CU126, driver, [A5000]).fix == ""


def test_cuda_13_knows_no_v100_whatever_the_driver() -> None:
    verdict = judge(CU130, "580.65.06", [A5000, V100])
    assert verdict.found == "torch 2.13.0+cu130 has no kernels for GPU 0 (Tesla V100, sm_70)"
    assert "torch==2.13.0+cu126" in verdict.fix
    assert judge(CU126, "580.65.06", [A5000, V100]).fix == ""


@pytest.mark.parametrize(
    ("capability", "newest", "r535"),
    [
        ((6, 0), "cu126", "cu126"),
        ((6, 1), "cu126", "cu126"),
        ((7, 0), "cu126", "cu126"),
        ((7, 5), "cu130", "cu126"),
        ((8, 0), "cu130", "cu126"),
        ((8, 6), "cu130", "cu126"),
        ((8, 9), "cu130", "cu126"),
        ((9, 0), "cu130", "cu126"),
    ],
)
def test_a_card_gets_the_build_that_has_its_kernels(capability: tuple[int, int], newest: str, r535: str) -> None:
    cards = [CardFacts("0", "Pretend", capability)]
    found = [torch_builds.fitting_build(driver, cards) for driver in ("580.65.06", "535.183.01")]
    assert [build and build.suffix for build in found] == [newest, r535]


def test_where_all_fit_nothing_is_to_be_done_and_the_newest_build_is_kept() -> None:
    verdict = judge(CU130, "580.65.06", [A5000, L40])
    assert verdict == (
        "driver 580.65.06 runs torch's CUDA 13.0, which has kernels for RTX A5000, L40",
        "",
    )


@pytest.mark.parametrize(
    ("driver", "cards", "line"),
    [
        ("580.65.06", [A5000], '"torch==2.13.0+cu130"'),
        ("570.86.10", [B200], '"torch==2.11.0+cu128"'),
        ("470.223.02", [A5000, V100], '"torch==2.7.1+cu118"'),
        ("418.226.00", [V100], "driver 418.226.00 runs no torch that this lab takes: ask for R525 or newer"),
        ("580.65.06", [V100, B200], "no build fits all cards at once: leave some out with --device"),
        (None, [], 'pip install "torch>=2.6"'),
    ],
)
def test_the_install_line_names_the_build_that_driver_and_cards_can_use(
    driver: str | None, cards: list[CardFacts], line: str
) -> None:
    said = install_line(TorchFacts("2.13.0+cpu", None), driver, cards)
    assert line in said
    assert "://" not in said  # which host has the wheels is the site's to know


def test_a_torch_without_cuda_one_that_sees_nothing_and_one_that_is_too_old_are_told_apart() -> None:
    assert judge(TorchFacts("2.13.0+cpu", None), "550.54", [A5000]).found == (
        "torch 2.13.0+cpu has no CUDA, but this machine has RTX A5000"
    )
    assert "CUDA_VISIBLE_DEVICES" in judge(CU126._replace(sees=0), "550.54", [A5000]).fix
    assert judge(TorchFacts("2.4.1", None), None, []) == (
        "torch 2.4.1 is too old: transformers needs 2.6",
        'pip install "torch>=2.6"',
    )
    assert judge(TorchFacts("2.13.0+cpu", None), None, []).fix == ""


@pytest.mark.parametrize(
    ("kernels", "capability", "runs"),
    [
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["compute_80"], (9, 0), True),
        (["sm_90a"], (9, 0), True),
        (["sm_120a"], (12, 1), False),
        (["sm_120"], (12, 1), True),
        (["sm_100"], (12, 0), False),
    ],
)
def test_kernels_run_on_their_own_generation_and_ptx_on_later_ones(
    kernels: list[str], capability: tuple[int, int], runs: bool
) -> None:
    assert has_kernels(kernels, capability) is runs


def test_the_bounds_of_the_package_are_those_of_the_table() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"torch>={torch_builds.OLDEST[0]}.{torch_builds.OLDEST[1]}"' in project
    import transformers.dependency_versions_table as needs

    assert needs.deps["torch"] == "torch>=2.6"
    last = [re.fullmatch(r"(\d+)\.(\d+)\.\d+", build.last) for build in BUILDS if build.last]
    assert all(one and (int(one[1]), int(one[2])) >= torch_builds.OLDEST for one in last)


def said_by_torch(**facts: Any) -> SimpleNamespace:
    usual = {"cuda": False, "kernels": [], "names": [], "bf16": False, "threads": 2}
    return SimpleNamespace(returncode=0, stdout=json.dumps({**usual, **facts}), stderr="")


def test_the_doctor_compares_driver_wheel_and_card(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = said_by_torch(version="2.13.0+cu130", built_for="13.0", kernels=list(CU130.kernels))
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setattr(doctor, "driver_and_cards", lambda: doctor.Driver("535.183.01", (V100,)))
    found = {check.name: check for check in doctor._torch()}
    assert (found["build"].grade, found["torch"].grade) == ("bad", "good")
    assert "older than R580" in found["build"].found
    assert "torch==2.13.0+cu126" in found["build"].fix
    monkeypatch.setattr(doctor, "driver_and_cards", lambda: doctor.Driver(problem="no driver"))
    assert "build" not in {check.name for check in doctor._torch()}


def test_a_host_with_cards_but_no_driver_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "driver_and_cards", lambda: doctor.Driver(problem="Driver Not Loaded"))
    monkeypatch.setattr(doctor, "sign_of_cards", lambda: "/dev/nvidia0 is there")
    (check,) = doctor._nvml()
    assert check.grade == "bad"
    assert "there are cards here (/dev/nvidia0 is there), so --device auto is refused" in check.fix
    monkeypatch.setattr(doctor, "sign_of_cards", lambda: None)
    assert [check.grade for check in doctor._nvml()] == ["warn"]


@needs.compiler
def test_the_doctor_reads_driver_and_generation_from_nvml_and_names_suspect_cards(tmp_path: Path) -> None:
    lines = ["driver version=550.54.14\n", card(0, name="Tesla-V100", capability=70), card(1, handle=LOST), card(2)]
    machine = Machine(tmp_path, fake_nvml.build(tmp_path), *lines)
    script = (
        "from oelm_core import doctor\n"
        "from oelm_core.launch import suspects\n"
        f"suspects.mark({fake_nvml.uuid(2)!r}, 'run-a', 'ECC error')\n"
        "print(doctor.driver_and_cards())\n"
        "print([check.found for check in doctor._suspects()])\n"
    )
    environment = {**os.environ, **machine.environment, "OELM_LEASES": str(tmp_path / "leases")}
    said = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    cards, suspect = said.stdout.splitlines()
    assert "driver='550.54.14'" in cards
    assert "name='Tesla-V100', capability=(7, 0)" in cards
    assert "name='a card that does not answer', capability=None" in cards
    assert "GPU 2 is suspect since run run-a failed on it" in suspect
    assert "ECC error" in suspect
