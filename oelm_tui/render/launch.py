"""What the launch form shows: the devices to choose from, the recipe, the cost and the command."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oelm_core import formatting
from oelm_core.changes import as_text, flattened
from oelm_core.data.sets import set_title
from oelm_core.registry import method_name
from oelm_tui import glyphs
from oelm_tui.render.devices import OWNER_ROLES
from oelm_tui.snapshots.cards import Machine, owner_of
from oelm_tui.text import Cell, Column, Line, Row, heading, named, named_lines, wrapped

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.estimate import Cost
    from oelm_core.launch.request import LaunchRequest

DEVICE_COLUMNS = (
    Column("name", "device", 8, keep=100),
    Column("free", "free", 6, right=True, keep=80),
    Column("use", "use", 4, right=True, keep=60),
    Column("who", "who is on it", 10, keep=90, grow=True),
)


def device_rows(machine: Machine | None, names: dict[str, str]) -> list[Row]:
    rows = [
        Row("auto", {"name": "auto", "who": ("the next free card", "faint")}),
        Row("cpu", {"name": "cpu", "who": (f"{machine.here.cpu.cores if machine else '?'} cores", "faint")}),
    ]
    if machine is None:
        return rows
    if not machine.cards:
        rows[0] = Row("auto", {"name": "auto", "who": ("no card here: the processor", "faint")})
    for card in machine.cards:
        owner = owner_of(card)
        label = names.get(owner.name, owner.name)
        who = {"free": "free", "ours": f"ours: {label}", "other": f"{label} (asks first)", "lost": f"lost: {label}"}
        use = "" if card.utilisation is None else f"{card.utilisation:.0f}%"
        cells: dict[str, Cell] = {
            "name": (f"GPU {card.label}", ""),
            "free": formatting.size_short(card.memory_free),
            "use": use,
            "who": (who[owner.kind], OWNER_ROLES[owner.kind]),
        }
        rows.append(Row(card.label, cells))
    return rows


COMPLETIONS = 8


def completion_lines(word: str, experiments: Sequence[Experiment], width: int) -> list[Line]:
    """What the word being typed may become: each key with its present value and its meaning, or the key's values."""
    from oelm_core.config import as_dict
    from oelm_core.config.setting_keys import completions

    found = completions(word) if word else []
    if not found:
        return []
    values = flattened(as_dict(experiments[0])) if experiments else {}
    lines: list[Line] = [heading("Settings (tab completes)")]
    if "=" in word:
        offered = "  ".join(one.word.partition("=")[2] for one in found if one.word != word)
        lines += [[(f"  {offered}", "accent")]] if offered else []
        return [*lines, *wrapped(found[0].meaning, width, "faint"), []]
    room = min(28, max(len(one.word) for one in found[:COMPLETIONS]))
    for one in found[:COMPLETIONS]:
        key = one.word.rstrip("=")
        value = as_text(values[key]) if key in values else ""
        left = max(10, width - room - 14)
        meaning = one.meaning if len(one.meaning) <= left else one.meaning[: left - 1].rstrip() + glyphs.signs.ellipsis
        lines.append([(f"  {key:<{room}} ", "key"), (f"{value[:9]:<10}", ""), (meaning, "faint")])
    if len(found) > COMPLETIONS:
        lines.append([(f"  and {len(found) - COMPLETIONS} more", "faint")])
    return [*lines, []]


def run_lines(request: LaunchRequest, experiments: Sequence[Experiment], own: Sequence[int], width: int) -> list[Line]:
    """Which runs it makes: arms and seeds. `own`: a study's seeds."""
    if request.study or len(experiments) > 3:
        seeds = request.seeds or own
        said = f"; {_seed_words(seeds)}" if seeds else ""
        return wrapped(f"{len(experiments)} arms{said}", width)
    lines: list[Line] = []
    for arm in experiments:
        lines += wrapped(f"{arm.id}: {_seed_words(request.seeds or (arm.seed,))}", width)
    return lines


