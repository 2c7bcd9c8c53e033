"""The machine's snapshot, through the real NVML binding and a pretend driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from oelm_core.devices.card import Card
from oelm_core.devices.machine import MachineSnapshot, without_gpus
from oelm_core.devices.sampler import DeviceSampler
from oelm_core.launch import lease
from oelm_tui.commands.machine import _print as print_machine
from tests import fake_nvml, needs
from tests.fake_nvml import GB, LOST, MISMATCH, NO_PERMISSION, NOT_SUPPORTED, Machine, card, uuid

pytestmark = needs.compiler

SNAPSHOT = "import json; from oelm_core.devices.machine import snapshot; print(json.dumps(snapshot().to_json()))"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


def look(machine: Machine, **extra: str) -> dict[str, Any]:
    environment = {**os.environ, **machine.environment, **extra}
    said = subprocess.run([sys.executable, "-c", SNAPSHOT], env=environment, capture_output=True, text=True, check=True)
    content: dict[str, Any] = json.loads(said.stdout)
    return content


def test_four_cards_with_somebody_elses_work_one_lost_and_one_that_says_little(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OELM_LEASES", str(tmp_path / "leases"))
    held = lease.take(uuid(0), "sst2-oelm-s42-20260101-000000-abcd")
    machine = Machine(
        *(tmp_path, library),
        card(0, util=97, used=20 * GB, temp=71, power=310_500, throttle=0x4),
        fake_nvml.process(os.getpid(), 3 * GB),
        fake_nvml.process(999_999_999, None),
        card(1, util=LOST),
        card(2, temp=NOT_SUPPORTED, power=NOT_SUPPORTED, util=NOT_SUPPORTED, throttle=NOT_SUPPORTED),
        card(3, processes=NO_PERMISSION),
    )
    seen = look(machine)
    assert held is not None
    held.release()
    assert set(seen) >= {"host", "cpu", "gpus", "memory", "disk"}
    busy, lost, quiet, closed = seen["gpus"]
    contract = {"index", "uuid", "name", "utilisation", "memory_used", "memory_total", "temperature", "power"}
    assert contract | {"processes", "lease", "error"} <= set(busy)
    assert (busy["utilisation"], busy["memory_used"], busy["temperature"], busy["power"]) == (97, 20 * GB, 71, 310.5)
    assert busy["throttled"] is True
    assert busy["power_limit"] == 450.0
    assert busy["lease"] == "sst2-oelm-s42-20260101-000000-abcd"
    mine, hidden = busy["processes"]
    assert (mine["pid"], mine["memory"]) == (os.getpid(), 3 * GB)
    assert mine["user"]
    assert mine["mine"] is True
    assert abs(mine["started"] - psutil.Process().create_time()) < 2
    assert (hidden["pid"], hidden["user"], hidden["memory"]) == (999_999_999, None, None)
    assert (lost["error"], lost["memory_used"], lost["uuid"]) == ("GPU is lost", None, uuid(1))
    assert (quiet["temperature"], quiet["power"], quiet["utilisation"], quiet["error"]) == (None, None, None, None)
    assert quiet["memory_total"] == 24 * GB
    assert (closed["error"], closed["memory_used"], closed["processes"]) == ("Insufficient Permissions", GB // 2, [])


def test_a_card_without_a_handle_stays_in_the_list_with_its_error(tmp_path: Path, library: Path) -> None:
    first, second = look(Machine(tmp_path, library, card(0, handle=LOST), card(1)))["gpus"]
    assert (first["index"], first["uuid"], first["error"]) == (0, None, "GPU is lost")
    assert second["error"] is None


def test_one_refused_question_hides_nothing_else_of_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    known = Card(0, "GPU-0", "Pretend", 88, 2 * 2**30, 4 * 2**30, None, 52.0, error="Insufficient Permissions")
    print_machine(replace(without_gpus(), gpus=(known, Card(1, error="GPU is lost"))))
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("88%", "2.0G / 4.0G", "52W", "Insufficient Permissions", "GPU is lost"))
    assert "free" not in shown.partition("GPU  NAME")[2]


def test_mig_instances_are_listed_after_their_card(tmp_path: Path, library: Path) -> None:
    lines = [
        "instance uuid=MIG-a name=slice used=1000 total=5000\n",
        "instance uuid=MIG-b name=slice used=0 total=5000\n",
    ]
    parent, first, second = look(Machine(tmp_path, library, card(0), *lines))["gpus"]
    assert parent["is_mig_parent"]
    assert [(one["index"], one["mig"], one["uuid"]) for one in (first, second)] == [(0, 0, "MIG-a"), (0, 1, "MIG-b")]
    assert first["memory_used"] == 1000


def test_a_driver_that_does_not_fit_its_library_is_said_and_the_processor_still_shown(
    tmp_path: Path, library: Path
) -> None:
    seen = look(Machine(tmp_path, library, f"driver init={MISMATCH}\n"))
    assert seen["gpus"] == []
    assert "differ in version" in seen["driver_error"]
    assert seen["cpu"]["cores"] >= 1


def test_without_a_driver_there_is_the_processor_only_and_no_complaint() -> None:
    seen = subprocess.run(
        [sys.executable, "-c", SNAPSHOT],
        env={**os.environ, "LD_LIBRARY_PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    content = json.loads(seen.stdout)
    if not content["no_driver"]:
        pytest.skip("this machine has an NVIDIA driver: the test is about one that has none")
    assert (content["gpus"], content["driver_error"]) == ([], None)


def test_sampling_goes_on_when_a_card_falls_off_the_bus_and_comes_back(tmp_path: Path, library: Path) -> None:
    machine = Machine(tmp_path, library, card(0), card(1))
    script = (
        "import sys; from oelm_core.devices.sampler import DeviceSampler\n"
        "with DeviceSampler(every=0.01) as sampler:\n"
        "    for wanted in sys.stdin:\n"
        "        while True:\n"
        "            seen = sampler.latest\n"
        "            told = ','.join(str(gpu.error) for gpu in seen.gpus) or str(seen.driver_error)\n"
        "            if told == wanted.strip(): break\n"
        "        print(told, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **machine.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout

    def sees(wanted: str) -> bool:
        assert child.stdin
        assert child.stdout
        child.stdin.write(wanted + "\n")
        child.stdin.flush()
        return child.stdout.readline().strip() == wanted

    assert sees("None,None")
    machine.show(card(0), card(1, handle=LOST))
    assert sees("None,GPU is lost")
    machine.show("driver count=!999\n")
    assert sees("The NVIDIA driver does not answer: Unknown Error.")
    machine.show(card(0))
    assert sees("None")
    child.stdin.close()
    child.wait()


def test_a_reader_never_waits_for_a_driver_that_hangs() -> None:
    released, looking = threading.Event(), threading.Event()

    def hangs() -> MachineSnapshot:
        looking.set()
        released.wait()
        return without_gpus()

    sampler = DeviceSampler(every=0.01, look=hangs).start()
    looking.wait()
    first = sampler.latest  # would block for ever if it asked the driver
    assert first.gpus == ()
    released.set()
    sampler.stop()


def test_a_look_that_fails_is_reported_and_the_last_picture_stays() -> None:
    looks = iter([without_gpus(), RuntimeError("no luck")])
    failed = threading.Event()

    def look_once() -> MachineSnapshot:
        result = next(looks, None)
        if isinstance(result, MachineSnapshot):
            return result
        failed.set()
        raise result or RuntimeError("no luck")

    with DeviceSampler(every=0.001, look=look_once) as sampler:
        failed.wait()
        while sampler.problem is None:
            pass
        assert sampler.problem == "RuntimeError: no luck"
        assert sampler.latest.cpu.cores >= 1
