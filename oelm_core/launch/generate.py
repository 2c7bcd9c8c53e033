"""`oelm generate`: runs continue a prompt, in a process of the training room that sends the text as it comes."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from oelm_core.errors import BadInput
from oelm_core.launch import finished, spawn
from oelm_core.runs.evaluations import GeneratedPiece
from oelm_core.runs.schema import Misfit, decode
from oelm_core.runs.store import Run


@dataclass(frozen=True)
class Sampling:
    """How a text is drawn. The same seed draws the same text; temperature 0 always takes the likeliest token."""

    length: int | None = None
    """Tokens at most; None: 100, or as many as the model has room for."""
    temperature: float = 0.8
    top_k: int = 50
    seed: int = 42

    def arguments(self) -> list[str]:
        length = [] if self.length is None else [f"--length={self.length}"]
        return [
            *length,
            f"--temperature={self.temperature}",
            f"--top-k={self.top_k}",
            f"--seed={self.seed}",
        ]


def generate(
    runs: Sequence[Run], prompt: str, sampling: Sampling | None = None, device: str = "cpu"
) -> Generator[GeneratedPiece, None, None]:
    """Pieces of text as they come, run by run. Whoever stops listening ends the process."""
    for run in runs:
        finished.refuse_imported(run, "to write with")
        if run.setting("data.classes") is not None:
            raise BadInput(f"{run.id} is a classifier; only a language model continues a text.")
    held = finished.take_card(device, runs[0].id)
    kind, cards = ("cuda", [held.device]) if held else ("cpu", [])
    folders = [f"--run-folder={run.folder.path}" for run in runs]
    options = (sampling or Sampling()).arguments()
    command = finished.process_of("generate", *folders, f"--prompt={prompt}", *options)
    try:
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command,
                env=spawn.environment(kind, cards, None),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,
        ):
            try:
                yield from _pieces(process)
            finally:
                process.terminate()
            if process.wait() != 0:
                errors.seek(0)
                finished.raise_silence("writes", errors.read(), process.returncode)
    finally:
        if held:
            held.release()


def _pieces(process: subprocess.Popen[bytes]) -> Iterator[GeneratedPiece]:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            piece = decode(line, GeneratedPiece)
        except Misfit:  # a library's own words
            continue
        if piece.error is not None:
            finished.raise_answer(piece.error, piece.code)
        yield piece
    process.wait()
