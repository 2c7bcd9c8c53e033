"""Leases and the queue: who has a device, who may take which, in which order."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oelm_core.devices.card import Card, CardProcess
from oelm_core.devices.presence import sign_of_cards
from oelm_core.errors import BadInput, NotFound, Refused
from oelm_core.launch import device_request, lease, local, queue, suspects
from oelm_core.launch.acquire import Waiter, pause_left
from oelm_core.launch.lease import LeaseRecord
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Outcome, RunRecord, Worker, encode
from tests import needs


@pytest.fixture(autouse=True)
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OELM_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def test_a_device_is_held_by_one_and_free_again_after_release(leases: Path) -> None:
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    assert lease.take("GPU-1", "run-b") is None
    assert (lease.holder("GPU-1") or LeaseRecord()).run == "run-a"
    held.release()
    assert lease.holder("GPU-1") is None
    again = lease.take("GPU-1", "run-b")
    assert again is not None
    again.release()


def test_the_folder_and_files_let_every_user_in(leases: Path) -> None:
    before = os.umask(0o077)  # a strict user must not lock the others out
    try:
        held = lease.take("GPU-1", "run-a")
        queue.draw("run-a", "auto", 1, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(leases.stat().st_mode) == 0o1777
    assert stat.S_IMODE((leases / "line").stat().st_mode) == 0o1777
    assert stat.S_IMODE((leases / "GPU-1.lease").stat().st_mode) == 0o666
    assert held is not None
    held.release()


@needs.root
def test_users_share_leases_and_see_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = Path(tempfile.mkdtemp(prefix="oelm-leases-"))  # pytest's own folders are closed to others
    open_to_all.chmod(0o755)
    monkeypatch.setenv("OELM_LEASES", str(open_to_all / "leases"))
    mine = lease.take("GPU-1", "run-a")
    ended = lease.take("GPU-2", "run-a")
    assert mine is not None
    assert ended is not None
    ended.release()
    asking, answers = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            holder, other = lease.holder("GPU-1") or LeaseRecord(), lease.take("GPU-2", "run-b")
            ticket = queue.draw("run-b", "auto", 1, 1)
            queue.join(ticket, queue.read(ticket))
            told = [lease.take("GPU-1", "run-b"), holder.run, other is not None, len(queue.ahead_of(ticket))]
            os.write(answers, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(asking, 4096)) == [None, "run-a", True, 1]
    again = lease.take("GPU-2", "run-a")  # its holder, another user, is dead
    assert again is not None
    for held in (mine, again):
        held.release()
    shutil.rmtree(open_to_all)


def test_an_unlocked_lease_is_not_free_while_somebody_written_in_it_lives() -> None:
    worker = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    script = (
        "import sys; from oelm_core.launch import lease; from oelm_core.runs import process\n"
        "lease.take('GPU-1', 'run-a').record([process.identity(int(sys.argv[1]))])\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, str(worker.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert runner.stdout
    assert runner.stdout.readline() == b"held\n"
    runner.send_signal(signal.SIGKILL)  # drops its lock; its worker still saves
    runner.wait()
    assert lease.take("GPU-1", "run-b") is None
    worker.communicate()
    held = lease.take("GPU-1", "run-b")
    assert held is not None
    held.release()


def test_a_lease_of_another_boot_holds_nothing(leases: Path) -> None:
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    fcntl.flock(held.descriptor, fcntl.LOCK_UN)
    record = lease.read_line(leases / "GPU-1.lease", LeaseRecord)
    assert record is not None
    lease.write_line(held.descriptor, replace(record, boot_id="another"))
    again = lease.take("GPU-1", "run-b")
    assert again is not None
    again.release()


def test_a_record_cut_short_by_a_kill_is_still_read(leases: Path) -> None:
    leases.mkdir()
    (leases / "GPU-1.lease").write_text('{"run": "new"}\n": "remains of a longer one"}\n')
    assert lease.read_line(leases / "GPU-1.lease", LeaseRecord) == LeaseRecord(run="new")
    (leases / "GPU-2.lease").write_text('{"run": "ne')
    assert lease.read_line(leases / "GPU-2.lease", LeaseRecord) is None
    assert lease.holder("GPU-2") is None


def test_a_key_that_does_not_fit_hides_no_living_holder_and_no_ticket(leases: Path) -> None:
    path = lease.lease_path("GPU-1")
    me = process.me()
    holder = {"boot_id": me.boot_id, "boot_time": me.boot_time, "pids": [{"pid": me.pid, "started": me.started}]}
    path.write_text(json.dumps({**holder, "since": "noon", "run": 7}) + "\n")
    assert lease.take("GPU-1", "run-b") is None
    assert lease.holder("GPU-1") is not None

    first, second = queue.draw("run-a", "auto", 1, 1), queue.draw("run-b", "auto", 1, 1)
    first.write_text(json.dumps({**json.loads(first.read_text()), "cores": "all"}) + "\n")
    assert list(queue.ahead_of(second)) == [first, second]
    first.write_text("{half")
    assert list(queue.ahead_of(second)) == [second]
    assert first.exists()


def test_a_link_in_place_of_the_folder_is_refused(leases: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    leases.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="is a symbolic link of"):
        lease.lease_dir()


def tickets(*wanted: tuple[str, int, str]) -> dict[Path, queue.Ticket]:
    """(name, how many devices, the digits of those it may take) of each, first come first."""
    return {Path(name): queue.Ticket(name, needs=needs, allowed=tuple(allowed)) for name, needs, allowed in wanted}


def test_the_first_in_the_queue_takes_first_and_others_take_what_is_left() -> None:
    queued = tickets(("a", 1, "01"), ("b", 1, "01"), ("c", 1, "01"))
    assert queue.shares(queued, ["0", "1"]) == {Path("a"): ["0"], Path("b"): ["1"], Path("c"): None}


def test_a_run_wanting_two_is_not_overtaken_by_runs_wanting_one() -> None:
    queued = tickets(("two", 2, "01"), ("one", 1, "01"))
    assert queue.shares(queued, ["1"]) == {Path("two"): None, Path("one"): None}
    assert queue.shares(queued, ["0", "1"]) == {Path("two"): ["0", "1"], Path("one"): None}


def test_a_run_waiting_for_a_busy_card_holds_up_nobody_on_the_others() -> None:
    queued = tickets(("named", 1, "2"), ("any", 1, "012"))
    assert queue.shares(queued, ["0"]) == {Path("named"): None, Path("any"): ["0"]}


@given(
    wants=st.lists(st.tuples(st.integers(1, 3), st.sets(st.sampled_from("0123"), min_size=1)), max_size=8),
    free=st.sets(st.sampled_from("0123")),
)
def test_no_device_is_given_twice_and_nobody_gets_less_than_all_it_needs(
    wants: list[tuple[int, set[str]]], free: set[str]
) -> None:
    clipped = [(min(needs, len(allowed)), "".join(sorted(allowed))) for needs, allowed in wants]
    queued = tickets(*((str(place), *want) for place, want in enumerate(clipped)))
    granted = queue.shares(queued, sorted(free))
    given_out = [device for devices in granted.values() for device in devices or []]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= free
    for path, one in queued.items():
        devices = granted[path]
        assert devices is None or (len(devices) == one.needs and set(devices) <= set(one.allowed or ()))
    first = next(iter(queued.values()), None)
    if first and len(set(first.allowed or ()) & free) >= first.needs:
        assert granted[Path(first.run)] is not None  # the first is never kept waiting without need


def give(path: Path, runner: Worker) -> None:
    """Makes a ticket that runner's."""
    ticket = queue.read(path)
    ticket.pid, ticket.started, ticket.boot_time = runner.pid, runner.started, process.boot_time()
    path.write_bytes(encode(ticket) + b"\n")


