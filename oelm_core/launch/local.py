"""Runs on this machine: start, stop, resume and delete them. Nothing here waits for a run or imports torch."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from oelm_core.devices.presence import sign_of_cards
from oelm_core.errors import BadInput, Refused, refusing
from oelm_core.home import runs_dir
from oelm_core.launch import device_request, queue
from oelm_core.launch.request import RunRequest, queued_state
from oelm_core.launch.spawn import SIGNALS, importable
from oelm_core.runs import attempts, ledger, process
from oelm_core.runs.folder import RunFolder, create, remove_tree
from oelm_core.runs.schema import Attempt, RunRecord, RunState, Stop
from oelm_core.runs.status import FINAL, LIVE, RunStatus, run_status
from oelm_core.runs.store import find_run, read_run

SECONDS_TO_CLAIM = 15.0

_runners: list[subprocess.Popen[bytes]] = []


def start(request: RunRequest, root: Path | None = None, *, checked: bool = False) -> RunFolder:
    """Makes a run folder and leaves a detached runner with it; returns at once.

    `checked`: its devices were, by `check_request`; of many runs that is done once.
    """
    root = (root or runs_dir()).absolute()
    if not checked:
        check_request(request.device, request.per_run)
    after = find_run(request.after, root).id if request.after else None
    record = request.record("local", after=after, beside=request.beside)
    folder = create(root, record, queued_state())
    ticket = None
    try:
        if not after:
            cores = device_request.cores_wanted(request.experiment.train.threads, request.per_run)
            beside = str(root / request.beside) if request.beside else None
            ticket = queue.draw(folder.id, record.devices_asked or "auto", request.per_run, cores, beside)
        _spawn_runner(folder, Path.cwd(), ticket)
    except BaseException:
        if ticket is not None:
            queue.leave(ticket)
        remove_tree(folder.path)  # no folder that pretends to be queued
        raise
    ledger.append(ledger.about_run("launched", folder.id, record), root)
    return folder


def check_request(device: str, per_run: int) -> None:
    """Refuses what can never start: a card that is not there, more cards than named, more processes than cores.

    Also auto where there are cards that the driver does not show. Without a sign of cards nobody asks the driver for
    a run on one device.
    """
    if per_run < 1:
        raise BadInput(f"--per-run {per_run}: a run needs at least one device.")
    names = device_request.parse_device(device)
    if names or (names is None and (per_run > 1 or sign_of_cards())):
        cards = device_request.probe(patience=3.0)
        if cards is not None:
            device_request.resolve(device, per_run, None, cards)
    elif names == []:
        device_request.resolve(device, per_run, None, [])


def stop(folder: RunFolder, now: bool = False) -> RunStatus:
    """Asks a run to save and end, or with `now` ends it at once. The runner does it; this returns at once."""
    if folder.read(RunState) is None or folder.path.is_symlink():
        raise Refused(f"{folder.path} is no run that can be stopped: its state.json is missing or cannot be read.")
    status = run_status(folder)
    request_stop(folder, status, now)
    _wake(folder, now)
    return status._replace(state="stopping") if status.state in LIVE else status


def request_stop(folder: RunFolder, status: RunStatus, now: bool) -> None:
    """Writes stop.json, which makes the end the user's wish; the runner looks for it every second."""
    if status.state in FINAL:
        raise Refused(f"{folder.id} is already over: {status.state}.")
    if status.state == "lost":
        why = f" ({status.message.rstrip('.')})" if status.message else ""
        raise Refused(f"{folder.id} is lost, so nothing of it runs{why}; resume or delete it.")
    made = attempts.numbers(folder)
    who = f"{process.user_name()}@{process.host()}"
    if not os.access(folder.path, os.W_OK | os.X_OK):
        whose = process.name_of(os.stat(folder.path).st_uid)
        raise Refused(f"{folder.path} belongs to {whose}, who does not let you write in it; nothing was stopped.")
    with refusing(f"cannot write {folder.path}/{Stop.FILE}"):
        folder.write(Stop(who, time.time(), now, attempt=made[-1] if made else 0))


def resume(folder: RunFolder, force: bool = False, per_run: int | None = None) -> None:
    """Continues a run that ended early, in its own folder, from its newest checkpoint.

    `per_run`: on another number of devices than before; None keeps it.
    """
    status = run_status(folder)
    if status.state in LIVE:
        raise Refused(f"{folder.id} is {status.state}; stop it before resuming it.")
    if status.state == "finished":
        raise Refused(f"{folder.id} has finished; there is nothing to resume.")
    if status.state == "unknown" and not force:
        raise Refused(f"{folder.id} may still run: {status.message or ''} --force resumes it all the same.")
    record = folder.read(RunRecord)
    if per_run is not None:
        check_request((record.devices_asked if record else None) or "auto", per_run)
    _refuse_leftovers(folder)
    cwd = Path((record.cwd if record else None) or ".")
    reading, writing = os.pipe()
    try:
        try:
            _spawn_runner(
                folder, cwd if cwd.is_dir() else Path.cwd(), None, force=force, ready=writing, per_run=per_run
            )
        finally:
            os.close(writing)
        answer = _answer(reading)
    finally:
        os.close(reading)
    if answer not in ("claimed", None):
        raise Refused(answer or f"the runner of {folder.id} did not come up; see {folder.log}.")
    if record is not None:
        ledger.append(ledger.about_run("resumed", folder.id, record), folder.path.parent)


