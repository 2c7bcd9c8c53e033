"""Starting the worker: its command, its environment, and a gate it passes only once it is written down."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

WORKER = "oelm_core.training.worker"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD}
"""Blocked from before the runner's first line (the launcher sees to it) and taken one by one while it rests."""
RENDEZVOUS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""torch's own variables. `TORCHELASTIC_...`: left by a torchrun around us, they would change what these mean."""

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""How torch hands out a card's memory: every version reads the first name, newer ones the second too."""


def worker_command(run_folder: Path, worker: str | None) -> list[str]:
    """`worker` is a module, or the path of a script. Every rank has the same command."""
    worker = worker or WORKER
    target = [worker] if worker.endswith(".py") else ["-m", worker]
    return [sys.executable, *target, f"--run-folder={run_folder}"]


def importable(environment: dict[str, str]) -> dict[str, str]:
    """An environment in which `python -m oelm_core...` is this very package, whatever the working directory holds."""
    root = str(Path(__file__).resolve().parents[2])
    changed = {**environment, "PYTHONSAFEPATH": "1"}
    if "site-packages" not in root:
        others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
        changed["PYTHONPATH"] = os.pathsep.join([root, *others])
    return changed


def environment(kind: str, devices: list[str], threads: int | None) -> dict[str, str]:
    """What the worker is told about its devices: cards by UUID, for NVML's and CUDA's numbers differ."""
    inherited = {name: value for name, value in os.environ.items() if not _is_of_ranks(name)}
    variables = importable(inherited)
    variables["OELM_RUNNER_PID"] = str(os.getpid())
    variables["OELM_DEVICE"] = kind
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices) if kind == "cuda" else ""
    variables["PYTHONUNBUFFERED"] = "1"
    if kind == "cuda" and not any(name in variables for name in ALLOCATOR):
        variables[ALLOCATOR[0]] = "expandable_segments:True"  # batches of many sizes leave no gaps in a card's memory
    if threads:
        variables["OELM_THREADS"] = variables["OMP_NUM_THREADS"] = str(threads)
    return variables


def rank_environment(
    rank: int, ranks: int, port: int, *, local: int | None = None, here: int | None = None, address: str | None = None
) -> dict[str, str]:
    """What one of several ranks is told: torch's variables, and on one machine gloo's own way through it.

    On several nodes `local` is its number among the `here` ranks of its own one, and `address` that of the first.
    """
    numbers = (rank, local if local is not None else rank, ranks, here or ranks, address or "127.0.0.1", port)
    variables = {name: str(value) for name, value in zip(RENDEZVOUS, numbers, strict=True)}
    if address is None and "GLOO_SOCKET_IFNAME" not in os.environ and os.path.isdir("/sys/class/net/lo"):
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # whatever this machine's name may resolve to
    return variables


def hold_port() -> HeldPort:
    """A port for the first rank to listen on. As long as it is held, nobody is given it who asks for any free one.

    Bound, not listening, with SO_REUSEADDR as torch has it: the rank can bind it too and then listen.
    """
    import socket  # late: a waiting runner does without

    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return HeldPort(held.getsockname()[1], held)


class HeldPort(NamedTuple):
    number: int
    socket: object
    """Lets go of it when it is collected."""


def _is_of_ranks(name: str) -> bool:
    return name in RENDEZVOUS or name.startswith("TORCHELASTIC_")


def spawn(
    command: list[str],
    *,
    cwd: Path,
    environment: dict[str, str],
    log: Path | None,
    cores: Iterable[int],
    record: Callable[[int], None],
    keep: Iterable[int] = (),
    stdin: int | None = None,
    stdout: int | None = None,
) -> int:
    """Starts the worker and returns its pid. `record(pid)` is called before the worker runs a single line of its own.

    Killed anywhere in between, the runner leaves no unwatched worker: the child asks for SIGTERM at its parent's death
    and waits at the gate, which closes with the runner. `keep` are lease descriptors the worker holds on to. Without a
    `log` it writes to our standard error. `stdin` and `stdout` are for a process that the runner talks to.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphaned descendants become ours, whatever session they are in
    gate, key = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(key)
            streams = _Streams(log, stdin, stdout)
            _become_worker(gate, parent, command, cwd, environment, streams, list(cores), list(keep))
        except BaseException as error:
            os.write(2, f"cannot start {command[0]}: {error}\n".encode())
        finally:
            os._exit(127)
    os.close(gate)
    try:
        record(pid)
        os.write(key, b"g")
    finally:
        os.close(key)
    return pid


class _Streams(NamedTuple):
    """What becomes of a child's standard input, output and error."""

    log: Path | None
    stdin: int | None
    stdout: int | None

    def opened(self) -> tuple[int, int, int]:
        out = 2 if self.log is None else os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        reads = os.open(os.devnull, os.O_RDONLY) if self.stdin is None else self.stdin
        return reads, out if self.stdout is None else self.stdout, out


def _become_worker(
    gate: int,
    parent: int,
    command: list[str],
    cwd: Path,
    environment: dict[str, str],
    streams: _Streams,
    cores: list[int],
    keep: list[int],
) -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent or os.read(gate, 1) != b"g":
        os._exit(127)
    for target, source in enumerate(streams.opened()):
        os.dup2(source, target)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    if cores:
        os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # kept over exec: closing a terminal is no reason to end
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.chdir(cwd)
    os.execve(command[0], command, environment)


def output_of(command: list[str], patience: float) -> bytes | None:
    """What a command prints; None when it takes longer. By hand: `subprocess` costs a waiting runner a megabyte."""
    import select  # late, as ctypes: a run that waits for cores needs neither

    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        redirect = [
            (os.POSIX_SPAWN_DUP2, source, target) for source, target in ((nothing, 0), (writing, 1), (nothing, 2))
        ]
        pid = os.posix_spawn(command[0], command, importable(dict(os.environ)), file_actions=redirect, setsigmask=[])
    finally:
        os.close(writing)
        os.close(nothing)
    deadline, output = time.monotonic() + patience, b""
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([reading], [], [], left)
            chunk = os.read(reading, 1 << 16) if ready else b""
            if ready and not chunk:
                return output
            output += chunk
        return None
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the runner's own loop may have reaped it
            os.waitpid(pid, 0)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