def test_the_queue_is_in_order_of_arrival_and_forgets_the_dead() -> None:
    first, second = queue.draw("first", "cpu", 1, 1), queue.draw("second", "cpu", 1, 1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    dead = process.identity(child.pid)
    child.wait()
    queue.join(second, queue.read(second))
    assert [one.run for one in queue.ahead_of(second).values()] == ["first", "second"]
    give(first, dead)
    assert [one.run for one in queue.ahead_of(second).values()] == ["second"]
    assert not first.exists()


def test_a_frozen_runner_does_not_hold_up_the_queue_but_keeps_its_place() -> None:
    frozen = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    first, second = queue.draw("frozen", "cpu", 1, 1), queue.draw("second", "cpu", 1, 1)
    give(first, process.identity(frozen.pid))
    frozen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    assert [one.run for one in queue.ahead_of(second).values()] == ["second"]
    frozen.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, frozen.pid, os.WCONTINUED)
    assert [one.run for one in queue.ahead_of(second).values()] == ["frozen", "second"]
    frozen.communicate()


DIVIDED = [Card(0, "GPU-0", is_mig_parent=True), *(Card(0, f"MIG-{i}", mig=i) for i in range(2))]
CARDS = [Card(i, f"GPU-{i}", memory_used=0) for i in range(4)]