def delete(folder: RunFolder) -> None:
    """Removes a run that is over. Never a live one, never anything outside the runs folder."""
    root = runs_dir().absolute()
    path = folder.path.absolute()
    if path.is_symlink() or path.parent.resolve() != root.resolve() or not path.is_dir() or path.name.startswith("."):
        raise Refused(f"{path} is not a run in {root}; it is left alone.")
    _refuse_if_kept_out(folder)
    status = run_status(folder)
    unclear = status.state == "unknown" and folder.read(RunState) is not None
    if status.state in LIVE or unclear:
        raise Refused(f"{folder.id} is {status.state}; only a run that is over can be deleted.")
    _refuse_leftovers(folder)
    record, run = folder.read(RunRecord), read_run(folder)
    if record is not None:
        # whoever resumes at this moment loses the claim
        attempts.claim(folder, Attempt(runner=process.me(), deleted=time.time()), force=True)
        end = ledger.LedgerEnd(status.state, status.reason, run.metric_name, run.metric_value)
        ledger.append(ledger.about_run("deleted", folder.id, record, end), root)  # first: nothing goes unseen
    grave = root / f".deleted-{folder.id}"
    with refusing(f"cannot delete {path}"):
        os.rename(path, grave)  # gone from every list in one step
    remove_tree(grave)


def _refuse_if_kept_out(folder: RunFolder) -> None:
    """Deletes all of a run or nothing: a folder in it that is closed to us would stay, without a name in any list."""
    for path, _, _ in os.walk(folder.path, onerror=_kept_out):
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            whose = process.name_of(os.stat(path).st_uid)
            raise Refused(f"{path} belongs to {whose}, who does not let you write in it; nothing was deleted.")
    try:
        (folder.path / RunState.FILE).read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:  # whether it runs cannot be told
        raise Refused(f"{folder.path}/{RunState.FILE} cannot be read: {error.strerror}; nothing was deleted.") from None


def _kept_out(error: OSError) -> None:
    raise Refused(f"cannot look into {error.filename}: {error.strerror}; nothing was deleted.")


def _spawn_runner(
    folder: RunFolder,
    cwd: Path,
    ticket: Path | None,
    *,
    force: bool = False,
    ready: int | None = None,
    per_run: int | None = None,
) -> None:
    """A runner in a session of its own, its signals held back until it can take them."""
    command = [sys.executable, "-m", "oelm_core.launch.runner", f"--run-folder={folder.path}"]
    command += [f"--ticket={ticket}"] if ticket else []
    command += ["--force"] if force else []
    command += [f"--ready={ready}"] if ready is not None else []
    command += [f"--per-run={per_run}"] if per_run is not None else []
    _runners[:] = [runner for runner in _runners if runner.poll() is None]  # reaps those that ended
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with refusing(f"cannot start the runner of {folder.id}"), open(folder.log, "ab") as log:
            runner = subprocess.Popen(
                command,
                cwd=cwd,
                env=importable(dict(os.environ)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=() if ready is None else (ready,),
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    _runners.append(runner)


def _wake(folder: RunFolder, now: bool) -> None:
    """Signals the runner, or the workers it left behind, if they are this machine's and still the same processes."""
    state = folder.read(RunState)
    if state is None or state.host != process.host() or state.boot_id != process.boot_id():
        return  # on another host the runner itself notices stop.json within a second
    if state.pid is not None and process.is_alive(state.pid, state.started, state.boot_time):
        if _is_of_run(state.pid, folder):
            _send(state.pid, signal.SIGTERM)
        return
    for worker in state.workers:
        if process.is_alive(worker.pid, worker.started, state.boot_time) and _is_of_run(worker.pid, folder):
            _send(worker.pid, signal.SIGKILL if now else signal.SIGTERM)


def _is_of_run(pid: int, folder: RunFolder) -> bool:
    """Whether a process carries the run's folder: whoever may write its files must not aim our signals elsewhere."""
    named = [os.fsdecode(part[13:]) for part in process.arguments(pid) if part.startswith(b"--run-folder=")]
    return any(os.path.realpath(path) == os.path.realpath(folder.path) for path in named)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)  # a frozen process must wake to hear it
    except (ProcessLookupError, PermissionError):
        pass  # gone already, or another user's: that runner sees stop.json within a second


def _refuse_leftovers(folder: RunFolder) -> None:
    deadline = time.monotonic() + 3.0  # a runner that has just written its last word needs a moment to go
    while (left := process.with_argument(f"--run-folder={folder.path}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        raise Refused(f"a process of {folder.id} still lives (pid {left[0]}); wait, or stop it with --now.")


def _answer(descriptor: int) -> str | None:
    """What the runner writes about its claim; "" when it died silently, None when it is slow."""
    ready, _, _ = select.select([descriptor], [], [], SECONDS_TO_CLAIM)
    return os.read(descriptor, 4096).decode("utf-8", "replace") if ready else None
