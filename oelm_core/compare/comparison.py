"""What a comparison is: groups of arms, pairs against a baseline, findings, footnotes; all frozen, all plain data."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from oelm_core.compare.settings import LABELS, Settings, settings_of
from oelm_core.compare.settings import Grade as Grade
from oelm_core.formatting import listed
from oelm_core.runs.schema import finite_or_null
from oelm_core.study.calibration import CalibrationFacts

Verdict = Literal["met", "missed", "undecided"]
GRADES: tuple[Grade, ...] = ("breaks", "confounds", "note")
SCHEMA_VERSION = 2

# -- findings ----------------------------------------------------------------------------------------------------------

FINDINGS = {
    # a setting that differs, by a configuration or by what a run recorded
    **{name.replace("_", "-"): label for name, label in LABELS.items()},
    "untouched-baseline": "untouched baseline",
    # what the runs did
    "unfinished": "arm not finished",
    "diverged": "diverged runs",
    "frozen-moved": "frozen weights",
    "examples": "examples judged on",
    "reruns": "reruns of a seed",
    "resumed": "resumed runs",
    "copied": "copied runs",
    "contradicted": "headline and predictions",
    "other-step": "predictions of another step",
    "collapse": "peak and end",
    "cost": "cost of training",
    "unknown": "not recorded",
    "hardware": "hardware",
    "processes": "processes",
    "threads": "threads",
    "host": "host",
    "commit": "code commit",
    "versions": "versions",
    "seeds": "seeds",
    "one-seed": "seeds",
    "other-load": "other load",
    "order": "order of runs",
    "drift": "drift",
    "best-of-many": "best of many",
    "search": "search",
    "registration": "registration",
    "tuning": "tuning",
    "best-against-final": "best against final",
    "sweep": "best of a sweep",
    # what was published
    "published-column": "published column",
    "published-one-seed": "one seed",
    "paired-recipes": "paired recipes",
    "ratio": "ratio",
    "average": "average",
    "granularity": "granularity",
    "best-below-curve": "best and curve",
    "perplexity-and-loss": "perplexity and loss",
    "parameters": "parameters",
    "checkpoint": "checkpoint",
    "steps": "steps",
    "wall-clock": "duration",
    "step-time": "step time",
    "step-time-x-steps": "step time x steps",
    "training-time": "training time",
    "time-to-accuracy": "time to accuracy",
    "speed-up": "speed-up",
    "timing-runs": "timing",
}
"""Every kind of finding: its code, for programs, and what it is about, for readers."""


@dataclass(frozen=True)
class Finding:
    """One thing that puts a comparison or a published figure in doubt."""

    grade: Grade
    code: str
    """One of FINDINGS."""
    arms: tuple[str, ...]
    why: str
    """One sentence: what differs, by how much, what it puts in doubt."""
    settle_with: str | None = None
    """A control preset, or the command that would settle it."""
    source: str | None = None
    """For published figures: the document they come from."""
    values: tuple[float, ...] | None = None
    """The published values it is about; None where it is about all of a run."""

    @property
    def what(self) -> str:
        return FINDINGS.get(self.code, self.code)

    @property
    def sentence(self) -> str:
        """`why` as a sentence of its own, saying whose figure it is about; a preset's id keeps its case."""
        if self.source and not any(arm in self.why for arm in self.arms):
            return f"{', '.join(self.arms)}: {self.why}"
        return self.why if self.why.startswith(self.arms) else self.why[:1].upper() + self.why[1:]

    def to_json(self) -> dict[str, Any]:
        kept = ("grade", "what", "arms", "why", "settle_with", "source", "code")
        return {name: getattr(self, name) for name in kept}


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; findings in the same words, or that say the same of several arms, become one about all of them."""
    kept: dict[tuple[Grade, str, str, str | None], Finding] = {}
    for finding in sorted(findings, key=lambda one: GRADES.index(one.grade)):
        key = (finding.grade, finding.code, finding.why, finding.source)
        before = kept.get(key, finding)
        arms = tuple(dict.fromkeys((*before.arms, *finding.arms)))
        settle = before.settle_with or finding.settle_with  # a remedy is not lost to a finding without one
        kept[key] = dataclasses.replace(before, arms=arms, settle_with=settle)
    alike: dict[tuple[str | None, ...], list[Finding]] = {}
    for finding in kept.values():
        alike.setdefault(_but_for_the_arm(finding), []).append(finding)
    return [_of_all_arms(same) for same in alike.values()]


ARM = "\0"
"""Stands for an arm's name where findings are compared."""


