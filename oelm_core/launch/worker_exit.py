"""How a worker ended, in one state, reason and sentence: what its ranks said, else exit code, signal and log."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oelm_core.devices.card_errors import card_error
from oelm_core.runs import outcomes, process
from oelm_core.runs.schema import Outcome
from oelm_core.runs.status import RunStatus, status_of
from oelm_core.small_files import open_plain_file

REQUEUE_EXIT_CODE = 75
DISK_EXIT_CODE = 74
"""A worker that found no room even for its last word."""
UNSAVED = "Ended without saving the steps since its newest checkpoint."
SEEN_LATE = 2.0
"""Seconds by which the runner may learn of a death later than the ranks that it makes fail."""
OF_PEERS = frozenset({"SIGABRT", "SIGTERM"})
"""Signals that a rank may die of because another one is gone."""


class RankEnd(NamedTuple):
    """The end of one rank's process as its runner saw it."""

    code: int
    """Exit code, negative for a signal."""
    at: float = 0.0
    """Epoch seconds."""
    told: bool = False
    """Whether the runner had told it to end."""


class FailedRank(NamedTuple):
    """The rank because of which the others are ended while the run still lives."""

    rank: int
    sentence: str


def failed_rank(said: Mapping[int, Outcome], silent: Sequence[int]) -> FailedRank | None:
    """One that failed by itself, else one that is gone without a word, else one that lost another; None: all are well.

    `silent`: ranks that have ended without an outcome.
    """
    failed = [(one.t or 0.0, rank) for rank, one in said.items() if one.state == "failed" and not one.consequence]
    if failed:
        rank = min(failed)[1]
        return FailedRank(rank, f"Rank {rank} failed; the others are being ended.")
    if silent:
        return FailedRank(silent[0], f"Rank {silent[0]} is gone; the others are being ended.")
    left = next((rank for rank, one in said.items() if one.state == "failed"), None)
    return None if left is None else FailedRank(left, f"Rank {left} lost touch with another; all are being ended.")


def judge(
    ends: Mapping[int, RankEnd],
    said: Mapping[int, Outcome],
    *,
    stop_asked: bool,
    signalled: bool,
    kernel_killed: bool,
    log_tail: str = "",
    ranks: int = 1,
    on_cards: bool = True,
    looks: Mapping[int, str] | None = None,
    trouble: RunStatus | None = None,
) -> RunStatus:
    """The end of an attempt, from the ends and last words of its ranks: one of them for a run of one process.

    `stop_asked`: a stop.json is there. `signalled`: the runner itself was told to end. `kernel_killed`: the
    out-of-memory killer struck meanwhile. `ranks`: of the whole run, also those that srun started elsewhere.
    `on_cards`: whether the log may speak of a card. `looks`: how ranks looked when another gave up on them. `trouble`:
    what befell whole nodes, which explains ranks that were left alone.
    """
    asked = stop_asked or signalled
    rank, word = outcomes.deciding(said) or (0, None)
    if word is not None and word.consequence and asked:
        word = None  # somebody ended the ranks, and one was gone before another
    if trouble is not None and not asked and (word is None or word.consequence or word.state == "stopped"):
        return trouble
    death = _first_death(ends, said)
    if death is not None and (word is None or _came_first(ends[death], word, asked)):
        rank, word = death, None
    elif word is not None and word.consequence:
        return _blame(word, [one for one in range(ranks) if one not in said], ends, looks or {})
    own = status_of(word)
    if own and own.state == "stopped" and own.reason in ("user", "signal"):
        return own._replace(reason="user" if stop_asked else "signal")  # only a stop.json makes it the user's wish
    if own:
        return own
    code = ends[rank].code if rank in ends else None
    killed_by = signal_of(code)
    who = f"Rank {rank}" if len(ends) > 1 else "The worker"
    if killed_by == "SIGKILL" and kernel_killed and not stop_asked:
        return RunStatus(
            "failed", "oom", f"The kernel killed {_in_sentence(who)} because the machine's memory was full."
        )
    if stop_asked:
        return RunStatus("stopped", "user", UNSAVED if killed_by else None)
    if signalled and code != 0:
        return RunStatus("stopped", "signal", "The runner was told to end.")
    card = card_error(log_tail)
    if card and not on_cards and card.reason != "oom":
        card = None
    if card and code not in (0, None, REQUEUE_EXIT_CODE) and killed_by != "SIGKILL":
        # a driver or NCCL's watchdog ended it before it could say anything
        return RunStatus("failed", card.reason, f"{card.words}; {card.advice or 'lower train.batch_size'}.")
    if killed_by:
        return RunStatus("failed", "signal", f"{who} was killed by {killed_by}.")
    if code == DISK_EXIT_CODE:
        return RunStatus(
            "failed", "disk", "The disk is full; the last checkpoint is still usable. Free some and resume it."
        )
    if code == REQUEUE_EXIT_CODE:
        return RunStatus("stopped", "preempted", "Saved and ended on SIGUSR2; resume it.")
    words = last_words(log_tail)
    if code == 0:
        return RunStatus("failed", "error", f"{who} ended without saying how it went.")
    return RunStatus("failed", "error", f"{who} ended with exit code {code}{': ' + words if words else '.'}")


