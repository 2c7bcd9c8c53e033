"""The presets as a tree in rows: family, data set, arms, each with its mark, our mean result and the published one."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oelm_core import formatting
from oelm_core.data.sets import set_title
from oelm_core.registry import FAMILIES, method_name
from oelm_core.runs.status import LIVE
from oelm_tui import glyphs
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.text import Column, Row, Span

if TYPE_CHECKING:
    from oelm_core.config import Experiment, Study
    from oelm_core.config.catalogue import Catalogue

COLUMNS = (
    Column("name", "preset", 23, grow=True, keep=100),
    Column("seeds", "n", 2, right=True, keep=10),
    Column("mean", "mean", 6, right=True, keep=50),
    Column("published", "pub", 6, right=True, keep=40),
)


@dataclass
class Tally:
    """What our runs of one preset say together."""

    live: int = 0
    changed: int = 0
    """Finished ones with other settings than the preset's."""
    by_seed: dict[int, float | None] = field(default_factory=dict)
    """The result of each seed's newest finished run of the preset as it is."""

    @property
    def seeds(self) -> set[int]:
        return set(self.by_seed)

    @property
    def mean(self) -> float | None:
        """Over seeds: the luckiest one says little."""
        values = [value for value in self.by_seed.values() if value is not None]
        return statistics.fmean(values) if values else None


def tallies(views: Iterable[RunView], recipes: Mapping[str, str]) -> dict[str, Tally]:
    """By lower-case preset id. `views` are the newest first, `recipes` the presets' own configuration hashes."""
    found: dict[str, Tally] = {}
    for view in views:
        run = view.run
        name = run.preset.lower()
        tally = found.setdefault(name, Tally())
        if run.state in LIVE:
            tally.live += 1
        elif run.state == "finished" and run.config_hash != recipes.get(name, run.config_hash):
            tally.changed += 1
        elif run.state == "finished":
            tally.by_seed.setdefault(run.seed, run.metric_value)
    return found


_known: list[tuple[Catalogue, dict[str, str]]] = []


def recipes_of(catalogue: Catalogue) -> dict[str, str]:
    """The configuration hash of every preset, by lower-case id; computed once a catalogue."""
    if not _known or _known[0][0] is not catalogue:
        from oelm_core.config import as_dict, config_hash

        _known[:] = [(catalogue, {arm.id.lower(): config_hash(as_dict(arm)) for arm in catalogue.experiments.values()})]
    return _known[0][1]


def words_of(preset: Experiment | Study) -> str:
    """Everything a preset or a study can be found by, lower-case."""
    words = [preset.id, preset.title]
    if isinstance(found := getattr(preset, "question", None), str):
        return " ".join([*words, found]).lower()
    arm: Experiment = preset  # type: ignore[assignment]
    method = (arm.method.name, method_name(arm.method.name))
    return " ".join(
        [*words, arm.about, arm.family, arm.data.name, set_title(arm.data.name), *method, arm.model.name]
    ).lower()


def found_rows(catalogue: Catalogue, views: Sequence[RunView], text: str) -> list[Row]:
    """The tree with only what has all these words, everything unfolded."""
    words = text.lower().split()

    def kept(presets: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in presets.items() if all(word in words_of(one) for word in words)}

    some = replace(catalogue, experiments=kept(catalogue.experiments), studies=kept(catalogue.studies), warnings=[])
    opened = {"studies", *(f"family/{family}" for family in FAMILIES)}
    opened |= {f"data/{one.family}/{one.data.name}" for one in some.experiments.values()}
    return tree_rows(some, views, opened, recipes_of(catalogue))


def tree_rows(
    catalogue: Catalogue, views: Sequence[RunView], is_open: set[str], recipes: Mapping[str, str] | None = None
) -> list[Row]:
    """`is_open`: keys of unfolded groups. Keys: `family/bert`, `data/bert/sst2`, `arm/sst2-oelm`, `study/demo`."""
    counted = tallies(views, recipes_of(catalogue) if recipes is None else recipes)
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
    place = {family: number for number, family in enumerate(FAMILIES)}
    ordered = sorted(catalogue.experiments.values(), key=lambda e: (place[e.family], not e.id.startswith("demo")))
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
    done = 2 if tally.seeds else 1 if tally.changed else 0
    sign, role = _progress(tally.live > 0, done, 2)
    name, method = arm_name(experiment)
    published = getattr(experiment.published, experiment.metric, None) if experiment.published else None
    return Row(
        f"arm/{experiment.id}",
        {
            "name": (
                ("  ", ""),
                (sign + " ", role),
                (name, ""),
                (f" {method}" if method else "", "faint"),
            ),
            "seeds": (str(len(tally.seeds)) if tally.seeds else "", "faint"),
            "mean": formatting.metric_value(experiment.metric, tally.mean) if tally.mean is not None else "",
            "published": (
                formatting.metric_value(experiment.metric, published) if published is not None else "",
                "faint",
            ),
        },
    )


def arm_name(experiment: Experiment) -> tuple[str, str]:
    """Short within its group: `sst2-oelm` and `demo-bert-oelm` are `oelm`; numbered ids go with their method's name."""
    name = experiment.id
    for known in (experiment.data.name.lower(), f"demo-{experiment.family}"):
        rest = name[len(known) + 1 :]
        if name.lower().startswith(f"{known}-") and not rest.isdigit():
            return rest, ""
    numbered = name.rpartition("-")[2].isdigit()
    return name, method_name(experiment.method.name) if numbered else ""


def _study(name: str, arms: Sequence[str], seeds: Sequence[int], counted: dict[str, Tally]) -> Row:
    mine = [counted.get(arm.lower(), Tally()) for arm in arms]
    done = sum(len(tally.seeds & set(seeds)) for tally in mine)
    wanted = len(arms) * len(seeds)
    sign, role = _progress(any(tally.live for tally in mine), done, wanted)
    share = f"{done}/{wanted}" if done else ""
    return Row(
        f"study/{name}",
        {"name": ((" ", ""), (sign + " ", role), (name, "")), "mean": (share, "faint")},
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