def _but_for_the_arm(finding: Finding) -> tuple[str | None, ...]:
    """What a finding about an arm and its baseline says, with a mark in place of the arm."""
    remedy, words, beside = finding.settle_with or "", finding.why, finding.arms[0] if finding.arms else None
    listing = len(finding.arms) == 1 and words.startswith(f"{beside}, ")  # no verb that would need its plural
    if len(finding.arms) == 2 or listing:
        name = re.compile(rf"(?<![\w-]){re.escape(finding.arms[-1])}(?![\w-]| \()")
        words, remedy = name.sub(ARM, words), name.sub(ARM, remedy) if remedy.startswith("oelm ") else remedy
    return finding.grade, finding.code, finding.source, None if listing else beside, words, remedy


def _of_all_arms(same: Sequence[Finding]) -> Finding:
    first = same[0]
    if len(same) == 1:
        return first
    *_, words, remedy = _but_for_the_arm(first)
    names = [finding.arms[-1] for finding in same]
    return dataclasses.replace(
        first,
        arms=tuple(dict.fromkeys((first.arms[0], *names))),
        why=str(words).replace(ARM, listed(names)),
        settle_with=str(remedy).replace(ARM, " ".join(names)) or None,
    )


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """One quantity over the runs of an arm. `std` is None with fewer than two values."""

    mean: float
    std: float | None
    n: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class SignificanceTest:
    """One significance test, and what it says in words. Only the one over seeds is about the method."""

    name: str
    over: Literal["seeds", "examples", "timing"]
    words: str
    p: float | None = None
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    seed: int | None = None
    """The seed whose predictions were compared, for tests of two trained models."""


@dataclass(frozen=True)
class SeedCount:
    """How many runs a gap rests on."""

    baseline: int
    arm: int
    shared: int
    failed: int
    """Of both, those that ended without a score."""


@dataclass(frozen=True)
class Reached:
    """When the runs of an arm first reached a mark; those that never did are counted."""

    median_step: float | None
    median_seconds: float | None
    reached: int
    runs: int


@dataclass(frozen=True)
class SeedCurve:
    """A quantity by step for one run: [(step, value)], steps ascending."""

    seed: int
    points: tuple[tuple[int, float], ...]


class BandPoint(NamedTuple):
    """Where the seeds of an arm are at a step."""

    step: int
    mean: float
    low: float
    high: float


class Head(NamedTuple):
    """What one head of one run looked at in the end, averaged over the queries of a fixed batch."""

    seed: int
    layer: int
    head: int
    entropy: float
    """In nats."""
    distance: float
    """In tokens."""
    from_baseline: float | None
    """Total variation to the same head of a baseline run, 0 to 1."""


@dataclass(frozen=True)
class ArmTuning:
    """How an arm's setting was found: the draws of a tuning, and what they would have found had there been fewer."""

    id: str
    draws: int
    """Over all tunings of the arm in this study."""
    failed: int
    """Draws of this tuning that failed or diverged; each counts as the worst value of any arm."""
    pruned: int
    """Draws that the pruner stopped; each counts with its best validation until then."""
    chosen: int | None
    """The point that runs on fresh seeds; None while there is none."""
    settings: tuple[str, ...] = ()
    """Of the chosen point, as texts of --set."""
    values: tuple[float | None, ...] = ()
    """Validation of each draw of this tuning, by point; None where it failed."""
    expected_best: tuple[float, ...] = ()
    """After m = 1, 2, ... draws, without replacement."""


