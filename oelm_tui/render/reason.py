"""Why a run ended: each reason in words, what to do about it, and the Reason tab with the log before the traceback."""

from __future__ import annotations

from typing import NamedTuple

from oelm_tui.logs.clean import pieces
from oelm_tui.snapshots.detail import Detail
from oelm_tui.text import Line, folded, heading, named, wrapped


class ReasonWords(NamedTuple):
    short: str
    """For a row of a table; "" where the run's own message says more."""
    advice: str = ""


_RESUME = "Resume continues from the newest checkpoint."
REASONS = {
    "oom": ReasonWords(
        "out of memory",
        "Lower train.batch_size and raise train.accumulate by the same factor: the same batch in less memory.",
    ),
    "nonfinite": ReasonWords(
        "non-finite loss",
        "Lower train.lr or lengthen the warm-up. A plain resume would meet the same batch again.",
    ),
    "gpu_fault": ReasonWords(
        "the card failed",
        "Resume continues on another card. `oelm gpus` shows the card as suspect; `dmesg` may have an Xid line; once it"
        " is well again, `oelm gpus --trust CARD` hands it out.",
    ),
    "nccl": ReasonWords(
        "cards lost touch",
        f"{_RESUME} If it happens again, set NCCL_DEBUG=INFO, or run on one card.",
    ),
    "data": ReasonWords(
        "data", "Look at the data's path, columns and labels; `oelm doctor` says which sets can be reached."
    ),
    "config": ReasonWords("configuration", "The settings do not fit together; the message names the key."),
    "dependency": ReasonWords(
        "dependency failed",
        "The run it waited for did not finish. Launch it with --after-any, or resume the other one first.",
    ),
    "timeout": ReasonWords("time limit", f"The time limit came before the end. {_RESUME}"),
    "preempted": ReasonWords("preempted", f"The cluster took the node back. {_RESUME}"),
    "node_fail": ReasonWords(
        "node failed", "The node failed. Resume continues on another one, from the newest checkpoint."
    ),
    "hang": ReasonWords(
        "a rank did not answer",
        f"One of its processes stood still until the others gave up on it; the message names it. {_RESUME}",
    ),
    "disk": ReasonWords(
        "disk",
        "Free some space (old checkpoints: delete finished runs), then resume: the previous checkpoint is whole.",
    ),
    "signal": ReasonWords("killed by a signal", f"Something killed it from outside. {_RESUME}"),
    "error": ReasonWords("", "After fixing the cause, resume."),
    "user": ReasonWords("", "Somebody stopped it. Resume continues from its checkpoint."),
}
LOST = f"Its processes are gone without a word (a reboot, or kill -9). {_RESUME}"


def words_for(reason: str | None) -> ReasonWords:
    """The words for a reason's code; empty ones for a reason without."""
    return REASONS.get(reason or "", ReasonWords(""))


def reason_lines(detail: Detail, width: int, ascii_only: bool = False) -> list[Line]:
    run = detail.view.run
    words = words_for(run.reason)
    lines: list[Line] = [[(f"{run.state}: {words.short or run.reason or run.state}", "bad|bold")]]
    if run.message:
        lines += wrapped(run.message, width)
    advice = LOST if run.state == "lost" else words.advice
    if run.reason == "error" and any(b"Traceback" in raw for raw in detail.trouble):
        advice = f"The traceback below says where. {advice}"
    if advice:
        lines += [[], heading("What to do"), *wrapped(advice, width)]
    lines += [[], heading("How it ended"), named("step", f"{run.step} of {run.total or '?'}")]
    if detail.attempts:
        last = detail.attempts[-1]
        facts = {
            "exit code": last.exit_code,
            "signal": last.signal,
            "host": last.host,
            "started at step": last.from_step,
        }
        lines += [named(title, str(fact)) for title, fact in facts.items() if fact is not None]
    if len(detail.attempts) > 1:
        lines.append(named("attempts", str(len(detail.attempts))))
    if detail.trouble:
        lines += [[], heading("The log before it ended")]
        for raw in detail.trouble:
            trouble = b"Error" in raw or b"Traceback" in raw
            shown = [(text, style or ("bad" if trouble else "")) for text, style in pieces(raw, ascii_only)]
            lines += [[("  ", ""), *part] for part in folded(shown, width - 2)]
    return lines
