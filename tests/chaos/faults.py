"""Faults other than kills: what else a machine, a disk, a clock or an impatient person does to runs."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm_core.errors import LabError, Refused
from oelm_core.launch import lease, local
from oelm_core.runs import attempts, process
from oelm_core.runs.schema import Outcome, RunState
from oelm_core.runs.status import LIVE, Observer, run_status

if TYPE_CHECKING:
    from tests.chaos.monkey import Monkey

Fault = Callable[["Monkey"], bool]
DISK = 64 << 20
"""Bytes of the small disk that a lab is put on where we may mount one."""


@contextlib.contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """(a folder, whether it is a small disk of its own): as root a tmpfs, else a folder like any other."""
    folder = Path(tempfile.mkdtemp(prefix="oelm-chaos-"))
    options = ["-t", "tmpfs", "-o", f"size={DISK}", "oelm-chaos", str(folder)]
    mounted = os.getuid() == 0 and subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield folder, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def frozen(monkey: Monkey) -> bool:
    """SIGSTOP to runner or worker: the list says who stands still; then it goes on."""
    run = monkey.training()
    if run is None:
        return False
    state = monkey.lab.state(run)
    who, pid = monkey.dice.choice((("runner", state.pid), ("worker", state.workers[0].pid)))
    born = process.birth(pid or 0)
    if pid is None or born is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        said = monkey.soon(lambda: f"({pid}) is held by SIGSTOP" in (run_status(run).message or ""), 2.0)
        if not said and process.is_frozen(pid) and process.birth(pid) == born and run_status(run).state in LIVE:
            monkey.broken.append(f"{run.id}: its {who} is frozen and nobody says so: {run_status(run)}")
        os.kill(pid, signal.SIGCONT)
    return True


def full_disk(monkey: Monkey) -> bool:
    """No room for logs, metrics and checkpoints for a moment: of the whole lab, or of one worker by its limit."""
    if not monkey.small_disk:
        run = monkey.training()
        if run is None:
            return False
        with contextlib.suppress(ProcessLookupError, OSError):
            pid = monkey.lab.state(run).workers[0].pid
            size = run.metrics.stat().st_size if monkey.dice.random() < 0.5 else 0  # the log alone, or everything
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
            return True
        return False
    balloon = monkey.lab.folder / "balloon"
    file = os.open(balloon, os.O_WRONLY | os.O_CREAT)
    try:
        room = os.statvfs(monkey.lab.folder)
        with contextlib.suppress(OSError):
            os.posix_fallocate(file, 0, room.f_bavail * room.f_frsize)
        time.sleep(monkey.dice.uniform(0.1, 1.0))
    finally:
        os.close(file)
    balloon.unlink()
    return True


def cut_checkpoint(monkey: Monkey) -> bool:
    """The newest checkpoint is cut short: the one before it is taken, and the log says so."""
    run = monkey.training(steps=11)
    if run is None or not monkey.kill_all_of(run):
        return False
    made = sorted(run.checkpoints.glob("step-*"), key=lambda path: int(path.name[5:]))
    if len(made) < 2:
        return False
    newest = made[-1] / "state.json"
    os.truncate(newest, newest.stat().st_size // 2)
    monkey.cut[run.id] = made[-1].name
    return True


def many_resumes(monkey: Monkey) -> bool:
    """Of twenty resumes at once one is obeyed."""
    run = monkey.training()
    if run is None or not monkey.kill_all_of(run):
        return False
    before, done, lock = len(attempts.numbers(run)), [], threading.Lock()

    def resume() -> None:
        with contextlib.suppress(LabError):
            local.resume(run)
            with lock:
                done.append(1)

    threads = [threading.Thread(target=resume) for _ in range(monkey.resumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = len(attempts.numbers(run)) - before
    if made > 1 or len(done) > made:
        monkey.broken.append(f"{run.id}: {len(done)} of {len(threads)} resumes were obeyed, {made} attempts were made")
    monkey.resumes += made
    return True


def stop_at_the_end(monkey: Monkey) -> bool:
    """A stop that comes while the worker says its last word."""
    run = monkey.lab.start(steps=3, seed=monkey.dice.randrange(1000))
    if not monkey.soon(lambda: monkey.lab.step(run) >= 2 or (run.path / Outcome.FILE).exists(), 15.0):
        return False
    time.sleep(monkey.dice.uniform(0.0, 0.1))
    with contextlib.suppress(LabError):
        local.stop(run, now=monkey.dice.random() < 0.3)
    return True


def delete_a_live_one(monkey: Monkey) -> bool:
    """Deleting what runs is refused, and it goes on."""
    run = monkey.training()
    if run is None:
        return False
    try:
        local.delete(run)
    except Refused:
        return True
    monkey.broken.append(f"{run.id} was deleted while it ran")
    return True


def folder_removed(monkey: Monkey) -> bool:
    """`rm -rf` under a run: its processes end, its lease is free, and nothing comes back."""
    run = monkey.training()
    if run is None:
        return False
    while run.path.exists():
        shutil.rmtree(run.path, ignore_errors=True)
    monkey.removed.append(run.path)
    return True


def reboot(monkey: Monkey) -> bool:
    """Everything of a run is from another boot."""
    return _rewritten(monkey, "restarted", boot_id="another-boot")


def reused_pid(monkey: Monkey) -> bool:
    """The pids of a dead run are somebody else's now: they are neither taken for the run nor signalled."""
    return _rewritten(monkey, "gone", pid=monkey.bystander.pid)