def test_devices_asked_for_become_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_request.resolve("auto", 1, None, CARDS).allowed == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    assert device_request.resolve("2,3", 2, None, CARDS) == ("cuda", 2, ("GPU-2", "GPU-3"))
    assert device_request.resolve("auto", 1, 1, [], lambda: None).kind == "cpu"
    assert device_request.resolve("cpu", 1, 1, CARDS).kind == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-3")
    assert device_request.resolve("auto", 1, None, CARDS).allowed == ("GPU-1", "GPU-3")


@pytest.mark.parametrize(
    ("asked", "per_run", "cards", "error", "words"),
    [
        ("7", 1, CARDS, NotFound, "this machine has 0, 1, 2, 3"),
        ("0", 1, [], NotFound, "no NVIDIA driver here"),
        ("2", 2, CARDS, BadInput, "--per-run 2 wants more"),
        ("fast", 1, CARDS, BadInput, "auto, cpu, or the numbers"),
        ("1,1", 1, CARDS, BadInput, "each card once"),
        ("1,GPU-1", 2, CARDS, BadInput, "each card once"),
        ("0", 1, DIVIDED, BadInput, "GPU 0 is divided; name one of its MIG instances: 0:0, 0:1"),
        ("cpu", 100_000, CARDS, BadInput, "more processes than the"),
        ("0", 1, [Card(0, error="GPU is lost")], NotFound, "GPU is lost"),
        ("0:0,0:1", 2, DIVIDED, BadInput, r"MIG instances \(0:0, 0:1\) cannot train together"),
        ("auto", 2, DIVIDED, BadInput, "leave out --per-run, or name whole cards"),
        ("0:0,1", 2, [*DIVIDED, Card(1, "GPU-1")], BadInput, r"MIG instances \(0:0\)"),
    ],
)
def test_devices_that_cannot_be_had_are_named_in_a_sentence(
    asked: str, per_run: int, cards: list[Card], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        device_request.resolve(asked, per_run, None, cards)


def test_a_run_on_several_devices_leaves_mig_instances_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    mixed = [*DIVIDED, Card(1, "GPU-1"), Card(2, "GPU-2")]
    assert device_request.resolve("auto", 2, None, mixed).allowed == ("GPU-1", "GPU-2")
    assert device_request.resolve("auto", 1, None, mixed).allowed == ("MIG-0", "MIG-1", "GPU-1", "GPU-2")


@pytest.mark.parametrize(
    ("made", "environment", "sign"),
    [
        ("dev/nvidia0", {}, "dev/nvidia0 is there"),
        ("proc/driver/nvidia/gpus/0000:01:00.0", {}, "0000:01:00.0 is there"),
        ("dev/null", {"SLURM_JOB_GPUS": "0"}, "SLURM_JOB_GPUS=0"),  # the first card's number
        ("dev/null", {"SLURM_GPUS_PER_NODE": "a100:2"}, "SLURM_GPUS_PER_NODE=a100:2"),
        ("dev/null", {"SLURM_GPUS_ON_NODE": "1"}, "SLURM_GPUS_ON_NODE=1"),
        ("dev/null", {"SLURM_JOB_GRES": "gres:gpu:a100:1"}, "SLURM_JOB_GRES=gres:gpu:a100:1"),
        ("dev/nvidiactl", {"SLURM_GPUS_ON_NODE": "0", "SLURM_JOB_GRES": "gres:nvme:1"}, None),
    ],
)
def test_auto_is_refused_where_anything_says_that_there_are_cards(
    tmp_path: Path, made: str, environment: dict[str, str], sign: str | None
) -> None:
    (tmp_path / made).mkdir(parents=True)

    def look() -> str | None:
        return sign_of_cards(tmp_path, environment)

    if sign is None:
        assert device_request.resolve("auto", 1, None, [], look).kind == "cpu"
        return
    with pytest.raises(NotFound, match=re.escape(sign)) as refused:
        device_request.resolve("auto", 1, None, [], look)
    assert "use --device cpu" in str(refused.value)
    assert device_request.resolve("cpu", 1, None, [], look).kind == "cpu"


@pytest.mark.parametrize(
    ("vendor", "kind", "driver", "environment", "found"),
    [
        ("0x10de", "0x030200", "nvidia", {}, True),
        ("0x10de", "0x030000", None, {}, True),  # the driver has let go of it
        ("0x10de", "0x030200", "vfio-pci", {}, False),  # passed on to a virtual machine
        ("0x10de", "0x040300", "nvidia", {}, False),  # a card's sound
        ("0x8086", "0x030000", None, {}, False),
        ("0x10de", "0x030200", "nvidia", {"NVIDIA_VISIBLE_DEVICES": "none"}, False),  # a container without cards
    ],
)
def test_the_drivers_own_files_are_a_sign_only_beside_a_card_of_its_own(
    tmp_path: Path, vendor: str, kind: str, driver: str | None, environment: dict[str, str], found: bool
) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if driver is not None:
        (tmp_path / "drivers" / driver).mkdir(parents=True)
        (device / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert sign_of_cards(tmp_path, environment) is None  # without the driver
    (tmp_path / "dev/nvidiactl").mkdir(parents=True)
    sign = sign_of_cards(tmp_path, environment)
    assert (sign or "").endswith("0000:01:00.0 are there") == found


def test_more_devices_than_there_are_is_refused_at_launch_for_auto_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(local, "sign_of_cards", lambda: None)
    monkeypatch.setattr(device_request, "probe", lambda patience: CARDS[1:3])
    local.check_request("auto", 2)
    with pytest.raises(BadInput, match="--per-run 3 wants more cards than the 2 of --device auto"):
        local.check_request("auto", 3)


@pytest.mark.parametrize(("sign", "errors"), [("SLURM_JOB_GPUS=2", ["asking the NVIDIA driver crashed"]), (None, [])])
def test_a_probe_that_crashes_is_no_machine_without_cards(
    monkeypatch: pytest.MonkeyPatch, sign: str | None, errors: list[str]
) -> None:
    monkeypatch.setattr(device_request.spawn, "output_of", lambda command, patience: b"")
    monkeypatch.setattr(device_request, "sign_of_cards", lambda: sign)
    cards = device_request.probe()
    assert [card.error for card in cards or []] == errors
    if cards:
        with pytest.raises(NotFound, match="no card answers here: asking the NVIDIA driver crashed; use --device cpu"):
            device_request.resolve("auto", 1, None, cards)


def test_somebody_elses_work_on_a_card_is_named() -> None:
    busy = replace(CARDS[2], processes=(CardProcess(4711, 18_200_000_000),))
    assert device_request.somebody_on(busy) == "GPU 2 used by another user, pid 4711, 17.0 GiB"
    unseen = replace(CARDS[2], memory_used=9_000_000_000)
    assert device_request.somebody_on(unseen) == "GPU 2 used by somebody unseen, 8.4 GiB"
    assert device_request.somebody_on(CARDS[2]) is None


def test_a_cpu_run_takes_its_threads_for_each_process_but_never_more_cores_than_there_are() -> None:
    there = len(os.sched_getaffinity(0))
    assert device_request.cores_wanted(1, 1) == 1
    assert device_request.cores_wanted(1, 2) == min(2, there)
    assert device_request.cores_wanted(1000, 1) == there


def test_the_pause_counts_from_when_the_device_was_given_back() -> None:
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    assert pause_left([held], 30.0) == 0.0  # nobody was on it before
    held.release()
    again = lease.take("GPU-1", "run-b")
    assert again is not None
    assert 20.0 < pause_left([again], 30.0) < 30.1
    again.release()


def test_a_card_is_suspect_until_trusted_or_until_a_reboot(monkeypatch: pytest.MonkeyPatch, leases: Path) -> None:
    assert suspects.suspicion("GPU-1") is None
    suspects.mark("GPU-1", "run-a", "uncorrectable ECC error")
    found = suspects.suspicion("GPU-1")
    assert found is not None
    assert (found.run, found.user, found.message) == ("run-a", process.user_name(), "uncorrectable ECC error")
    assert suspects.suspicion("GPU-2") is None
    with monkeypatch.context() as later:
        later.setattr(process, "boot_id", lambda: "after the reboot")
        assert suspects.suspicion("GPU-1") is None
    assert suspects.trust("GPU-1")
    assert not suspects.trust("GPU-1")
    assert suspects.suspicion("GPU-1") is None
    suspects.mark("GPU-1", "run-b", "again")
    assert suspects.suspicion("GPU-1") is not None


def test_of_several_cards_those_are_suspect_whose_rank_spoke_of_a_fault() -> None:
    broken, fine = Outcome("failed", "gpu_fault"), Outcome("failed", "error")
    assert suspects.failed_cards({0: fine, 1: broken}, ["GPU-0", "GPU-1"]) == ["GPU-1"]
    assert suspects.failed_cards({}, ["GPU-0", "GPU-1"]) == ["GPU-0", "GPU-1"]


def test_a_run_whose_cards_are_all_suspect_says_so_and_one_that_has_others_takes_them(leases: Path) -> None:
    for device in ("GPU-0", "GPU-2"):
        suspects.mark(device, "run-a", "ECC")
    said: list[str] = []

    class GivenUp(Exception):
        pass

    def rest(seconds: float) -> None:
        raise GivenUp

    def waiter(devices: str) -> Waiter:
        record = RunRecord(id="late", config={}, devices_asked=devices)
        return Waiter(record, RunFolder(leases), None, rest, said.append, look=lambda: CARDS)

    with pytest.raises(GivenUp):
        waiter("0,2").take(None, lambda devices: None)
    assert said[-1].startswith("all cards it may take are suspect: GPU 0 is suspect since run run-a failed on it at")
    assert "(`oelm gpus --trust 0`)" in said[-1]
    taken = waiter("0,1").take(None, lambda devices: None)
    assert taken.names == ["gpu:1"]
    taken.leases[0].release()


def test_the_reason_for_waiting_names_each_run_once_and_the_user_of_a_strangers(leases: Path) -> None:
    record = RunRecord(id="late", config={})
    waiter = Waiter(record, RunFolder(leases), None, lambda seconds: None, lambda words: None, look=lambda: CARDS)
    waiter.cards()
    mine = LeaseRecord(run="run-a", user=process.user_name())
    held = {"core-0": mine, "core-1": mine, "core-2": None, "core-3": mine}
    assert waiter._why(held, {}, 0) == "cores 0-1,3 used by run run-a"
    other = LeaseRecord(run="run-b", user="somebody-else")
    assert waiter._why({"GPU-0": mine, "GPU-1": other, "GPU-3": other}, {}, 1) == (
        "GPU 0 used by run run-a; GPUs 1,3 used by run run-b of somebody-else; behind 1 earlier run"
    )