def _seed_words(seeds: Sequence[int]) -> str:
    from oelm_core.config.seeds import seed_ranges

    return f"seed{'s' * (len(seeds) > 1)} {', '.join(seed_ranges(seeds))}"


def recipe_lines(
    experiment: Experiment, cost: Cost | None, width: int, looked: str = "", problem: str = ""
) -> list[Line]:
    """One arm: what it is, what it will cost (None while that is being found out).

    `looked`: what is at its data.path; `problem`: why a run would not find its text there.
    """
    train, data, method = experiment.train, experiment.data, experiment.method
    dot = f" {glyphs.signs.dot} "
    lines: list[Line] = [[(experiment.id, "title"), (f"  {experiment.title}", "")]]
    frozen = ", ".join(method.freeze) or "nothing"
    words = f"{method_name(method.name)}{dot}init {method.init}{dot}frozen: {frozen}"
    lines += named_lines("method", words, width, 14)
    batch = f"{train.batch_size}" + (f" x {train.accumulate}" if train.accumulate > 1 else "")
    recipe = [f"lr {train.lr:g}", train.schedule, f"batch {batch}", f"length {data.max_length}", train.precision]
    lines += named_lines("recipe", dot.join(recipe), width, 14)
    lines += named_lines("data", f"{set_title(data.name)}{dot}{experiment.model.name}", width, 14)
    if data.path:
        role = "bad" if problem else "faint"
        lines += wrapped(problem or looked or f"looking at {data.path}", width, role, indent=" " * 14)
    lines += cost_lines(cost, width) if cost else [named("cost", "looking at earlier runs", width=14, role="faint")]
    if experiment.baseline:
        lines.append(named("baseline", experiment.baseline, width=14))
    if experiment.about:
        lines += wrapped(experiment.about, width, "faint")
    return [*lines, []]


def cost_lines(cost: Cost, width: int) -> list[Line]:
    """Steps, time, memory and parameters, each with what it is known by."""

    def line(name: str, value: str, by: str) -> list[Line]:
        if not value:  # only words on why it is not known
            first, *more = textwrap.wrap(by, max(20, width - 16))
            return [named(name, first, width=14), *([(" " * 14 + rest, "")] for rest in more)]
        if 14 + len(value) + 2 + len(by) <= width:
            return [named(name, value, (f"  {by}", "faint"), 14)]
        return [named(name, value, width=14), *wrapped(by, width, "faint", indent=" " * 14)]

    time = f"{cost.seconds_sign} {formatting.duration(cost.seconds)}".strip() if cost.seconds is not None else ""
    lines = line("steps", f"{cost.steps:,}" if cost.steps else "", cost.steps_from)
    lines += line("time", time, cost.seconds_from)
    lines += line("memory", formatting.size_short(cost.memory) if cost.memory else "", cost.memory_from)
    if cost.together:
        lines += line("together", "", cost.together)
    if cost.parameters and cost.frozen is not None:
        share = cost.frozen / cost.parameters * 100
        lines += line("parameters", f"{cost.parameters:,}", f"{cost.frozen:,} frozen ({share:.1f} %)")
    return lines


def changed_lines(settings: Sequence[str], experiments: Sequence[Experiment]) -> list[Line]:
    """The settings as they came out, so that a misread one is seen."""
    from oelm_core.config import as_dict

    if not settings or not experiments:
        return []
    from oelm_core.config.setting_keys import full_key

    values = flattened(as_dict(experiments[0]))
    lines: list[Line] = [heading("Settings as read")]
    for text in settings:
        key = full_key(text.partition("=")[0].strip())
        lines.append(named(key, as_text(values.get(key)), width=24, role="accent"))
    return [*lines, []]


def command_lines(request: LaunchRequest, width: int) -> list[Line]:
    return [heading("The same without the screen (^y copies)"), *wrapped(shlex.join(request.command()), width, "key")]
