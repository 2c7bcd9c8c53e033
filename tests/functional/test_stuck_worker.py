"""A worker that does not even die of SIGKILL, as behind a driver that does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WATCH = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from oelm_core.launch import ending, runner
from oelm_core.launch.ranks import RankProcesses
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord, Stop

worker = subprocess.Popen(["sleep", "60"])
watching = runner.Runner(RunFolder(Path(sys.argv[1])), RunRecord(config={}), None)
sent, said = [], []
# no signal arrives: an uninterruptible sleep
watching.ranks = RankProcesses(send=lambda pid, number: sent.append(number))
watching.ranks.note(0, worker.pid)
watching.stop, watching.log_start = "now", 0
watching.folder.write(Stop("me@here", 0.0, now=True))
ending.SECONDS_TO_DIE = 0.3

def rest(seconds):
    time.sleep(0.01)
    if (watching.state.message or "").startswith("Killed"):
        said.append([watching.state.state, watching.state.message, len(sent)])
        os.kill(worker.pid, signal.SIGKILL)  # the driver answers at last

watching._listen = rest
end = watching._watch()
print(json.dumps({"pid": worker.pid, "said": said[0], "end": end}))
"""


def test_it_is_named_while_it_lasts_and_its_run_ends_when_it_is_gone(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WATCH, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    state, message, signals = found["said"]
    assert state == "stopping"
    assert f"worker {found['pid']}" in message
    assert signals < 10
    assert found["end"][:2] == ["stopped", "user"]