def _first_death(ends: Mapping[int, RankEnd], said: Mapping[int, Outcome]) -> int | None:
    """The first rank that was gone without a word before anybody told it to end."""
    dead = [(end.at, rank) for rank, end in ends.items() if rank not in said and not end.told]
    return min(dead)[1] if dead else None


def _came_first(death: RankEnd, word: Outcome, asked: bool) -> bool:
    """Whether a silent death explains another rank's words, and not the other way round."""
    if word.state != "failed":
        return word.state == "stopped" and not asked  # a rank says in good faith that it was told to stop: by us
    late = 0.0 if signal_of(death.code) in OF_PEERS else SEEN_LATE
    return word.consequence or death.at - late < (word.t or 0.0)


def _blame(word: Outcome, silent: list[int], ends: Mapping[int, RankEnd], looks: Mapping[int, str]) -> RunStatus:
    """A rank failed because of another: of the one that said nothing, where there is one.

    That one hung if others waited for it in vain; one that closed its connection had come to an end of its own.
    """
    if not silent:
        return RunStatus("failed", word.reason, word.message)
    rank = silent[0]
    look, words = looks.get(rank), f" {word.message or ''}".rstrip()
    if rank in ends and (look or word.reason == "hang"):
        return RunStatus("failed", "hang", f"Rank {rank} did not answer{': ' + look if look else ''}.{words}")
    code = ends[rank].code if rank in ends else None
    how = f"ended with exit code {code}" if code is not None and code >= 0 else "is gone"
    return RunStatus("failed", word.reason, f"Rank {rank} {how} without a word.{words}")


def _in_sentence(who: str) -> str:
    return who[0].lower() + who[1:]


def signal_of(code: int | None) -> str | None:
    """The name of the signal in an exit code: -9 from a child, 137 from a shell in between."""
    if code is None or -1 < code <= 128:
        return None
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return None


def tail(path: Path, start: int = 0, size: int = 8192) -> str:
    """The end of a log, but nothing from before `start`: an earlier attempt's words are not this one's."""
    try:
        with open(open_plain_file(path), "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(log_tail: str) -> str:
    """The last line of a log that says something, shortened to a sentence's length."""
    for line in reversed(log_tail.splitlines()):
        line = line.strip()
        if any(letter.isalpha() for letter in line):
            return line if len(line) <= 200 else line[:197] + "..."
    return ""


def kernel_kills() -> int:
    """How often the out-of-memory killer has struck on this machine since boot."""
    return process.kernel_number("/proc/vmstat", "oom_kill ") or 0
