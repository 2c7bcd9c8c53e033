"""The Reason tab of a run that ended badly: cause, what to do, and the log just before the traceback."""

from __future__ import annotations

from oelm_tui.logs.clean import pieces
from oelm_tui.render.run_rows import REASONS
from oelm_tui.snapshots.detail import Detail
from oelm_tui.text import Line, folded, heading, named, wrapped

ADVICE = {
    "oom": "Lower train.batch_size and raise train.accumulate by the same factor: the same batch in less memory.",
    "nonfinite": "Lower train.lr or lengthen the warm-up. A plain resume would meet the same batch again.",
    "data": "Look at the data's path, columns and labels; `oelm doctor` says which sets can be reached.",
    "config": "The settings do not fit together; the message names the key.",
    "dependency": "The run it waited for did not finish. Launch it with --after-any, or resume the other one first.",
    "timeout": "The time limit came before the end. Resume goes on from the newest checkpoint.",
    "preempted": "The cluster took the node back. Resume goes on from the newest checkpoint.",
    "node_fail": "The node failed. Resume goes on from the newest checkpoint on another one.",
    "disk": "Free some space (old checkpoints: delete finished runs), then resume: the previous checkpoint is whole.",
    "signal": "Something killed it from outside. Resume goes on from the newest checkpoint.",
    "error": "The traceback below says where. After mending the cause, resume.",
}
_ENDING = {"exit_code": "exit code", "signal": "signal", "host": "host", "from_step": "started at step"}
LOST = "Its processes are gone without a word (a reboot, or kill -9). Resume goes on from the newest checkpoint."


def reason_lines(detail: Detail, width: int, ascii_only: bool = False) -> list[Line]:
    run = detail.view.run
    cause = REASONS.get(run.reason or "", run.reason or run.state)
    lines: list[Line] = [[(f"{run.state}: {cause}", "bad|bold")]]
    if run.message:
        lines += wrapped(run.message, width)
    advice = LOST if run.state == "lost" else ADVICE.get(run.reason or "", "")
    if run.state == "stopped" and run.reason == "user":
        advice = "Somebody stopped it. Resume goes on from its checkpoint."
    if advice:
        lines += [[], heading("What to do"), *wrapped(advice, width)]
    last = detail.attempts[-1] if detail.attempts else {}
    lines += [[], heading("How it ended"), named("step", f"{run.step} of {run.total or '?'}")]
    for key, title in _ENDING.items():
        if last.get(key) is not None:
            lines.append(named(title, str(last[key])))
    if len(detail.attempts) > 1:
        lines.append(named("attempts", str(len(detail.attempts))))
    if detail.trouble:
        lines += [[], heading("The log before it ended")]
        for raw in detail.trouble:
            trouble = b"Error" in raw or b"Traceback" in raw
            shown = [(text, style or ("bad" if trouble else "")) for text, style in pieces(raw, ascii_only)]
            lines += [[("  ", ""), *part] for part in folded(shown, width - 2)]
    return lines