@dataclass(frozen=True)
class Arm:
    """Runs of one configuration over seeds, and what was measured on them."""

    id: str
    preset: str
    title: str
    method: str
    config_hash: str
    is_baseline: bool
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    metric: Measure | None
    """The headline metric on the group's basis; None when no run has one."""
    measures: dict[str, Measure] = field(default_factory=dict)
    """By the names in `evidence.MEASURES`, and by the names of other metrics."""
    published: dict[str, Any] | None = None
    """What the author reported for this preset, with its source."""
    target: dict[str, Any] | None = None
    curves: dict[str, tuple[SeedCurve, ...]] = field(default_factory=dict)
    """By name: the headline metric and the validation loss by step, train loss thinned out."""
    heads: tuple[Head, ...] = ()
    """Of every run that looked at its attention."""
    diverged: int = 0
    """Runs that ended in numbers that are not finite: they enter the test as worse than all others."""
    failed: int = 0
    """Runs that ended otherwise without a score."""
    reached: dict[str, Reached] = field(default_factory=dict)
    """By mark: "0.8", "0.9"."""
    missing: tuple[str, ...] = ()
    """What could not be known, and why."""
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    commands: tuple[str, ...] = ()
    tuning: ArmTuning | None = None
    created: float | None = None
    """When its newest run was launched, epoch seconds."""

    @property
    def settings(self) -> Settings:
        """Its settings, as its runs did them where they recorded it: a recipe in epochs is short on a small file."""
        settings, steps, batch = settings_of(self.config), self.mean("steps"), self.mean("effective_batch")
        settings |= {"duration": f"{steps:,.0f} steps"} if steps else {}
        return settings | ({"effective_batch": round(batch)} if batch else {})

    def mean(self, name: str) -> float | None:
        """Mean of a measure, or None when it is unknown."""
        found = self.measures.get(name)
        return found.mean if found else None

    def band(self, name: str) -> tuple[BandPoint, ...]:
        """Mean, least and greatest of the arm's seeds by step, at the steps that all of them have."""
        found = [dict(curve.points) for curve in self.curves.get(name, ())]
        steps = sorted(set.intersection(*map(set, found))) if found else []
        values = ((step, [one[step] for one in found]) for step in steps)
        return tuple(BandPoint(step, math.fsum(at) / len(at), min(at), max(at)) for step, at in values)

    def mean_curve(self, name: str) -> tuple[tuple[int, float], ...]:
        """Mean over the arm's seeds by step."""
        return tuple((point.step, point.mean) for point in self.band(name))


@dataclass(frozen=True)
class Pair:
    """An arm against its baseline, or against another arm. `delta`, `interval` and `p` are about the method."""

    arm: str
    baseline: str
    metric: str
    direction: Literal["higher", "lower"]
    kind: Literal["points", "relative"]
    """points: a difference of fractions (0.01 is one percentage point); relative: 0.05 is five per cent more."""
    delta: float | None
    interval: tuple[float, float] | None
    """95 %, over seeds and examples; None where one seed leaves the spread of seeds unknown."""
    p: float | None
    """None with one seed: no claim about a method is made."""
    p_adjusted: float | None
    """By Holm, over the family of comparisons."""
    seeds: SeedCount
    verdict: Verdict | None
    """None where the preset states no target."""
    verdict_why: str
    seeds_needed: int | None
    """Seeds a side that would decide the target; None where it is decided, or no number would, or it is unknown."""
    retention: float | None
    parameter_saving: float | None
    """Share of the baseline's trainable parameters that this arm does not train."""
    step_time_delta: float | None
    seconds_delta: float | None
    memory_delta: float | None
    spread_from: tuple[str, ...] = ()
    """Where the spread of seeds was seen, apart from these two arms."""
    models: SignificanceTest | None = None
    """Whether two trained models differ, those of the first seed in common; says nothing about the method."""
    tests: tuple[SignificanceTest, ...] = ()
    words: str = ""
    """What may be said about the method, in plain words."""

    def to_json(self) -> dict[str, Any]:
        models = dataclasses.asdict(self.models) if self.models else None
        if models is not None:
            models = {"test": models.pop("name"), **models}
        return {**dataclasses.asdict(self), "models": models}


@dataclass(frozen=True)
class Search:
    """What was tried for one arm, whether or not it is still there: counted from the ledger and the run folders."""

    configurations: int = 0
    runs: int = 0
    failed: int = 0
    diverged: int = 0
    """Of the failed: those whose loss was no number any more."""
    deleted: int = 0


@dataclass(frozen=True)
class Looks:
    """How often a test set was scored, by the ledger: the more looks, the less it is one."""

    looks: int
    runs: int
    shown: int
    """Of those runs, how many are in the table."""


@dataclass(frozen=True)
class Registered:
    """The plan a study's table is held against."""

    hash: str | None
    """None when the study was never registered; then the plan is what the study's file says."""
    when: float | None
    deviations: tuple[str, ...] = ()
    """What is not as planned, a sentence each; none: as registered."""


