"""A process that has torch loaded and forks a worker on demand, so that a test can kill many without paying each start.

One JSON line in: {"folder": ..., "environment": {...}}; out: the child's pid, then {"ended": pid, "status": n}.
A forked worker is the real one in everything but its imports; SIGKILL ends it as it would any other. With
"runner": true it is the run's real runner, whose ranks are forked from it in the same way.
"""

from __future__ import annotations

import functools
import json
import os
import select
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests import rank_faults


def serve() -> None:
    from oelm_core.models.loading import load_libraries

    load_libraries()
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification, PreTrainedTokenizerFast  # noqa: F401

    from oelm_core.models import bert, gpt, peers  # noqa: F401 - loaded before the fork
    from oelm_core.training import loop, results, session, worker  # noqa: F401

    torch.set_num_threads(1)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    children: set[int] = set()
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0.02)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            children.add(_fork(json.loads(line)))
        for child in list(children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                children.discard(pid)
                print(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}), flush=True)


def _fork(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        print(json.dumps({"pid": pid}), flush=True)
        return pid
    code = 1
    argument = f"--run-folder={asked['folder']}"
    try:
        os.environ.update(asked["environment"])
        log = os.open(Path(asked["folder"]) / "training.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if asked.get("runner"):
            from oelm_core.launch import runner

            os.execve = _work_here  # type: ignore[assignment]
            code = runner.main([argument])
        else:
            code = _work(argument)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _work_here(path: str, command: list[str], environment: dict[str, str]) -> None:
    """What a rank does in place of becoming another program."""
    os.environ.clear()
    os.environ.update(environment)
    os._exit(_work(command[-1]))


def _work(argument: str) -> int:
    from oelm_core.training import pretrain_demo, worker

    if os.environ.get("PRETRAINING_STEPS"):
        pretrain_demo.STEPS = int(os.environ["PRETRAINING_STEPS"])
    if os.environ.get("RANK_FAULT"):
        rank_faults.install(os.environ["RANK_FAULT"])
    return worker.main([argument])


class Server(NamedTuple):
    process: subprocess.Popen[str]
    ended: dict[int, int]
    """Exit codes that nobody has asked for yet, by pid."""

    def answer(self, key: str) -> Any:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if "ended" in message:
                self.ended[message["ended"]] = message["status"]
            if key in message:
                return message[key]
        raise AssertionError("the warm worker is gone")


@functools.cache
def server() -> Server:
    """One for all tests of this process, which it ends with. It knows nothing of the test that came first."""
    ours = {name: value for name, value in os.environ.items() if name == "OELM_LEASES" or "OELM" not in name}
    command = [sys.executable, "-m", "tests.warm_worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = Server(subprocess.Popen(command, **pipes, text=True, env=ours, cwd=Path(__file__).parents[1]), {})
    started.answer("ready")
    return started


@dataclass(frozen=True)
class WarmWorker:
    """The test's end of it, with the environment of what it starts."""

    environment: dict[str, str]

    def start(self, folder: Path, *, runner: bool = False, **environment: str) -> int:
        stdin = server().process.stdin
        assert stdin is not None
        asked = {"folder": str(folder), "environment": {**self.environment, **environment}, "runner": runner}
        stdin.write(json.dumps(asked) + "\n")
        stdin.flush()
        return int(server().answer("pid"))

    def wait(self, pid: int) -> int:
        """The exit code, negative for a signal."""
        while pid not in server().ended:
            server().answer("ended")
        return server().ended.pop(pid)


if __name__ == "__main__":
    serve()
