"""A word when a run has ended: the user's own command, `notify:` of `$OELM_HOME/settings.yaml`.

The run's own runner runs it, so it comes for detached runs too, with no screen open. A run whose runner did not live to
do it is told by a screen that sees it lost. Each attempt is told once; how that went is kept in `notify-N.json`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from oelm_core.errors import LabError
from oelm_core.runs.folder import RunFolder, numbered, read_record, write_record
from oelm_core.runs.schema import Notice
from oelm_core.runs.store import Run, read_run
from oelm_core.settings import read_settings, settings_file

SECONDS = 30.0
"""What does not answer by then has failed."""
TEMPLATE = """\
# What to run when a run has ended. It is told of the run by OELM_RUN, OELM_STATE (finished, failed, stopped, lost),
# OELM_REASON, OELM_RESULT, OELM_MESSAGE and OELM_FOLDER. Take the # off one line, or write your own; ^n tries it.
# notify: echo "$(date) $OELM_RUN $OELM_STATE $OELM_RESULT" >> ~/oelm-ended.txt
# notify: echo "$OELM_MESSAGE" | mail -s "$OELM_RUN $OELM_STATE $OELM_RESULT" "$USER"
# notify: curl -fsS -d "$OELM_RUN $OELM_STATE $OELM_RESULT" ntfy.sh/YOUR-TOPIC
#
# Where the curves of every run go, too: tensorboard, wandb, trackio, mlflow (docs/mirror.md).
# report_to: [tensorboard]
"""


def command_of(home: Path) -> str | None:
    """The user's command; None where there is none. BadInput for a file that cannot be read."""
    return read_settings(home).notify


def tell(folder: RunFolder) -> Notice | None:
    """Runs the command for a run that has ended, unless somebody has; None where there was nothing to do."""
    home = folder.path.parent.parent
    if not settings_file(home).exists():
        return None
    run = read_run(folder)
    file = folder.path / f"notify-{run.attempt}.json"
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))  # of two who would tell, one does
    except FileExistsError:
        return None
    notice = attempt_to_tell(run, home)
    with contextlib.suppress(OSError):
        write_record(file, notice)
    return notice if notice.command or notice.problem else None


def attempt_to_tell(run: Run, home: Path) -> Notice:
    """Runs the command now, and says how it went."""
    notice = Notice(state=run.state, t=time.time())
    try:
        notice.command = command_of(home)
        if notice.command is not None:
            notice.problem = _run(notice.command, run)
    except LabError as error:
        notice.problem = str(error)
    except Exception as error:  # whatever it was: what is not told must be said
        notice.problem = f"notify could not be run: {type(error).__name__}: {error}"
    return notice


def notice_of(folder: RunFolder) -> Notice | None:
    """How telling of the newest attempt went; None before it was told, or where nobody asked for it."""
    numbers = numbered(folder.path, "notify-", ".json")
    return read_record(folder.path / f"notify-{max(numbers)}.json", Notice) if numbers else None


def _run(command: str, run: Run) -> str | None:
    import subprocess

    from oelm_core import formatting

    result = "" if run.metric_value is None else formatting.metric(run.metric_name, run.metric_value)
    told = {
        "OELM_RUN": run.id,
        "OELM_STATE": run.state,
        "OELM_REASON": run.reason or "",
        "OELM_RESULT": result,
        "OELM_MESSAGE": run.message or "",
        "OELM_FOLDER": run.path,
    }
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),  # a runner has most of them blocked
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"notify did not answer in {SECONDS:.0f} s: {command}"
    if done.returncode == 0:
        return None
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"notify failed with exit code {done.returncode}: {words[-1] if words else command}"