@dataclass(frozen=True)
class Decide:
    """The one command that would decide what is not decided."""

    command: str
    seeds: int
    """A side, with those that are there."""
    seconds: float | None
    """How long it takes, by the runs that are there."""
    presets: tuple[str, ...] = ()
    seeds_asked: str = ""
    """As an option: --seeds 43-44."""


@dataclass(frozen=True)
class Machine:
    """Cards that runs of a table were made on, and whether `oelm doctor --gpu` proved them as they were driven."""

    card: str
    cards: int
    driver: str | None
    torch: str | None
    proven: float | None
    """When, epoch seconds; None where they were not."""


@dataclass(frozen=True)
class Group:
    """Arms that may be compared: one family, one data set, one model, one metric."""

    family: str
    dataset: str
    model: str
    metric: str
    direction: Literal["higher", "lower"]
    baseline: str | None
    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    audit: tuple[Finding, ...]
    contrasts: tuple[Pair, ...] = ()
    """Arms against one another: orthogonal against random."""
    basis: Literal["test", "cross-fitted", "best"] = "best"
    """Where the headline numbers come from: the test set, or validation, cross-fitted or as the best of a run."""
    family_size: int = 0
    """Comparisons that p is adjusted for."""
    timing_noise: float | None = None
    """How far apart neighbouring runs with identical work lie in time per step."""
    decide: Decide | None = None
    """What would decide the targets that are open."""
    calibration: tuple[CalibrationFacts, ...] = ()
    """What is known of the lab's own false alarms with these recipes; empty where nobody looked."""
    same: tuple[str, ...] = ()
    """Settings found equal in all arms."""
    test_looks: Looks | None = None
    """How often the test set was scored; None for a table that is not of a test set."""
    search: dict[str, Search] = field(default_factory=dict)
    """By arm."""
    registered: Registered | None = None
    """None for a table that is not a study's."""
    machines: tuple[Machine, ...] = ()
    """Those with cards."""

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.id == name)

    def pair(self, name: str) -> Pair | None:
        return next((pair for pair in self.pairs if pair.arm == name), None)

    def findings_about(self, name: str) -> tuple[Finding, ...]:
        """Findings that touch an arm's numbers or its gap: its own, and those about its baseline alone."""
        pair = self.pair(name)
        return tuple(f for f in self.audit if name in f.arms or (pair and f.arms == (pair.baseline,)))

    def broken(self, name: str) -> Finding | None:
        """The first finding because of which an arm's gap does not stand."""
        return next((f for f in self.findings_about(name) if f.grade == "breaks" and self.pair(name)), None)


@dataclass(frozen=True)
class ComparedStudy:
    id: str
    title: str
    question: str
    table: str
    seeds: tuple[int, ...]
    arms: tuple[str, ...] = ()
    contrasts: tuple[tuple[str, str], ...] = ()
    """Arms that are set against one another, as declared."""


@dataclass(frozen=True)
class MeanGap:
    """The mean gap of a method over several data sets, these and no others."""

    method: str
    kind: Literal["points", "relative"]
    metric: str
    datasets: tuple[str, ...]
    delta: float
    interval: tuple[float, float] | None
    p: float | None
    retention: float | None


@dataclass(frozen=True)
class Comparison:
    """The whole table: `to_json()` is the stable schema of `oelm compare --json`."""

    groups: tuple[Group, ...]
    footnotes: tuple[str, ...] = ()
    study: ComparedStudy | None = None
    means: tuple[MeanGap, ...] = ()
    """Over data sets, by method."""
    published: tuple[Finding, ...] = ()
    """Findings about the author's own figures for these presets, when asked for."""

    def to_json(self) -> dict[str, Any]:
        """An interval's end that is infinite is null, as JSON knows no infinity."""
        found: dict[str, Any] = finite_or_null(self._content())
        return found

    def _content(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA_VERSION,
            "study": dataclasses.asdict(self.study) if self.study else None,
            "groups": [
                {
                    **dataclasses.asdict(group),
                    "pairs": [pair.to_json() for pair in group.pairs],
                    "contrasts": [pair.to_json() for pair in group.contrasts],
                    "audit": [finding.to_json() for finding in group.audit],
                }
                for group in self.groups
            ],
            "means": [dataclasses.asdict(mean) for mean in self.means],
            "footnotes": list(self.footnotes),
            "published": [finding.to_json() for finding in self.published],
        }
