"""Which targets there are, what each of them can do, and whether its library is here. Loads none of them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from oelm_core.errors import BadInput, Refused, did_you_mean
from oelm_core.mirror.card import RunCard, RunEnd
from oelm_core.mirror.points import Point
from oelm_core.runs.schema import Mirrored


class Target(Protocol):
    """Where points go. Whatever it raises is said in a sentence, and what it was given then comes again."""

    keeps_at_close: bool
    """Whether what was written is safe there only once it is closed."""

    def __init__(self, folder: Path | None, home: Path) -> None:
        """Into `folder`, or where this library's own variables say, or into a folder of the lab's home."""

    @property
    def place(self) -> str:
        """The folder or address, for people, and to tell two of a kind apart."""

    def is_there(self, kept: Mirrored) -> bool:
        """Whether what was brought before is still there, as far as a look at this machine's files tells."""

    def open(self, card: RunCard, kept: Mirrored) -> bool:
        """Makes the run there, or finds it again by what `kept` has; notes in `kept` how it is found.

        False when what was written before is there no longer, so that everything must come again.
        """

    def tell(self, card: RunCard, kept: Mirrored) -> None:
        """What is known of the run: the first time, and when it has changed."""

    def write(self, points: Sequence[Point], kept: Mirrored) -> None: ...

    def end(self, end: RunEnd, kept: Mirrored) -> None:
        """How it ended: the first time, and when that has changed, as after a resume."""

    def close(self) -> None: ...


class TargetKind(NamedTuple):
    title: str
    library: str
    """What is imported; its extra of `oelm-lab` is called as the target is."""
    target: str
    """module:class"""


TARGETS = {
    "tensorboard": TargetKind("TensorBoard", "tensorboard", "oelm_core.mirror.to_tensorboard:TensorBoard"),
    "wandb": TargetKind("Weights & Biases", "wandb", "oelm_core.mirror.to_wandb:WeightsAndBiases"),
    "trackio": TargetKind("Trackio", "trackio", "oelm_core.mirror.to_trackio:Trackio"),
    "mlflow": TargetKind("MLflow", "mlflow", "oelm_core.mirror.to_mlflow:MLflow"),
}


def target_names(texts: Iterable[str], where: str) -> tuple[str, ...]:
    """The targets that an option or a setting names, separated by commas or one by one; `none` is none at all.

    >>> target_names(["tensorboard,wandb", "wandb"], "--to")
    ('tensorboard', 'wandb')
    """
    names = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in names:
        if name not in TARGETS and name != "none":
            known = did_you_mean(name, TARGETS) or f" Write one or more of {', '.join(TARGETS)}."
            raise BadInput(f"{where}: no target '{name}'.{known}")
    return tuple(dict.fromkeys(name for name in names if name != "none"))


def missing(name: str) -> str | None:
    """Why a target cannot be used, with the line that helps; None when its library is here."""
    kind = TARGETS[name]
    if importlib.util.find_spec(kind.library) is not None:
        return None
    return f"{kind.title} is not installed; write: pip install 'oelm-lab[{name}]'."


def make(name: str, folder: Path | None, home: Path) -> Target:
    """The target, whose library is loaded when it is opened; Refused where that is not installed."""
    why = missing(name)
    if why is not None:
        raise Refused(why)
    module, _, made = TARGETS[name].target.partition(":")
    target: Target = getattr(importlib.import_module(module), made)(folder, home)
    return target
