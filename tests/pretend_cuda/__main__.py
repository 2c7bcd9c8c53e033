"""`python -m tests.pretend_cuda PRESET [KEY=VALUE ...]` prints what a step asks of a card.

With --answer it serves a parent process: JSON in, one line of JSON out.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import asdict
from typing import Any

from oelm_core.errors import LabError
from oelm_core.models.loading import load_libraries
from tests.pretend_cuda import Case, library


def main(arguments: list[str]) -> None:
    if (why := library.missing()) is not None:
        sys.exit(why)
    if not arguments:
        sys.exit("write a preset: python -m tests.pretend_cuda GPT-01 [train.precision=fp16 ...]")
    library.plug_in()
    load_libraries()
    if arguments == ["--answer"]:
        from tests.pretend_cuda.host_waits import seen

        asked = json.load(sys.stdin)
        cases = [Case(one["wanted"], tuple(one["settings"]), tuple(one["capability"])) for one in asked["cases"]]
        steps = [asdict(_counted(case)) for case in cases]
        print(json.dumps({"steps": steps, "seen": [seen(act) for act in asked["acts"]]}))
    else:
        found = _counted(Case(arguments[0], tuple(arguments[1:])))
        print(f"{found.precision}: {found.launches:,} launches, {found.casts:,} of them casts")
        print(f"{found.bytes_moved / 1e9:.2f} GB moved")
        print(f"{len(found.host_waits)} waits of the host", *found.host_waits, sep="\n  ")
        print(*(f"{number:7,}  {name}" for name, number in found.functions.items()), sep="\n")


def _counted(case: Case) -> Any:
    from oelm_core.config import build_experiment, override
    from tests.pretend_cuda.step import count_here

    wanted = case.wanted
    experiment = _presets().experiment(wanted) if isinstance(wanted, str) else build_experiment(wanted, "case")
    return count_here(override(experiment, list(case.settings)), case.capability)


@functools.cache
def _presets() -> Any:
    from oelm_core.config.catalogue import load_catalogue

    return load_catalogue()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LabError as error:
        sys.exit(str(error))
