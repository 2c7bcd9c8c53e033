"""The tables of a report as plain cells: each format only lays them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oelm_core.compare.comparison import Arm, Comparison, Finding, Group, Measure, Pair, SignificanceTest
from oelm_core.compare.settings import LABELS, settings_of, shown
from oelm_core.formatting import duration_words, metric_value, p_value, percent, points, relative, size, step_time
from oelm_core.metric import metric_named
from oelm_core.registry import is_orthonormal
from oelm_core.report.headings import Words

DASH = "-"
ARROWS = {"higher": "↑", "lower": "↓"}
MARKS = {"met": "✔", "missed": "✗", "unknown": "?", "no target": ""}
GRADE_MARKS = {"breaks": "✗", "confounds": "⚠", "note": "·"}
REFUTED, OTHER = "⚠", "≠"
"""Marks of a published figure: contradicted by what else was published; of another network or recipe than was run."""


@dataclass(frozen=True)
class Table:
    """Cells as text. `align` has one of l, r, c per column; `strong` numbers the rows to stress."""

    title: str
    columns: tuple[str, ...]
    align: str
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()


class References:
    """Sources of published figures, numbered in the order they are cited, and what is wrong with the figures."""

    def __init__(self) -> None:
        self._sources: list[str] = []
        self._doubts: list[str] = []

    def doubt(self, line: str) -> None:
        if line not in self._doubts:
            self._doubts.append(line)

    def cite(self, source: str) -> str:
        if source not in self._sources:
            self._sources.append(source)
        return f"[{self._sources.index(source) + 1}]"

    def lines(self) -> list[str]:
        cited = [f"[{number}] {source} (published by the author)" for number, source in enumerate(self._sources, 1)]
        return cited + self._doubts


def _columns(
    title: str,
    words: Words,
    columns: Sequence[tuple[str, str, Sequence[str]]],
    *,
    keep: int = 1,
    strong: tuple[int, ...] = (),
) -> Table:
    """A table from (heading, align, cells) columns; a column that says nothing is dropped, the first `keep` stay."""
    used = [
        column
        for place, column in enumerate(columns)
        if place < keep or any(cell not in ("", DASH) for cell in column[2])
    ]
    if len(used) < 2 or not used[0][2]:
        return Table(title, (), "", ())
    rows = tuple(zip(*(cells for _, _, cells in used), strict=True))
    return Table(title, tuple(words(h) for h, _, _ in used), "".join(a for _, a, _ in used), rows, strong)


def with_spread(found: Measure | None, show: Callable[[float], str]) -> str:
    """ "91.28 % ± 0.12 (3)": mean, spread between seeds, how many."""
    if found is None:
        return DASH
    text = show(found.mean)
    if found.std is not None:
        number, _, unit = show(found.std).partition(" ")
        text = f"{text.removesuffix(' ' + unit) if unit else text} ± {number}" + (f" {unit}" if unit else "")
    return text


def gap(pair: Pair | None, value: float | None = None) -> str:
    value = pair.delta if pair and value is None else value
    if pair is None or value is None:
        return DASH
    return points(value) if pair.kind == "points" else relative(value)


def gap_cell(group: Group, pair: Pair | None, references: References | None = None) -> str:
    """The gap, with ✗ when the audit says that the comparison is broken; why goes to the references."""
    text = gap(pair)
    broken = group.broken(pair.arm) if pair and text != DASH else None
    if broken is None:
        return text
    if references and pair:
        references.doubt(f"{GRADE_MARKS['breaks']} the gap of {pair.arm} does not stand: {broken.why}")
    return f"{GRADE_MARKS['breaks']} {text}"


def interval(pair_kind: str, bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return DASH
    if pair_kind == "points":
        return f"[{bounds[0] * 100:+.2f}, {bounds[1] * 100:+.2f}] pp"
    return f"[{bounds[0] * 100:+.1f}, {bounds[1] * 100:+.1f}] %"


def published_value(arm: Arm, metric: str, references: References | None = None) -> str:
    value = (arm.published or {}).get(metric)
    if not isinstance(value, (int, float)):
        return DASH
    text = published_mark(arm, metric, metric_value(metric, value, unit=True), references)
    return f"{text} {references.cite(str((arm.published or {}).get('source')))}" if references else text


def published_mark(arm: Arm, figure: str, text: str, references: References | None = None) -> str:
    """The figure with ⚠ when it is refuted and ≠ when it is of something else; why goes to the references."""
    published = arm.published or {}
    why, differs = (published.get("refuted") or {}).get(figure), published.get("differs")
    if references and why:
        references.doubt(f"{REFUTED} {arm.preset}, published {text}: {why}")
    if references and differs:
        references.doubt(f"{OTHER} published for another network or recipe than was run here; see the fairness audit.")
    return "".join(f"{mark} " for mark, is_so in ((REFUTED, why), (OTHER, differs)) if is_so) + text


def verdict_cell(pair: Pair | None, words: Words) -> str:
    if pair is None or pair.verdict == "no target":
        return DASH
    return f"{MARKS[pair.verdict]} {words(pair.verdict)}"


def results_table(group: Group, words: Words, references: References | None = None) -> Table:
    """The experiment matrix: one row an arm, the baseline first."""
    pairs = [group.pair(arm.id) for arm in group.arms]
    metric = f"{words(group.metric)} {ARROWS[group.direction]}"
    return _columns(
        f"{group.dataset}, {group.model}",
        words,
        [
            ("Arm", "l", [arm.id for arm in group.arms]),
            ("Method", "l", [arm.method for arm in group.arms]),
            (metric, "r", [_metric_cell(arm, group) for arm in group.arms]),
            ("Gap", "r", [gap_cell(group, pair, references) for pair in pairs]),
            ("95 % interval", "r", [interval(p.kind, p.interval) if p else DASH for p in pairs]),
            (
                "p",
                "r",
                [
                    p_value(p.p).removeprefix("p = ").removeprefix("p ") if p and p.p is not None else DASH
                    for p in pairs
                ],
            ),
            ("Kept", "r", [percent(p.retention, 1) if p and p.retention is not None else DASH for p in pairs]),
            ("Target", "l", [verdict_cell(pair, words) for pair in pairs]),
            ("Seeds", "r", [str(len(arm.seeds)) for arm in group.arms]),
            ("Published", "r", [published_value(arm, group.metric, references) for arm in group.arms]),
        ],
        keep=3,
        strong=tuple(place for place, arm in enumerate(group.arms) if arm.id == group.baseline),
    )


def _metric_cell(arm: Arm, group: Group) -> str:
    return with_spread(arm.metric, lambda v: metric_value(group.metric, v, unit=True)) if arm.metric else "no result"


def measures_table(group: Group, words: Words) -> Table:
    def cells(name: str, show: Callable[[float], str]) -> list[str]:
        return [with_spread(arm.measures.get(name), show) for arm in group.arms]

    def value(name: str) -> Callable[[float], str]:
        return lambda v: metric_value(name, v, unit=True)

    extra = [
        (name, "r", cells(name, value(name)))
        for name in ("matthews", "mismatched_accuracy")
        if name != group.metric and any(name in arm.measures for arm in group.arms)
    ]
    return _columns(
        words("More measures"),
        words,
        [
            ("Arm", "l", [arm.id for arm in group.arms]),
            ("Final", "r", cells("final", value(group.metric))),
            ("Loss", "r", cells("loss", lambda v: f"{v:.4f}")),
            *([("F1", "r", cells("f1", lambda v: f"{v:.4f}"))] if group.metric != "f1" else []),
            *extra,
            ("Steps to 80 %", "r", cells("reached_80_step", lambda v: f"{v:,.0f}")),
            ("Time to 80 %", "r", cells("reached_80_seconds", duration_words)),
            ("Steps to 90 %", "r", cells("reached_90_step", lambda v: f"{v:,.0f}")),
            ("Time to 90 %", "r", cells("reached_90_seconds", duration_words)),
        ],
    )


def parameters_table(group: Group, words: Words) -> Table:
    def count(arm: Arm, name: str) -> str:
        found = arm.mean(name)
        return f"{found:,.0f}" if found is not None else DASH

    def share(arm: Arm) -> str:
        frozen, total = arm.mean("frozen"), arm.mean("total")
        return percent(frozen / total, 1) if frozen is not None and total else DASH

    savings = [pair.parameter_saving if (pair := group.pair(arm.id)) else None for arm in group.arms]
    checkpoints = [size(v) if (v := arm.mean("checkpoint_bytes")) is not None else DASH for arm in group.arms]
    return _columns(
        f"{group.dataset}, {group.model}",
        words,
        [
            ("Arm", "l", [arm.id for arm in group.arms]),
            ("Total", "r", [count(arm, "total") for arm in group.arms]),
            ("Trainable", "r", [count(arm, "trainable") for arm in group.arms]),
            ("Frozen", "r", [count(arm, "frozen") for arm in group.arms]),
            ("Frozen share", "r", [share(arm) for arm in group.arms]),
            ("Saved", "r", [percent(s, 1) if s is not None else DASH for s in savings]),
            ("Checkpoint", "r", checkpoints),
        ],
    )


def timing_table(group: Group, words: Words, references: References | None = None) -> Table:
    def mean(arm: Arm, name: str, show: Callable[[float], str]) -> str:
        found = arm.mean(name)
        return show(found) if found is not None else DASH

    if not any("step_time" in arm.measures or "seconds" in arm.measures for arm in group.arms):
        return Table(words("Timing"), (), "", ())
    deltas = [pair.step_time_delta if (pair := group.pair(arm.id)) else None for arm in group.arms]
    published = [(arm, (arm.published or {}).get("step_time")) for arm in group.arms]
    return _columns(
        f"{group.dataset}, {group.model}",
        words,
        [
            ("Arm", "l", [arm.id for arm in group.arms]),
            ("Runs", "r", [str(len(arm.runs)) for arm in group.arms]),
            ("Per step", "r", [with_spread(arm.measures.get("step_time"), step_time) for arm in group.arms]),
            ("Gap", "r", [relative(d) if d is not None else DASH for d in deltas]),
            ("Median", "r", [mean(arm, "step_time_median", step_time) for arm in group.arms]),
            ("p95", "r", [mean(arm, "step_time_p95", step_time) for arm in group.arms]),
            ("Tokens/s", "r", [mean(arm, "tokens_per_s", lambda v: f"{v:,.0f}") for arm in group.arms]),
            ("Total time", "r", [mean(arm, "seconds", duration_words) for arm in group.arms]),
            ("Peak memory", "r", [mean(arm, "memory", size) for arm in group.arms]),
            (
                "Published",
                "r",
                [
                    published_mark(arm, "step_time", step_time(v), references) if isinstance(v, (int, float)) else DASH
                    for arm, v in published
                ],
            ),
        ],
    )


def curve_table(group: Group, words: Words, most_rows: int = 12) -> Table:
    """Validation metric by step, mean over seeds; long curves are thinned evenly, the last step kept."""
    by_arm: list[dict[int, float]] = []
    for arm in group.arms:
        collected: dict[int, list[float]] = {}
        for curve in arm.curves.get(group.metric, ()):
            for step, value in curve.points:
                collected.setdefault(step, []).append(value)
        by_arm.append({step: sum(values) / len(values) for step, values in collected.items()})
    steps = sorted({step for arm in by_arm for step in arm})
    stride = -(-len(steps) // most_rows) if steps else 1
    chosen = [step for place, step in enumerate(reversed(steps)) if place % stride == 0][::-1]
    columns: list[tuple[str, str, Sequence[str]]] = [("Step", "r", [f"{step:,}" for step in chosen])]
    for arm, values in zip(group.arms, by_arm, strict=True):
        columns.append(
            (arm.id, "r", [metric_value(group.metric, values[s], unit=True) if s in values else DASH for s in chosen])
        )
    return _columns(f"{words('Validation curve')}: {group.dataset}, {words(group.metric)}", words, columns)


def across_table(comparison: Comparison, words: Words) -> Table:
    """One line per data set and arm, then the mean per method where it is over several data sets of one metric."""
    pairs = [(group, pair) for group in comparison.groups for pair in group.pairs if pair.delta is not None]
    if len({group.dataset for group, _ in pairs}) < 2:
        return Table(words("Across data sets"), (), "", ())
    rows = []
    for group, pair in pairs:
        arm, base = group.arm(pair.arm), group.arm(pair.baseline)
        kept = percent(pair.retention, 1) if pair.retention is not None else DASH
        rows.append(
            (
                group.dataset,
                arm.method,
                _metric_cell(base, group),
                _metric_cell(arm, group),
                gap_cell(group, pair),
                kept,
            )
        )
    for method, kind in dict.fromkeys((group.arm(pair.arm).method, pair.kind) for group, pair in pairs):
        same = [p for g, p in pairs if g.arm(p.arm).method == method and p.kind == kind]
        if len(same) > 1:
            mean = sum(p.delta or 0.0 for p in same) / len(same)
            kept_all = [p.retention for p in same if p.retention is not None]
            kept = percent(sum(kept_all) / len(kept_all), 1) if kept_all else DASH
            rows.append((words("Mean"), method, DASH, DASH, gap(same[0], mean), kept))
    headings = ("Data set", "Method", "Baseline", "Arm", "Gap", "Kept")
    return Table(words("Across data sets"), tuple(words(h) for h in headings), "llrrrr", tuple(rows))


def ablation_table(group: Group, words: Words) -> Table:
    """Frozen arms by how Q/K start, against the first orthonormal one; empty unless some start otherwise."""
    frozen = [(arm, settings_of(arm.config)) for arm in group.arms]
    frozen = [(arm, s) for arm, s in frozen if s["freeze"]]
    reference = next((arm for arm, s in frozen if is_orthonormal(s["init"])), None)
    if reference is None or all(is_orthonormal(s["init"]) for _, s in frozen):
        return Table(words("Ablation"), (), "", ())
    rows = []
    for arm, settings in frozen:
        change = DASH
        if arm is not reference and arm.metric and reference.metric:
            if metric_named(group.metric).is_share:
                change = points(arm.metric.mean - reference.metric.mean)
            else:
                change = relative(arm.metric.mean / reference.metric.mean - 1)
        start = f"{settings['init']}, {'pretrained rows' if settings['qk_from'] == 'pretrained' else 'random draw'}"
        rows.append((arm.id, start, shown("qk_norm", settings["qk_norm"]), _metric_cell(arm, group), change))
    headings = ("Arm", "Q/K start", "Row norm", group.metric, "Gap")
    title = f"{words('Ablation')}: {group.dataset}"
    return Table(title, tuple(words(h) for h in headings), "llrrr", tuple(rows))


def significance_table(comparison: Comparison, words: Words) -> Table:
    rows = []
    for group in comparison.groups:
        for pair in group.pairs:
            for test in pair.tests:
                rows.append(_test_row(group, pair, test))
            if not pair.tests:
                rows.append((pair.arm, DASH, DASH, DASH, DASH, pair.words))
    headings = ("Arm", "Test", "n", "95 % interval", "p", "In words")
    return Table(words("Significance"), tuple(words(h) for h in headings), "llrrrl", tuple(rows))


def _test_row(group: Group, pair: Pair, test: SignificanceTest) -> tuple[str, ...]:
    kind = "relative" if test.over == "timing" else pair.kind
    seed = f", seed {test.seed}" if test.seed is not None and len(group.arm(pair.arm).seeds) > 1 else ""
    p = p_value(test.p).removeprefix("p = ").removeprefix("p ") if test.p is not None else DASH
    alone = test is pair.tests[0]
    return (
        pair.arm,
        f"{test.name}{seed}",
        f"{test.n:,}",
        interval(kind, test.interval),
        p,
        pair.words if alone else test.words,
    )


def fairness_table(
    findings: Sequence[Finding], words: Words, *, title: str | None = None, with_source: bool = False
) -> Table:
    return _columns(
        title or words("Published figures" if with_source else "Fairness"),
        words,
        [
            ("Grade", "l", [f"{GRADE_MARKS[f.grade]} {words(f.grade)}" for f in findings]),
            ("What", "l", [f.what for f in findings]),
            ("Arms", "l", [", ".join(f.arms) for f in findings]),
            ("Why", "l", [f.why for f in findings]),
            ("Settle with", "l", [f.settle_with or DASH for f in findings]),
            ("Source", "l", [f.source or DASH for f in findings] if with_source else [DASH] * len(findings)),
        ],
        keep=4,
    )


def recipe_table(group: Group, words: Words) -> Table:
    """Only the settings in which the arms differ."""
    every = [settings_of(arm.config) for arm in group.arms]
    names = [name for name in LABELS if any(s.get(name) != every[0].get(name) for s in every)]
    columns: list[tuple[str, str, Sequence[str]]] = [("Setting", "l", [words(LABELS[name]) for name in names])]
    columns += [
        (arm.id, "l", [shown(name, s.get(name)) for name in names]) for arm, s in zip(group.arms, every, strict=True)
    ]
    return _columns(f"{group.dataset}, {group.model}", words, columns, keep=len(columns))