def _rewritten(monkey: Monkey, said: str, **changes: Any) -> bool:
    """A run whose processes are dead, and whose files are made to name others."""
    run = monkey.training()
    if run is None or not monkey.kill_all_of(run) or run_status(run).state != "lost":
        return False
    _change(run.path / RunState.FILE, lambda content: content.update(changes))
    attempt = attempts.path_of(run, attempts.numbers(run)[-1])
    _change(attempt, lambda content: content["runner"].update(changes))
    for path in monkey.lab.leases.glob("*.lease"):
        record = lease.read_line(path, dict)
        if record and record.get("run") == run.id and "boot_id" in changes:
            path.write_text(json.dumps({**record, **changes}) + "\n")
    status = run_status(run)
    if status.state != "lost" or said not in (status.message or ""):
        monkey.broken.append(f"{run.id} should be lost ({said}): {status}")
    with contextlib.suppress(LabError):
        local.stop(run, now=True)
        monkey.broken.append(f"{run.id} is lost, and a stop was taken for it")
    if monkey.bystander.poll() is not None:
        monkey.broken.append(f"a process that is not of {run.id} was ended")
    return True


def clock_jump(monkey: Monkey) -> bool:
    """The clock is set by a day: what lives stays alive for a reader, and what holds a device holds it."""
    run = monkey.training()
    if run is None:
        return False
    jump = monkey.dice.choice((-86400.0, 3600.0, 86400.0))
    held, real = monkey.lab.held(), process.boot_time
    process.boot_time = lambda: real() + jump  # what setting the clock does
    try:
        status = run_status(run, Observer(process.host(), process.boot_id(), time.time() + jump))
        left = monkey.lab.held()
    finally:
        process.boot_time = real
    if status.state == "lost" and run_status(run).state in LIVE:
        monkey.broken.append(f"{run.id} is lost to a reader whose clock jumped by {jump:.0f} s: {status}")
    if set(held) - set(left) and set(held) <= set(monkey.lab.held()):
        monkey.broken.append(f"a clock that jumps frees {set(held) - set(left)}")
    return True


def _change(path: Path, how: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


FAULTS: tuple[Fault, ...] = (
    frozen,
    full_disk,
    cut_checkpoint,
    many_resumes,
    stop_at_the_end,
    delete_a_live_one,
    folder_removed,
    reboot,
    reused_pid,
    clock_jump,
)
"""Each does its harm once, or says that it found nobody to do it to."""
