"""Past one machine: the same run folder and the same runner, handed to Slurm. Imports nothing until it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oelm_core.launch.slurm.cancel import delete as delete
    from oelm_core.launch.slurm.cancel import stop as stop
    from oelm_core.launch.slurm.job_states import overlay as overlay
    from oelm_core.launch.slurm.job_states import silence as silence
    from oelm_core.launch.slurm.site import discover as discover
    from oelm_core.launch.slurm.submit import resume as resume
    from oelm_core.launch.slurm.submit import start as start
    from oelm_core.launch.slurm.submit import start_study as start_study

_WHERE = {
    "start": "submit",
    "start_study": "submit",
    "resume": "submit",
    "stop": "stopping",
    "delete": "stopping",
    "overlay": "queue",
    "silence": "queue",
    "discover": "site",
}


def __getattr__(name: str) -> Any:
    """`slurm.start` and the others, imported at first use: the runner inside a job must not pay for pydantic."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
