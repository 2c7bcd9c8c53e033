"""Several users on one machine: whose lease folder it is, a home that a group shares, file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from oelm_core import doctor
from oelm_core.errors import Refused
from oelm_core.launch import lease, local, queue, shared_folder
from oelm_core.launch.lease import LeaseRecord
from oelm_core.runs import attempts, ledger, process
from oelm_core.runs.folder import RunFolder, create, replace_file
from oelm_core.runs.metrics_file import MetricsWriter, cut_lines
from oelm_core.runs.schema import Attempt, ProcessIdentity, RunRecord, RunState, Worker, encode
from oelm_core.runs.store import list_runs
from oelm_core.training import checkpoint
from tests import needs

ANNA, BEN, CARL, GROUP = 54321, 54322, 54323, 54400


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder all users reach: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="oelm-users-"))
    folder.chmod(0o1777)
    monkeypatch.setenv("OELM_LEASES", str(folder / "leases"))
    monkeypatch.setenv("OELM_HOME", str(folder / "home"))
    yield folder
    shutil.rmtree(folder)


def by(user: int, act: Callable[[], Any], umask: int = 0o022, group: int | None = None) -> Any:
    """What `act` gives when that user does it; a refusal is its sentence."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([GROUP] if group is None else [group])
            os.setgid(user)
            os.setuid(user)
            os.umask(umask)
            try:
                answer = act()
            except Refused as refusal:
                answer = f"refused: {refusal}"
            os.write(writing, json.dumps(answer).encode())
        except BaseException as error:
            os.write(writing, json.dumps(f"broke: {error!r}").encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        found = answers.read()
    os.waitpid(child, 0)
    return json.loads(found)


def draw() -> bool:
    return queue.draw("run-b", "auto", 1, 1).exists()


# -- the lease folder --------------------------------------------------------------------------------------------------


@needs.root
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda path: path.mkdir(mode=0o700), "belongs to user 54321, who keeps others out (mode 700)"),
        (lambda path: path.mkdir(mode=0o755), "belongs to user 54321, who keeps others out (mode 755)"),
        (lambda path: path.symlink_to("/tmp"), "is a symbolic link of user 54321, not a folder"),
        (lambda path: path.touch(), "is a file of user 54321, not a folder"),
    ],
)
def test_a_lease_folder_that_another_made_first_is_refused_with_whose_it_is_and_who_can_help(
    place: Path, made: Callable[[Path], None], said: str
) -> None:
    by(ANNA, lambda: made(place / "leases"))
    for act in (draw, lambda: lease.take("GPU-1", "run-b") is not None, lambda: lease.holder("GPU-1") is None):
        refused = by(BEN, act)
        assert said in str(refused)
        assert "administrator" in refused
        assert "OELM_LEASES" in refused
    assert sorted(path.name for path in place.iterdir()) == ["leases"]  # no second place was made beside it


@needs.root
def test_a_strict_user_who_comes_first_keeps_nobody_out_and_holds_no_place_unseen(place: Path) -> None:
    assert by(ANNA, draw, umask=0o077)
    ticket = next((place / "leases" / "line").iterdir())
    assert by(BEN, lambda: (lease.take("GPU-1", "run-b") is not None, queue.read(ticket).run)) == [True, "run-b"]


