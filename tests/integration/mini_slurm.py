"""A real Slurm for tests: munged, a controller and two nodes with a fake GPU each, as children of the test process."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oelm_core.runs import process

NODES = ("alpha", "beta")
DAEMONS = ("munged", "slurmctld", "slurmd")


def missing() -> str | None:
    """Why Slurm cannot be started here, or None."""
    search = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    absent = [name for name in (*DAEMONS, "sbatch", "srun") if not shutil.which(name, path=search)]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: slurmctld slurmd slurm-client munge)"
    return None if os.getuid() == 0 else "slurmd starts jobs only as root"


class MiniSlurm:
    """Starts in two or three seconds; everything it writes is in one temporary folder."""

    def __init__(self) -> None:
        # Not pytest's own folder: munged wants every parent of its socket open to all.
        self.folder = Path(tempfile.mkdtemp(prefix="oelm-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.conf = self.folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.environment["PATH"] += ":/usr/sbin:/usr/local/sbin"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._controller_port, *self._node_ports = _free_ports(1 + len(NODES))

    def start(self) -> None:
        for name in ("state", "run", "log", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir(mode=0o755)
        self._write_configuration()
        self._start_munged()
        self.start_controller()
        for node in NODES:
            self._start_node(node)
        self.wait_until(self._nodes_are_idle, "both nodes idle")

    def stop(self) -> None:
        """Ends every job, then every daemon, and removes the folder."""
        if self._alive("slurmctld"):
            self.call("scancel", "--full", "--user", getpass.getuser())
            self.wait_until(lambda: not self.call("squeue", "-h").strip(), "an empty queue", complain=False)
        for name in list(self._running):
            self._end(name, signal.SIGTERM)
        for pid in self._left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_controller(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D"])
        self.wait_until(lambda: "UP" in self.call("scontrol", "ping"), "slurmctld up")

    def kill_controller(self) -> None:
        """As if its machine had gone, once it has written down what it did: it does so within five seconds.

        Without that it gives the ids of jobs it forgot to new ones, and drains the node that still has the old ones.
        """
        asked = time.time()
        saved = self.folder / "state" / "job_state"
        self.wait_until(lambda: saved.exists() and saved.stat().st_mtime > asked, "state", 6.0, complain=False)
        self._end("slurmctld", signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """As if its power had gone: nothing on it lives on, and nobody is told."""
        daemons = self._holding(self.folder / "log" / f"slurmd-{node}.log")
        for pid in [*daemons, *(one for daemon in daemons for one in process.descendants(daemon))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(f"slurmd-{node}", signal.SIGKILL)

    def replace_node(self, node: str) -> None:
        """The administrator has seen it, and it is back, once nothing of a lost start is left that would end a new one:
        neither words still on their way to the node, nor what Slurm took back in the same second."""
        self.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test", check=True)
        down = time.time()
        self.wait_until(lambda: time.time() > int(down) + 2 and self._has_said_all(), "silence")
        self._start_node(node)
        self.call("scontrol", "update", f"NodeName={node}", "State=RESUME")  # it may be back by itself

    def _has_said_all(self) -> bool:
        said = dict(line.split(":", 1) for line in self.call("sdiag").splitlines() if line.startswith("Agent "))
        return {int(said[what]) for what in ("Agent queue size", "Agent count")} == {0}

    def _start_node(self, node: str) -> None:
        self._spawn(f"slurmd-{node}", ["slurmd", "-D", "-N", node])

    def call(self, *argv: str, check: bool = False) -> str:
        """The output of a Slurm command; its errors with it."""
        ended = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=30)
        if check and ended.returncode:
            raise AssertionError(f"{' '.join(argv)}: {ended.stderr}")
        return ended.stdout + ended.stderr

    def wait_until(
        self, true: Callable[[], object], what: str, seconds: float = 30.0, *, complain: bool = True
    ) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                if complain:
                    raise AssertionError(f"no {what} within {seconds:g} s\n{self.story()}")
                return
            time.sleep(0.1)

    def story(self) -> str:
        """The end of every log, for a test that failed."""
        logs = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def _nodes_are_idle(self) -> bool:
        return self.call("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split() == ["idle"] * len(NODES)

    def _left_behind(self) -> list[int]:
        """Steps that never reached the controller with their last word go on trying; they hold a log of ours open."""
        return sorted(self._holding(self.folder) - {os.getpid()})

    def _holding(self, path: Path) -> set[int]:
        """Processes with this file, or a file in this folder, open."""
        found = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if Path(os.readlink(link)).is_relative_to(path):
                    found.add(int(link.parts[2]))
        return found

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        run = self.folder / "run"
        paths = {"key-file": key, "socket": run / "munge.sock", "pid-file": run / "munged.pid"}
        paths |= {"log-file": self.folder / "log" / "munged.log", "seed-file": run / "munged.seed"}
        self._spawn("munged", ["munged", "--foreground", *(f"--{name}={path}" for name, path in paths.items())])
        self.wait_until((run / "munge.sock").exists, "munge socket")

    def _write_configuration(self) -> None:
        user, run, log = getpass.getuser(), self.folder / "run", self.folder / "log"
        settings = {
            "ClusterName": "mini",
            "SlurmctldHost": f"{socket.gethostname().split('.')[0]}(127.0.0.1)",
            "SlurmUser": user,
            "SlurmdUser": user,
            "SlurmctldPort": self._controller_port,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            # five seconds are the least: a requeued job waits one more before it starts again
            "AuthInfo": f"socket={run / 'munge.sock'},cred_expire=5",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool-%n",
            "SlurmctldPidFile": run / "slurmctld.pid",
            "SlurmdPidFile": run / "slurmd-%n.pid",
            "SlurmctldLogFile": log / "slurmctld.log",
            "SlurmdLogFile": log / "slurmd-%n.log",
            # no cgroups, no accounting: what a container and many a small cluster offer
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "SlurmdParameters": "config_overrides",  # eight cores a node, whatever the machine has
            "JobRequeue": 1,
            "KillWait": 3,
            "MessageTimeout": 3,
            "ReturnToService": 2,
            "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        for node, port in zip(NODES, self._node_ports, strict=True):
            lines.append(
                f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={node} Port={port} Sockets=1 CoresPerSocket=8 "
                "ThreadsPerCore=1 RealMemory=1000 Gres=gpu:1 State=UNKNOWN"
            )
        lines.append(f"PartitionName=gpu Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP")
        lines.append(f"PartitionName=short Nodes={NODES[0]} MaxTime=5 State=UP")
        lines.append(f"PartitionName=closed Nodes={NODES[0]} State=DOWN")
        self.conf.write_text("\n".join(lines) + "\n")
        # character devices every container has; nobody opens them
        cards = zip(NODES, ("/dev/null", "/dev/zero"), strict=True)
        (self.folder / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu File={file}\n" for node, file in cards)
        )

    def _spawn(self, name: str, command: list[str]) -> None:
        with open(self.folder / "log" / f"{name}.out", "ab") as out:
            self._running[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=_die_with_me
            )

    def _alive(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def _end(self, name: str, number: int) -> None:
        process = self._running.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _die_with_me() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: a killed pytest leaves no daemons


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
