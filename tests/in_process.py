"""Runs `oelm` commands in this process: hundreds of them in the time that a few processes take."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from oelm_tui import cli


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def oelm(*arguments: str) -> Ended:
    """The command's exit code and what it printed, neither to a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    code = 0
    with (
        mock.patch.object(sys, "argv", ["oelm", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Ended(code, *(_written(stream) for stream in (out, err)))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return str(content, "utf-8", "surrogateescape")
