"""Several cards at once: whether they reach each other, how fast they sum, and that a failing rank is named.

This process never opens a card itself: the ranks do, and leave them free for the next check.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import torch

from oelm_core.errors import LabError
from oelm_core.formatting import size
from oelm_core.launch import spawn
from oelm_core.proof.finding import NOT_ON_A_CPU, Finding, RanksSaid
from oelm_core.proof.subjects import folder_of
from oelm_core.runs import outcomes
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import RunRecord, RunState
from oelm_core.runs.status import FINAL

PATIENCE = 90.0
"""Seconds for ranks to start and answer."""
NAMED_WITHIN = 30.0
SLOW_LINK = 2e9
"""Bytes a second: below it most recipes are slower on two cards than on one."""


def world() -> int:
    """Cards that are seen here; two processes stand in for them on a CPU."""
    cards = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return len(cards) or 2


def peer_access(device: torch.device) -> Finding:
    if device.type != "cuda":
        return Finding(None, f"{NOT_ON_A_CPU}: processes share its memory anyway", "direct access")
    return judge_peers(ask_ranks("peers", 1).without, world())


def judge_peers(without: list[tuple[int, int]], cards: int) -> Finding:
    """`without`: pairs where the first card cannot reach the second. One way only is a fault; neither way is slow."""
    pairs = set(without)
    one_way = sorted(pair for pair in pairs if pair[::-1] not in pairs)
    bound = "each way or neither"
    if one_way:
        named = ", ".join(f"{one} -> {other}" for one, other in one_way)
        return Finding(False, f"one way only, not {named}", bound)
    if pairs:
        advice = "slower but right; NVLink, or ACS settings of the BIOS, would let cards reach each other"
        return Finding(True, f"{len(pairs) // 2} pairs of {cards} cards go through the host's memory", bound, advice)
    return Finding(True, f"all {cards} cards reach each other", bound)


def all_reduce(device: torch.device) -> Finding:
    return judge_sums(ask_ranks("all-reduce", world()), world(), device.type)


def judge_sums(found: RanksSaid, ranks: int, kind: str) -> Finding:
    bound = "right sums on every rank"
    if found.wrong:
        return Finding(False, f"{found.wrong} sums came out wrong", bound)
    words = f"{size(found.bandwidth)}/s, {found.latency * 1e6:.0f} us for a small sum, {ranks} ranks"
    slow = kind == "cuda" and found.bandwidth < SLOW_LINK
    advice = "slow: see `nvidia-smi topo -m`; runs side by side use these cards better than --per-run" if slow else ""
    figures = {"ranks": float(ranks), "latency": found.latency, "bandwidth": found.bandwidth}
    return Finding(True, words, bound, advice, figures)


def ask_ranks(task: str, ranks: int, patience: float = PATIENCE) -> RanksSaid:
    """Starts the ranks of a task and gives what the first one found; LabError with the words of one that failed."""
    port = spawn.hold_port()
    command = [sys.executable, "-m", "oelm_core.proof.rank_work", task]
    processes = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "OELM_RANK_TIMEOUT": f"{patience:.0f}",
                **spawn.rank_environment(rank, ranks, port.number),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    deadline = time.monotonic() + patience
    try:
        ended = [process.communicate(timeout=max(1.0, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        raise LabError(f"the ranks did not answer within {patience:.0f} s.") from None
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, (process, (_, errors)) in enumerate(zip(processes, ended, strict=True)):
        if process.returncode:
            last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise LabError(f"rank {rank} failed: {last}")
    return msgspec.json.decode(ended[0][0], type=RanksSaid)


def failing_rank(device: torch.device) -> Finding:
    """A real run by the real runner, whose second rank raises at its third step."""
    folder = folder_of("bert", "train.max_steps=2000")
    record = folder.read(RunRecord)
    assert record is not None
    cards = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    record.devices_asked = cards if device.type == "cuda" else "cpu"
    record.per_run, record.worker = world(), "oelm_core.proof.failing_worker"
    folder.write(record)
    command = [sys.executable, "-m", "oelm_core.launch.runner", f"--run-folder={folder.path}"]
    runner = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
    try:
        runner.wait(PATIENCE + NAMED_WITHIN)
    except subprocess.TimeoutExpired:
        runner.terminate()
        runner.wait(NAMED_WITHIN)
        return Finding(False, f"the run did not end within {PATIENCE + NAMED_WITHIN:.0f} s", _BOUND)
    return judge_end(folder)


_BOUND = f"rank 1 named within {NAMED_WITHIN:.0f} s"


def judge_end(folder: RunFolder) -> Finding:
    """By what the runner wrote down, and when the failing rank had said that it failed."""
    state = folder.read(RunState)
    said = outcomes.read_all(folder).get(1)
    if state is None or state.state not in FINAL or state.ended is None:
        return Finding(False, "the run has no end on record", _BOUND)
    message = state.message or ""
    if state.state != "failed" or "rank 1" not in message.lower():
        return Finding(False, f"{state.state}: {message or 'nothing was said'}", _BOUND)
    if said is None or said.t is None:
        return Finding(False, f"rank 1 did not say how it ended: {message}", _BOUND)
    seconds = state.ended - said.t
    return Finding(
        seconds <= NAMED_WITHIN, f"named after {seconds:.1f} s: {message}", _BOUND, figures={"seconds": seconds}
    )
