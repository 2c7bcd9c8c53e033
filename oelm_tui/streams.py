"""What a command finds at stdin, stdout and stderr: closed, without our signs, full, or left by whoever read."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Iterator

NARROWEST = 40
"""Columns below which the terminal wraps our lines itself: a table of one column tells nothing."""

_ONE_FOR_ONE = """
✔+ ✗x ✘x ×x ⚠! ⚑! ·- •- –- —- −- ─- ━- ═- ┄- ╌- │| ┃| ║| ┌+ ┐+ └+ ┘+ ├+ ┤+ ┬+ ┴+ ┼+ ╭+ ╮+ ╰+ ╯+ ╸+ ╺+ ◷w ▶> ▸> ▹> ›>
■# ◼# █# ▉# ▊# ▋# ▌# ▇# ▆# ▅# ▄. ▃. ▂. ▁. ▍. ▎. ▏. ●* ◆* ▲* †* ○o ◌o ‘' ’' “" ”" ◐~ …~ ↑^ ↓v ▾v µu →> ←<
"""
_LONGER = {"±": "+-", "≤": "<=", "≥": ">=", "≠": "!=", "½": "1/2", "°": "", "\u00a0": " "}
_IN_ASCII = {**{pair[0]: pair[1] for pair in _ONE_FOR_ONE.split()}, **_LONGER}
"""Signs as they are written where the encoding has no other; what is not here becomes a question mark a column."""


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    from rich.cells import cell_len

    return "".join(
        _IN_ASCII.get(sign, "?" * cell_len(sign)) for sign in error.object[error.start : error.end]
    ), error.end


codecs.register_error("oelm-ascii", _in_ascii)


def prepare() -> None:
    """Before anything is opened: a closed stream is an empty one, and no sign is beyond any encoding.

    Left closed, its number would go to the next file that is opened, and a print would go into that.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            empty = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, empty)
            setattr(sys, f"__{name}__", empty)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="oelm-ascii")


def at_a_terminal() -> bool:
    """Whether somebody sits there who can see the screen and answer it."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def can_move_cursor() -> bool:
    """Whether what we print goes to a terminal that understands more than lines."""
    return sys.stdout.isatty() and not is_dumb()


def is_dumb() -> bool:
    return os.environ.get("TERM", "") in ("", "dumb", "unknown")


def speaks_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "utf-8").lower()


def say(line: str) -> None:
    """A word about what was done while more is to do: `oelm run A B | head -1` starts both."""
    try:
        print(line, flush=True)
    except OSError as error:
        forget_output()
        if is_full(error):
            print(f"oelm: cannot write {line}: {os.strerror(error.errno or 0)}.", file=sys.stderr)


def print_document(text: str | bytes) -> None:
    """A document for others, in UTF-8 as in a file; only a terminal gets the signs that it can show."""
    if isinstance(text, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    text = text if text.endswith("\n") else f"{text}\n"
    if speaks_unicode() or sys.stdout.isatty():
        print(text, end="")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def to_the_last_word() -> Iterator[None]:
    """Around a command: what it printed is written before it ends, and a reader that went away ends it in silence.

    That end is by SIGPIPE, as of any Unix tool. A disk that takes no more of the output is an OSError of its own.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _end_without_reader()
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as click and rich make of it
            _end_without_reader()
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _end_without_reader()
        except OSError:
            forget_output()
        raise


def forget_output() -> None:
    """What could not be written is not tried again at the interpreter's end, which would add a message of its own."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _end_without_reader() -> None:
    """Unless it was another pipe or socket that broke."""
    import select

    looking = select.poll()
    looking.register(1, 0)
    looking.register(2, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in looking.poll(0)):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
        os.kill(os.getpid(), signal.SIGPIPE)
