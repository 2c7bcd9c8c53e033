"""Runs the real `oelm` command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Oelm:
    """`oelm` with its own OELM_HOME."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.environment = {**os.environ, "OELM_HOME": str(home), **environment}

    def __call__(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "oelm_tui", *arguments]
        options = {"stdin": subprocess.DEVNULL, "timeout": 120, **options}
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, **options)

    def json(self, *arguments: str) -> Any:
        ended = self(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def refusal(self, *arguments: str, code: int, **options: Any) -> str:
        """The one sentence on stderr of a command that must fail with `code`."""
        ended = self(*arguments, **options)
        assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
        assert ended.stdout == ""
        assert "Traceback" not in ended.stderr
        assert ended.stderr.startswith("oelm: ")
        assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
        return ended.stderr
