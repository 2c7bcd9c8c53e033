"""Stop, kill, resume, delete: to which runs each applies, what it will do in words, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oelm_core import formatting
from oelm_core.errors import LabError
from oelm_core.runs.status import LIVE
from oelm_tui.snapshots.run_view import RunView

WORDS = {
    "stop": "It finishes its step, writes a checkpoint and ends as stopped. Resume continues from there.",
    "kill": "All its processes end at once. What it did since its last checkpoint is lost.",
    "resume": "It continues in the same folder from its newest complete checkpoint, as a new attempt.",
    "delete": "Its folder, with metrics, samples and checkpoints, is removed. This cannot be undone.",
}
LETTERS = {"kill": "K", "delete": "D"}
"""What answers the question before it, where that is not y."""
NOT_SO = {
    "stop": "has already ended; only live runs can be stopped",
    "kill": "has already ended; only live runs can be killed",
    "resume": "cannot be resumed: it is live or has finished",
    "delete": "is live; stop it first, then delete it",
}


def allowed(what: str, view: RunView) -> bool:
    state = view.run.state
    if view.run.imported and what != "delete":
        return False
    if what in ("stop", "kill"):
        return state in LIVE or state == "unknown"
    if what == "resume":
        return state in ("failed", "stopped", "lost", "unknown")
    return state not in LIVE


def describe(what: str, views: Sequence[RunView]) -> str:
    """What will happen, or why it will not."""
    unfit = [view for view in views if not allowed(what, view)]
    if unfit and len(unfit) == len(views):
        return f"{unfit[0].id} {NOT_SO[what]}"
    lines = []
    for view in views[:6]:
        run = view.run
        lines.append(f"{run.id}: {run.state} at step {formatting.count(run.step)} of {formatting.count(run.total)}")
    if len(views) > 6:
        lines.append(f"and {len(views) - 6} more")
    return "\n".join([*lines, "", WORDS[what]])


def perform(what: str, views: Sequence[RunView], say: Callable[[str, bool], object]) -> None:
    """Runs in a thread; tells how each went."""
    from oelm_core.launch import launcher

    for view in views:
        try:
            if what in ("stop", "kill"):
                launcher.stop(view.run, now=what == "kill")
            elif what == "resume":
                launcher.resume(view.run)
            else:
                launcher.delete(view.run)
            say(f"{view.id}: {_DONE[what]}", False)
        except LabError as error:
            say(str(error), True)
        except OSError as error:
            say(f"{view.id}: {error}", True)


_DONE = {"stop": "asked to stop", "kill": "killed", "resume": "resumed", "delete": "deleted"}
