"""Calls Slurm's own commands: one sentence when they are missing, and whether the controller answered at all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple

from oelm_core.errors import Refused

PATIENCE = 20.0
"""Seconds a command may take: longer than Slurm's own time-out for a message."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")

_SILENT = re.compile(
    r"unable to contact|connection refused|connect failure|timed out|zero bytes|communication"
    r"|no answer|unexpected message|protocol authentication|could not establish a configuration"
    r"|resource temporarily unavailable",
    re.IGNORECASE,
)


class Answer(NamedTuple):
    """What a Slurm command said."""

    ok: bool
    out: str
    error: str
    """Slurm's own words, without the command's name before them; one line."""
    unreachable: bool = False
    """The controller did not answer, so nothing is known either way."""


def call(*argv: str, text: str | None = None, patience: float = PATIENCE) -> Answer:
    """Runs a Slurm command. Times come as epoch seconds; `text` goes to its standard input."""
    program = shutil.which(argv[0])
    if program is None:
        raise Refused(
            f"no {argv[0]} on PATH: this machine has no Slurm. Log in to the cluster's login node, "
            "load its slurm module, or use --launcher local."
        )
    try:
        ended = subprocess.run(
            [program, *argv[1:]],
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            env=environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(False, "", f"{argv[0]} gave no answer within {patience:g} s", True)
    except OSError as error:
        raise Refused(f"cannot start {program}: {error.strerror}.") from None
    words = plain_words(ended.stderr)
    return Answer(ended.returncode == 0, ended.stdout, words, ended.returncode != 0 and is_silence(words))


def environment() -> dict[str, str]:
    """Ours, without what an outer job left in it: a job submitted from inside another must not inherit its shape."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_") or key in KEPT}
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def is_silence(words: str) -> bool:
    """Whether an error means that the controller could not be asked, rather than that it said no."""
    return bool(_SILENT.search(words))


def plain_words(stderr: str) -> str:
    """Slurm's complaint as one line.

    >>> plain_words("sbatch: error: invalid partition: x\\nsbatch: error: Batch job submission failed: Bad name\\n")
    'invalid partition: x; Batch job submission failed: Bad name'
    """
    lines = [re.sub(r"^[a-z]+: (error|fatal): |^[a-z]+: ", "", line.strip()) for line in stderr.splitlines()]
    said = [line.rstrip(".") for line in dict.fromkeys(lines) if line and not line.startswith("Try ")]
    return "; ".join(said)
