"""Who a process is: host, boot, pid and start time, so that a reused pid or a reboot never revives a run."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from pathlib import Path

from oelm_core.runs.schema import ProcessIdentity, RunState, Worker

TICKS = os.sysconf("SC_CLK_TCK")
_RUN_FOLDER = b"--run-folder="


@functools.lru_cache(maxsize=1)
def host() -> str:
    return os.uname().nodename


def user_name() -> str:
    """Ours. The environment's word counts only for who is in no table here: under sudo or su it may be another's."""
    return _in_table(os.getuid()) or os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())


def name_of(user: int) -> str:
    """A user by name, for a sentence; by number where nobody knows the name."""
    import pwd  # late: asking the system loads its libraries

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def owner(pid: int) -> str | None:
    """Whose process it is; None when it is gone or hidden from us."""
    try:
        user = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    return _in_table(user) or name_of(user)


def _in_table(user: int) -> str | None:
    """From /etc/passwd alone: asking the system for a name loads its libraries into every waiting runner."""
    lines = (line.split(":") for line in read_text("/etc/passwd").splitlines())
    return next((parts[0] for parts in lines if len(parts) > 2 and parts[2] == str(user)), None)


@functools.lru_cache(maxsize=1)
def boot_id() -> str:
    """Changes at every reboot; "" where the kernel does not say."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def boot_time() -> float:
    """The kernel's idea of when it booted, in epoch seconds. It moves when the clock is set; births do not."""
    return float(kernel_number("/proc/stat", "btime ") or 0)


def since_boot() -> float:
    """Seconds since boot, suspended time included: a clock nobody can set."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def birth(pid: int) -> float | None:
    """When a process was born, in seconds since boot; None when it is dead or a zombie."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X", "x"):
        return None
    return int(fields[19]) / TICKS


def is_hidden(pid: int) -> bool:
    """Whether a process is there that this user is not shown (/proc mounted with hidepid)."""
    if pid <= 0 or stat_fields(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def is_frozen(pid: int) -> bool:
    """Held by SIGSTOP or a debugger."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] in ("T", "t")


def identity(pid: int) -> Worker:
    """A process as written into files; `started` is exact together with `boot_time`, None when it is gone."""
    born = birth(pid)
    return Worker(pid, None if born is None else round(boot_time() + born, 2))


def me() -> ProcessIdentity:
    """The whole identity of this process."""
    own = identity(os.getpid())
    return ProcessIdentity(host(), boot_id(), boot_time(), own.pid, own.started)


def is_alive(pid: int | None, started: float | None, booted: float | None = None) -> bool:
    """Whether the process of this boot with that pid still is the one that started then.

    `booted` is the `boot_time` written beside `started`: their difference survives a clock that jumps. Without it
    two seconds of slack are allowed.
    """
    if pid is None or pid <= 0:
        return False
    born = birth(pid)
    if born is None or started is None:
        return False
    if booted is not None:
        return abs(born - (started - booted)) < 0.05
    return abs(boot_time() + born - started) < 2.0


def anyone_alive(machine: ProcessIdentity | RunState, processes: Iterable[Worker | ProcessIdentity]) -> bool:
    """Whether any of the processes lives, given the host and boot that were written down with them."""
    if machine.host != host() or machine.boot_id != boot_id():
        return False
    return any(is_alive(one.pid, one.started, machine.boot_time) for one in processes)


def ancestors(pid: int | None = None) -> list[int]:
    """The processes above one (this one unless said), nearest first."""
    found, pid = [], pid or os.getpid()
    while pid > 1 and (fields := stat_fields(pid)) is not None:
        pid = int(fields[1])
        found.append(pid)
    return found


def descendants(root: int | None = None) -> list[int]:
    """Every process below `root` (this one unless said), zombies left out, nearest first."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid in everyone():
        fields = stat_fields(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            if fields[0] in ("Z", "X", "x"):
                dead.add(pid)
    found, level = [], children.get(os.getpid() if root is None else root, [])
    while level:
        found += [pid for pid in level if pid not in dead]
        level = [child for pid in level for child in children.get(pid, [])]
    return found


def with_argument(argument: str) -> list[int]:
    """Live processes that carry exactly this argument: runners and workers carry --run-folder=..."""
    wanted = os.fsencode(argument)
    return [pid for pid in everyone() if wanted in arguments(pid) and pid != os.getpid() and birth(pid) is not None]


def is_stranger(pid: int, run: Path) -> bool:
    """Whether a process is surely none of a run's: it was started for something else, or for another folder.

    What cannot be told counts as the run's own: a command line that is hidden, a folder that was moved meanwhile.
    """
    if pid == os.getpid() or not any(carried := arguments(pid)):
        return False
    named = [os.fsdecode(part[len(_RUN_FOLDER) :]) for part in carried if part.startswith(_RUN_FOLDER)]
    return not any(_may_be(Path(path), run) for path in named)


def _may_be(named: Path, run: Path) -> bool:
    try:
        return os.path.samefile(named, run)
    except OSError:
        return named.name == run.name


def arguments(pid: int) -> list[bytes]:
    """What a process was started with; nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def everyone() -> list[int]:
    """Every process of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; the second may hold spaces and brackets."""
    text = read_text(f"/proc/{pid}/stat")
    end = text.rfind(")")
    return text[end + 2 :].split() if end > 0 else None


def kernel_number(path: str, key: str) -> int | None:
    """What stands behind a key in a table of the kernel's; None where it does not say."""
    return next((int(line.split()[1]) for line in read_text(path).splitlines() if line.startswith(key)), None)


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
