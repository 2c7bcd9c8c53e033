"""Makes the checks in a process of their own, one after another; one that crashes or hangs does not end the rest."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from oelm_core.launch.spawn import importable
from oelm_core.proof.checks import CHECKS
from oelm_core.proof.record import CheckResult

STARTING = 120.0
"""Seconds in which the process must begin its first check: libraries may come from a slow disk."""
COMMAND = [sys.executable, "-m", "oelm_core.proof"]
_LINE = msgspec.json.Decoder(CheckResult)


def make_checks(
    names: Sequence[str], kind: str, uuids: Sequence[str], known: Mapping[str, str] | None = None
) -> Iterator[CheckResult]:
    """Results as they come. kind: cuda or cpu; uuids: the cards that the checks may see; known: variables for them."""
    left = list(names)
    with tempfile.TemporaryDirectory(prefix="oelm-proof-", ignore_cleanup_errors=True) as scratch:
        while left:
            made = 0
            for result in _one_process(left, kind, uuids, Path(scratch), known or {}):
                made += 1
                yield result
            left = left[made:]


def _one_process(
    names: list[str], kind: str, uuids: Sequence[str], scratch: Path, known: Mapping[str, str]
) -> Iterator[CheckResult]:
    """At least one result, of the first check; not all of them where the process ended early."""
    environment = {
        **importable(dict(os.environ)),
        **known,
        "OELM_HOME": str(scratch / "home"),
        "OELM_LEASES": str(scratch / "leases"),
        "OELM_DEVICE": kind,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(uuids) if kind == "cuda" else "",
        "TOKENIZERS_PARALLELISM": "false",
    }
    log = scratch / "output.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *names],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,  # its ranks and compilers end with it
        )
    assert process.stdout is not None
    try:
        for number, name in enumerate(names):
            patience = CHECKS[name].seconds + (STARTING if number == 0 else 0.0)
            began = time.monotonic()
            line = _read_line(process.stdout, patience)
            seconds = time.monotonic() - began
            if line:
                yield _LINE.decode(line)
                continue
            if line == b"" and number and process.wait() == 0:
                return  # it left after a failure: the rest gets a new one
            if line is None:
                os.killpg(process.pid, signal.SIGKILL)
            how = f"not done after {patience:.0f} s" if line is None else _how_it_ended(process.wait())
            yield CheckResult(name, False, " ".join([how, *_last_words(log)]), "", CHECKS[name].fix, seconds=seconds)
            return
    finally:
        _end(process)


def _read_line(stream: IO[bytes], patience: float) -> bytes | None:
    """A whole line; b"" when the process closed its end, None when it took too long."""
    deadline, line = time.monotonic() + patience, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return None
            chunk = os.read(stream.fileno(), 1)  # unbuffered: nothing of the next line may be lost
            if not chunk:
                return b""
            line += chunk
    return line


def _how_it_ended(code: int) -> str:
    return (
        f"its process was killed by {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
    )


def _last_words(log: Path) -> list[str]:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return [f"({lines[-1][:200]})"] if lines else []


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it started."""
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(5 if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
