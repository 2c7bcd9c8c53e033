"""Writes a run's network for others, in a process of its own: `python -m oelm_core.training.publish`.

Its last line on stdout is a `PublishAnswer`; the light side, and the model card, are in `oelm_core/launch/publish.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from oelm_core.errors import refusing
from oelm_core.runs.evaluations import PublishAnswer
from oelm_core.runs.folder import RunFolder
from oelm_core.training.answering import answer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="oelm_core.training.publish", description="Writes a run's network.")
    parser.add_argument("--run-folder", required=True, type=Path)
    parser.add_argument("--to", required=True, type=Path)
    asked = parser.parse_args(arguments)
    folder = RunFolder(asked.run_folder)
    return answer([folder], lambda: publish(folder, asked.to))


def publish(folder: RunFolder, to: Path) -> PublishAnswer:
    """Fills a folder that is there with the best checkpoint's weights, its configuration and the tokenizer."""
    from oelm_core.data.sets import find_set
    from oelm_core.models.published import save_published
    from oelm_core.training.finished import load_finished

    found = load_finished(folder)
    data = found.experiment.data
    known = find_set(data.name)
    labels = data.labels or (known.labels if known else ())
    if len(labels) != data.classes:  # not told, or of other data
        labels = ()
    with refusing(f"cannot write {to}"):
        loader = save_published(found.network, found.tokenizer, to, found.experiment.method, labels)
    return PublishAnswer(step=found.step, loader=loader, network=type(found.network).__name__)


if __name__ == "__main__":
    sys.exit(main())
