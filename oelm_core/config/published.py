"""What the author reported: figures with their sources, contradictory ones too, and what was really run."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError

from oelm_core.config.sections import Data, Method, Model, Positive, Section, Train

_SECTIONS: dict[str, type[Section]] = {"model": Model, "data": Data, "method": Method, "train": Train}


def _of_a_recipe(given: dict[str, Any]) -> dict[str, Any]:
    """Some settings of a preset: each is what the preset's own key allows."""
    for part, values in given.items():
        if part not in _SECTIONS:
            continue
        if not isinstance(values, dict):
            raise ValueError(f"{part} should be a map of settings")
        for key, value in values.items():
            known = {field.alias or name: name for name, field in _SECTIONS[part].model_fields.items()}
            if key not in known:
                raise ValueError(f"{part}.{key} is not a setting of a preset")
            try:
                _type_of(part, known[key]).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"{part}.{key}: {error.errors(include_url=False)[0]['msg']}") from None
    return given


@functools.cache
def _type_of(part: str, name: str) -> TypeAdapter[Any]:
    field = _SECTIONS[part].model_fields[name]
    annotated: Any = field.annotation
    for constraint in field.metadata:
        annotated = Annotated[annotated, constraint]
    return TypeAdapter(annotated)


SomeSettings = Annotated[dict[str, Any], AfterValidator(_of_a_recipe)]


class Claim(Section):
    """One published figure, right or wrong; the audit weighs it.

    `what` is one of these words; shares, accuracies and differences are fractions, times are seconds:
    accuracy, best_accuracy, f1, loss, perplexity     results; the curve's own points are in `curve`
    delta                                             difference of two accuracies (-0.0184 is 1.84 points)
    relative_delta                                    relative difference, chiefly of perplexities (0.098 is +9.8 %)
    mean_delta, retention, mean_retention             averages over data sets; the share of the baseline that is kept
    seconds, training_seconds                         wall clock of a run; its training steps alone
    clock_start, clock_end                            times of day, in seconds since midnight
    step_time, it_per_s, steps                        seconds per step, steps per second, optimiser steps
    step_time_run                                     step time of one timing run; one claim per run, in their order
    step_time_spread                                  std of those runs over their mean
    speedup                                           share of the step time saved (0.57 is "57 % faster")
    steps_to_80, steps_to_90, seconds_to_80, seconds_to_90   when an accuracy was first reached
    total, trainable, frozen, frozen_share, saved_share      parameters, and shares of the total
    checkpoint_mib                                    size of a checkpoint file
    baseline_perplexity, target_perplexity            what the author compared with; the bound computed from it
    """

    what: str
    value: float
    unit: str | None = None
    source: str
    """File name of the report; figures from the author's repository start with `repo:`."""
    note: str | None = None
    projected: bool = False
    """The author's forecast or estimate, not a measurement."""
    arms: list[str] = []
    """The arm a figure is about, then what it is compared with; unless said, the preset and its baseline."""
    settings: SomeSettings = {}
    """Settings the figure was obtained with, where they differ from the recipe; shaped like a preset."""


class CurvePoint(Section):
    step: Positive
    source: str | None = None
    """Where the point comes from, if not from the source of the whole."""
    accuracy: float | None = None
    loss: float | None = None
    f1: float | None = None
    perplexity: float | None = None


class Published(Section):
    """What the author reported, with its source, and what they really ran where it was another recipe."""

    source: str
    accuracy: float | None = None
    f1: float | None = None
    loss: float | None = None
    perplexity: float | None = None
    seconds: float | None = None
    """Wall-clock time of the run."""
    step_time: float | None = None
    step_time_std: float | None = None
    curve: list[CurvePoint] = []
    claims: list[Claim] = []
    as_run: SomeSettings = {}
    """Settings that differed in the author's run, shaped like a preset; empty when it was this recipe."""
    as_run_note: str = ""
    """What is known about that run and how surely, in a sentence."""
