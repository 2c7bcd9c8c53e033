"""Ending processes: told once, killed at a deadline, and named when even that does not end them."""

from __future__ import annotations

from oelm_core.runs import process

NEVER = float("inf")
SECONDS_TO_DIE = 5.0
"""A process that was killed so long ago and is still there is stuck in the kernel."""
SHORTEST, LONGEST = 0.05, 60.0
"""Seconds between two kills: at first short, for a child may have been born meanwhile."""


class Ending:
    """When the processes of a run are killed. Times are those of one steady clock."""

    def __init__(self) -> None:
        self.deadline = NEVER
        self._killed: float | None = None
        self._next, self._gap = 0.0, SHORTEST

    @property
    def is_set(self) -> bool:
        return self.deadline < NEVER

    def by(self, deadline: float) -> None:
        """Everybody is to be gone by then; the earliest deadline stands."""
        self.deadline = min(self.deadline, deadline)

    def kills(self, now: float) -> bool:
        """Whether to kill now: at the deadline, then ever more rarely. A kill that is pending needs no second one."""
        if now < self.deadline or now < self._next:
            return False
        self._killed = now if self._killed is None else self._killed
        self._next, self._gap = now + self._gap, min(2 * self._gap, LONGEST)
        return True

    def is_stuck(self, now: float) -> bool:
        return self._killed is not None and now - self._killed >= SECONDS_TO_DIE


def look(pid: int) -> str:
    """Why a process that lives does not answer, as far as the kernel tells; "" when it looks like any other."""
    state = (process.stat_fields(pid) or [""])[0]
    if state in ("T", "t"):
        return "it is held by SIGSTOP or a debugger"
    if state != "D":
        return ""
    where = process.read_text(f"/proc/{pid}/wchan").strip()
    place = f" ({where})" if where.strip("0") else ""
    return f"it sleeps in the kernel, uninterruptibly{place}, as behind a disk or a driver that does not answer"


def stuck_sentence(pids: list[int], names: dict[int, str]) -> str:
    """Names those who live on after a kill. `names`: who they are, by pid."""
    each = [f"{names.get(pid, 'process')} {pid}: {look(pid) or 'it does not end'}" for pid in pids]
    return f"Killed, but still there: {'; '.join(each) or 'a process that is ending'}. Its devices stay taken."