@needs.root
def test_a_lease_names_who_truly_runs_whatever_its_record_says(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    assert by(BEN, lambda: (lease.holder("GPU-1") or LeaseRecord()).holder_name) == "root"
    held.release()


def test_a_holder_that_is_hidden_from_us_still_holds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc mounted with hidepid shows no processes of others."""
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    path = lease.lease_path("GPU-1")
    hidden = LeaseRecord(boot_id=process.boot_id(), run="run-a", user="anna", pids=[Worker(os.getpid(), 1.0)])
    path.write_bytes(encode(hidden) + b"\n")

    def not_ours(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(process, "stat_fields", lambda pid: None)
    monkeypatch.setattr(os, "kill", not_ours)
    assert (lease.holder("GPU-1") or LeaseRecord()).user == "anna"
    os.close(held.descriptor)  # and with it the lock goes: another process has that number now
    assert lease.holder("GPU-1") is None


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOLCK, "has no locks"), (errno.EOPNOTSUPP, "has no locks"), (errno.ESTALE, "lost the file")],
)
def test_without_locks_no_device_is_taken_no_run_is_queued_and_doctor_says_why(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for act in (draw, lambda: lease.take("GPU-1", "run-a")):
        with pytest.raises(Refused, match=f"cannot keep two runs off one card: .*{said}.* OELM_LEASES"):
            act()
    found = {check.name: check for check in [*doctor._leases(), *doctor._home()]}
    assert found["leases"].grade == "bad"
    assert said in found["leases"].found
    assert found["home"].grade == "warn"


def test_locks_that_keep_nobody_out_are_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, how: None)
    with pytest.raises(Refused, match="a lock there keeps nobody out"):
        draw()
    assert [path.name for path in (place / "leases").iterdir() if "lock" in path.name] == []


def test_a_record_that_cannot_be_read_is_no_free_device(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = lease.take("GPU-1", "run-a")
    assert held is not None
    os.close(held.descriptor)  # the lock is gone, who is written in it lives

    def stale(descriptor: int, size: int, at: int) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    with pytest.raises(Refused, match="stale handle"):
        lease.take("GPU-1", "run-b")


def test_the_kind_of_network_file_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/sdb1 /home/local xfs rw 0 0\n"
    monkeypatch.setattr(process, "read_text", lambda path: mounts)
    assert shared_folder.network_of(Path("/home/anna/.oelm")) == "nfs4"
    assert shared_folder.network_of(Path("/home/local/x")) is None
    assert shared_folder.network_of(Path("/homeless")) is None


# -- a home that a group shares ----------------------------------------------------------------------------------------


def shared_home(place: Path, mode: int = 0o2775) -> Path:
    runs = place / "home" / "runs"
    runs.mkdir(parents=True)
    for folder in (runs.parent, runs):
        os.chown(folder, ANNA, GROUP)
        folder.chmod(mode)
    return runs


def new_run(runs: Path, state: str = "stopped") -> str:
    record = RunRecord(preset="p", seed=1, config={"method": {"name": "m"}}, created=1.0)
    return create(runs, record, RunState(state=state, reason="user")).id


def mode_and_group(path: Path) -> tuple[int, int]:
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_gid


@needs.root
def test_files_that_another_of_the_group_replaces_stay_readable_to_all(place: Path) -> None:
    runs = shared_home(place)
    folder = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o002))

    def write_strictly() -> None:
        folder.write(RunState(state="stopped", reason="user", step=7))
        replace_file(folder.path / "notes.json", b"{}")
        replace_file(runs / ".index.json", b"{}")
        ledger.append(ledger.LedgerEvent(event="launched"), runs)

    assert by(BEN, write_strictly, umask=0o077) is None
    for name in ("state.json", "notes.json", "../.index.json", "../../ledger.jsonl", "../../ledger.head"):
        assert mode_and_group(folder.path / name) == (0o664, GROUP), name
    assert by(ANNA, lambda: [run.step for run in list_runs()]) == [7]


@needs.root
def test_what_a_resume_rewrites_and_adds_is_for_whom_the_run_was(place: Path) -> None:
    runs = shared_home(place)
    folder = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o002))

    def train(upto: int) -> None:
        writer = MetricsWriter(folder.metrics)
        writer.write("train", upto, loss=1.0)
        writer.close()

    by(ANNA, lambda: train(1), umask=0o002)
    by(BEN, lambda: cut_lines(folder.metrics, lambda line: True), umask=0o077)
    assert mode_and_group(folder.metrics) == (0o664, GROUP)
    state = checkpoint.CheckpointState(step=5)
    tensors = {"model": {"w": torch.zeros(2)}}
    by(ANNA, lambda: checkpoint.save(folder.checkpoints, state, tensors), umask=0o002)
    assert stat.S_IMODE((folder.checkpoints / "step-5").stat().st_mode) == 0o2775  # others of the group can delete it
    for name in ("state.json", "model.safetensors"):
        assert mode_and_group(folder.checkpoints / "step-5" / name) == (0o664, GROUP)


@needs.root
def test_nobody_deletes_or_stops_more_than_the_modes_let_him(place: Path) -> None:
    runs = shared_home(place)
    open_run = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o002))
    read_only = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o022))
    private = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o077))
    running = RunFolder(runs / by(ANNA, lambda: new_run(runs, "running"), umask=0o022))
    # who may rename in the folder of runs could make these vanish from every list
    assert "user 54321, who does not let you write" in by(BEN, lambda: local.delete(read_only))
    assert "nothing was deleted" in by(BEN, lambda: local.delete(private))
    assert "Permission denied" in by(CARL, lambda: local.delete(private), group=CARL)
    stopping = by(BEN, lambda: bool(local.stop(running)))
    assert "belongs to user 54321, who does not let you write in it; nothing was stopped" in stopping
    assert sorted(os.listdir(runs)) == sorted(run.id for run in (open_run, read_only, private, running))
    states = by(BEN, lambda: {run.id: [run.state, run.message] for run in list_runs()})
    assert states[private.id] == ["unknown", "unreadable: run.json, permission denied."]
    assert by(BEN, lambda: local.delete(open_run)) is None
    assert not open_run.path.exists()
    assert [name for name in os.listdir(runs) if name.startswith(".deleted")] == []


@needs.root
def test_root_who_writes_a_note_leaves_the_file_to_its_owner(place: Path) -> None:
    runs = shared_home(place, 0o755)
    folder = RunFolder(runs / by(ANNA, lambda: new_run(runs), umask=0o077))
    folder.write(RunState(state="stopped", step=3))
    assert by(ANNA, lambda: [run.step for run in list_runs()]) == [3]


def test_a_state_that_cannot_be_read_keeps_a_run_from_being_deleted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = place / "home" / "runs"
    folder = RunFolder(runs / new_run(runs, "running"))
    read = Path.read_bytes

    def stale(path: Path) -> bytes:
        if path.name == "state.json":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", stale)
    with pytest.raises(Refused, match="Stale file handle; nothing was deleted"):
        local.delete(folder)


@pytest.fixture
def stranger() -> Iterator[ProcessIdentity]:
    """A living process that is no run's."""
    child = subprocess.Popen(["sleep", "1000"])
    here, born = process.me(), process.identity(child.pid)
    yield ProcessIdentity(here.host, here.boot_id, here.boot_time, born.pid, born.started)
    child.kill()
    child.wait()


def aimed_at(runs: Path, at: ProcessIdentity) -> RunFolder:
    """A run whose files name that process as its runner and worker."""
    assert at.pid is not None
    folder = RunFolder(runs / new_run(runs, "running"))
    attempts.claim(folder, Attempt(runner=at))
    state = RunState(state="running", heartbeat=time.time(), workers=[Worker(at.pid, at.started)])
    state.host, state.boot_id, state.boot_time, state.pid, state.started = structs.astuple(at)
    folder.write(state)
    return folder


@pytest.mark.parametrize("now", [False, True])
def test_a_state_file_cannot_aim_our_stop_at_a_process_that_is_not_the_runs(
    place: Path, stranger: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    folder, sent = aimed_at(place / "home" / "runs", stranger), []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append(pid))
        with pytest.raises(Refused, match=f"pid {stranger.pid} is not this run's runner"):
            local.stop(folder, now)
    assert sent == []


def test_a_run_whose_files_name_a_strangers_process_is_lost_and_can_be_resumed_and_deleted(
    place: Path, stranger: ProcessIdentity
) -> None:
    folder = aimed_at(place / "home" / "runs", stranger)
    [run] = list_runs()
    assert (run.state, str(stranger.pid) in (run.message or "")) == ("lost", True)
    attempts.claim(folder, mine := Attempt(runner=process.me()))
    assert mine.attempt == 2
    mine.ended = time.time()
    attempts.update(folder, mine)
    local.delete(folder)
    assert not folder.path.exists()


def test_a_process_with_the_runs_folder_is_its_own_also_through_a_link_and_after_a_move(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, other = place / "home" / "runs" / "run-a", place / "copy" / "run-a"
    for folder in (here, other):
        folder.mkdir(parents=True)
    (place / "link").symlink_to(place / "home")
    named = {
        place / "link" / "runs" / "run-a": False,
        place / "gone" / "run-a": False,
        place / "gone" / "run-b": True,
        other: True,
    }
    for path, is_stranger in named.items():
        carried = [b"python", os.fsencode(f"--run-folder={path}")]
        monkeypatch.setattr(process, "arguments", lambda pid, carried=carried: carried)
        assert process.is_stranger(os.getppid(), here) is is_stranger, path
    monkeypatch.setattr(process, "arguments", lambda pid: [])  # hidden, or on its way out
    assert not process.is_stranger(os.getppid(), here)
