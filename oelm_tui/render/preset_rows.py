"""The presets as a tree in rows: family, data set, arms, each with its mark, our best result and the published one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oelm_core import formatting
from oelm_core.data.sets import set_title
from oelm_core.metric import metric_named
from oelm_core.registry import FAMILIES, method_name
from oelm_core.runs.status import LIVE
from oelm_tui import glyphs
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.text import Column, Row, Span

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue

COLUMNS = (
    Column("name", "preset", 23, grow=True, keep=100),
    Column("seeds", "n", 2, right=True, keep=10),
    Column("best", "best", 6, right=True, keep=50),
    Column("published", "pub", 6, right=True, keep=40),
)


@dataclass
class Tally:
    """What our runs of one preset say together."""

    live: int = 0
    finished: int = 0
    seeds: set[int] = field(default_factory=set)
    best: float | None = None


def tallies(views: Iterable[RunView]) -> dict[str, Tally]:
    """By lower-case preset id."""
    found: dict[str, Tally] = {}
    for view in views:
        run = view.run
        tally = found.setdefault(run.preset.lower(), Tally())
        if run.state in LIVE:
            tally.live += 1
        elif run.state == "finished":
            tally.finished += 1
            tally.seeds.add(run.seed)
            value = run.metric_value
            if value is not None and metric_named(run.metric_name).better(value, tally.best):
                tally.best = value
    return found


def tree_rows(catalogue: Catalogue, views: Sequence[RunView], is_open: set[str]) -> list[Row]:
    """`is_open`: keys of unfolded groups. Keys: `family/bert`, `data/bert/sst2`, `arm/sst2-oelm`, `study/demo`."""
    counted = tallies(views)
    rows: list[Row] = []
    for family, sets in grouped(catalogue).items():
        key = f"family/{family}"
        rows.append(_group(key, FAMILIES[family].title, 0, key in is_open, "label"))
        if key not in is_open:
            continue
        for name, arms in sets.items():
            key = f"data/{family}/{name}"
            rows.append(_group(key, set_title(name), 1, key in is_open, ""))
            if key in is_open:
                rows += [_arm(arm, counted.get(arm.id.lower(), Tally())) for arm in arms]
    if catalogue.studies:
        rows.append(_group("studies", "Studies", 0, "studies" in is_open, "label"))
        if "studies" in is_open:
            rows += [_study(study.id, study.arms, study.seeds, counted) for study in catalogue.studies.values()]
    if catalogue.warnings:
        rows.append(_group("warnings", f"{len(catalogue.warnings)} broken", 0, "warnings" in is_open, "bad"))
        if "warnings" in is_open:
            rows += [Row(f"warning/{i}", {"name": (f"  {text}", "bad")}) for i, text in enumerate(catalogue.warnings)]
    return rows


def grouped(catalogue: Catalogue) -> dict[str, dict[str, list[Experiment]]]:
    """By family and data set, demo sets first; within a set what was published, then baselines, then the rest."""
    families: dict[str, dict[str, list[Experiment]]] = {}
    ordered = sorted(catalogue.experiments.values(), key=lambda e: (e.family, not e.id.startswith("demo")))
    for experiment in ordered:
        families.setdefault(experiment.family, {}).setdefault(experiment.data.name, []).append(experiment)
    for sets in families.values():
        for arms in sets.values():
            usual = Counter(arm.model.name for arm in arms).most_common(1)[0][0]
            arms.sort(key=lambda e: (e.published is None, e.model.name != usual, not e.is_baseline))
    return families


def open_at_first(catalogue: Catalogue, views: Sequence[RunView]) -> set[str]:
    """Families and studies unfolded; data sets where something was run, or the demo's when nothing was."""
    ran = {view.run.preset.lower() for view in views}
    opened = {"studies"} if len(catalogue.studies) <= 12 else set()
    for family, sets in grouped(catalogue).items():
        opened.add(f"family/{family}")
        for name, arms in sets.items():
            if any(arm.id.lower() in ran for arm in arms) or (not ran and arms[0].id.startswith("demo")):
                opened.add(f"data/{family}/{name}")
    return opened


def _group(key: str, title: str, depth: int, opened: bool, role: str) -> Row:
    sign = glyphs.signs.open if opened else glyphs.signs.shut
    return Row(key, {"name": ((" " * depth + sign + " ", "faint"), (title, role or ""))})


def _progress(live: bool, done: int, wanted: int) -> Span:
    """The mark of an arm or a study."""
    signs = glyphs.signs
    if live:
        return signs.partly, "ok"
    if not done:
        return signs.never, "faint"
    return (signs.done, "done") if done >= wanted else (signs.partly, "wait")


def _arm(experiment: Experiment, tally: Tally) -> Row:
    sign, role = _progress(tally.live > 0, tally.finished, 1)
    name = (arm_name(experiment), "faint" if sign == glyphs.signs.never else "")
    published = getattr(experiment.published, experiment.metric, None) if experiment.published else None
    return Row(
        f"arm/{experiment.id}",
        {
            "name": (
                ("  ", ""),
                (sign + " ", role),
                name,
            ),
            "seeds": (str(len(tally.seeds)) if tally.seeds else "", "faint"),
            "best": formatting.metric_value(experiment.metric, tally.best) if tally.best is not None else "",
            "published": (
                formatting.metric_value(experiment.metric, published) if published is not None else "",
                "faint",
            ),
        },
    )


def arm_name(experiment: Experiment) -> str:
    """Short within its group: `sst2-oelm` and `demo-bert-oelm` are `oelm`; numbered ids get their method's name."""
    name = experiment.id
    for known in (experiment.data.name.lower(), f"demo-{experiment.family}"):
        rest = name[len(known) + 1 :]
        if name.lower().startswith(f"{known}-") and not rest.isdigit():
            return rest
    numbered = name.rpartition("-")[2].isdigit()
    return f"{name} {method_name(experiment.method.name)}" if numbered else name


def _study(name: str, arms: Sequence[str], seeds: Sequence[int], counted: dict[str, Tally]) -> Row:
    mine = [counted.get(arm.lower(), Tally()) for arm in arms]
    done = sum(len(tally.seeds & set(seeds)) for tally in mine)
    wanted = len(arms) * len(seeds)
    sign, role = _progress(any(tally.live for tally in mine), done, wanted)
    share = f"{done}/{wanted}" if done else ""
    return Row(
        f"study/{name}",
        {"name": ((" ", ""), (sign + " ", role), (name, "" if done else "faint")), "best": (share, "faint")},
    )


def about(catalogue: Catalogue, key: str) -> str:
    """One sentence on what the row under the cursor is."""
    kind, _, name = key.partition("/")
    if kind == "arm" and name in catalogue.experiments:
        experiment = catalogue.experiments[name]
        return f"{experiment.title} {glyphs.signs.dot} {method_name(experiment.method.name)}"
    if kind == "study" and name in catalogue.studies:
        return catalogue.studies[name].question
    return ""
