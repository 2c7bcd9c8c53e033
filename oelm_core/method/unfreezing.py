"""When frozen layers begin to train: a pure function of the step, so that a resumed run needs no memory of it."""

from __future__ import annotations

from dataclasses import dataclass

from oelm_core.config import Experiment
from oelm_core.config.limits import unfreezing_starts
from oelm_core.errors import BadInput
from oelm_core.method.initialisers import chosen_layers


@dataclass(frozen=True)
class UnfreezeSchedule:
    """Steps are counted from 0: at step `starts[layer]` the layer takes part for the first time."""

    starts: dict[int, int]
    warmup: int

    @classmethod
    def of(cls, experiment: Experiment, layers: int, total_steps: int | None = None) -> UnfreezeSchedule | None:
        """The schedule of an experiment, or None; refused when a layer would start past the end of training."""
        unfreeze = experiment.method.unfreeze
        if unfreeze is None:
            return None
        total = total_steps or experiment.train.max_steps
        if total is None:
            raise BadInput(f"{experiment.id}: method.unfreeze needs the number of steps; give train.max_steps.")
        starts = unfreezing_starts(unfreeze, chosen_layers(experiment.method, layers), total)
        late = [layer for layer, start in starts.items() if start >= total]
        if late:
            raise BadInput(
                f"{experiment.id}: method.unfreeze lets layer {late[0]} go at step {starts[late[0]]}, "
                f"but training ends at step {total}; start earlier or make `every` smaller."
            )
        return cls(starts, unfreeze.warmup)

    def trains(self, step: int) -> frozenset[int]:
        """The layers let go by this step."""
        return frozenset(layer for layer, start in self.starts.items() if step >= start)

    def changes_at(self, step: int) -> bool:
        """Whether a layer is let go exactly at this step."""
        return step in self.starts.values()

    def lr_factor(self, step: int, layer: int) -> float:
        """Own warm-up of a layer: 0 while frozen, then growing to 1."""
        return self.ramp(step, self.starts[layer], self.warmup)

    @staticmethod
    def ramp(step: int, start: int, warmup: int) -> float:
        return 0.0 if step < start else min(1.0, (step - start + 1) / max(1, warmup))
