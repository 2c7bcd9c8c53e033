"""A launch as plain data: what was chosen, the experiments it means, the headless command it stands for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oelm_core.errors import BadInput

if TYPE_CHECKING:
    from oelm_core.config import Experiment
    from oelm_core.config.catalogue import Catalogue
    from oelm_tui.snapshots.cards import Card


@dataclass(frozen=True)
class Plan:
    """What the launch form says."""

    arms: tuple[str, ...]
    study: str | None = None
    device: str = "auto"
    per_run: str = "1"
    seeds: str = ""
    settings: str = ""
    after: str = ""
    launcher: str = "local"
    presets: str = ""
    """The folder of the user's own presets, when the screen was opened with one."""

    def seed_numbers(self) -> list[int]:
        """`42 43` or `42,43`, each once; none means the preset's own (or the study's list)."""
        try:
            return list(dict.fromkeys(int(part) for part in self.seeds.replace(",", " ").split()))
        except ValueError:
            raise BadInput(f"seeds '{self.seeds}': write whole numbers, for example 42 43 44.") from None

    def cards_per_run(self) -> int:
        if not self.per_run.strip().isdigit() or int(self.per_run) < 1:
            raise BadInput(f"cards per run '{self.per_run}': write a whole number from 1 on.")
        return int(self.per_run)

    def setting_texts(self) -> list[str]:
        try:
            return shlex.split(self.settings)
        except ValueError:
            raise BadInput("settings: a quote is not closed.") from None

    def command(self) -> list[str]:
        """The same thing without the screen."""
        seeds = self.seed_numbers()
        words = ["oelm", "study", self.study] if self.study else ["oelm", "run", *self.arms]
        if self.device != "auto":
            words += ["--device", self.device]
        if self.cards_per_run() != 1:
            words += ["--per-run", str(self.cards_per_run())]
        words += [part for seed in seeds for part in ("--seed", str(seed))]
        words += [part for text in self.setting_texts() for part in ("--set", text)]
        if self.after:
            words += ["--after", self.after]
        if self.launcher != "local":
            words += ["--launcher", self.launcher]
        if self.presets:
            words += ["--presets", self.presets]
        return words


def experiments(plan: Plan, catalogue: Catalogue) -> list[Experiment]:
    """The arms with the settings applied; BadInput with one sentence when they do not fit."""
    from oelm_core.config import override

    names = catalogue.study(plan.study).arms if plan.study else plan.arms
    return [override(catalogue.named(name), plan.setting_texts()) for name in names]


def check(plan: Plan, catalogue: Catalogue) -> list[Experiment]:
    """Everything that can be refused before anything starts."""
    found = experiments(plan, catalogue)
    plan.seed_numbers()
    plan.cards_per_run()
    return found


def launch(plan: Plan, catalogue: Catalogue, started: Callable[[str], object]) -> list[str]:
    """Starts everything; runs in a thread. `started` hears each run id."""
    from oelm_core.launch import launcher
    from oelm_core.runs.store import find_run

    found = check(plan, catalogue)
    seeds = plan.seed_numbers()
    # Found once: with several arms, @last would else mean the arm just started.
    after = find_run(plan.after).id if plan.after else None
    options: dict[str, Any] = {
        "device": plan.device,
        "per_run": plan.cards_per_run(),
        "after": after,
        "command": plan.command(),
    }
    ids: list[str] = []

    def tell(folder: Any) -> None:
        ids.append(folder.id)
        started(folder.id)

    if plan.study:
        study = catalogue.study(plan.study)
        options |= {"pause": study.pause, "started": tell}
        launcher.start_study(plan.launcher, study.id, found, seeds or study.seeds, **options)
        return ids
    for experiment in found:
        for seed in seeds or [experiment.seed]:
            tell(launcher.start(plan.launcher, experiment, seed=seed, **options))
    return ids


def total_runs(plan: Plan, catalogue: Catalogue, found: Sequence[Experiment]) -> int:
    seeds = plan.seed_numbers()
    if plan.study:
        return len(found) * len(seeds or catalogue.study(plan.study).seeds)
    return len(found) * max(1, len(seeds))


def would_wait(plan: Plan, cards: Sequence[Card]) -> str:
    """Why the first run could not start at once, in a sentence; nothing when it can."""
    if plan.device == "cpu" or not cards:
        return ""
    named = plan.device.split(",")
    wanted = [card for card in cards if plan.device == "auto" or card.index in named]
    free, needed = [card for card in wanted if card.whose == "free"], plan.cards_per_run()
    if len(free) >= needed:
        return ""
    if needed > 1:
        return f"{needed} free cards are needed and {len(free)} found; choose others, or let it wait"
    which = "every card" if plan.device == "auto" else "GPU " + " and ".join(card.index for card in wanted)
    return f"{which} is busy; choose another card, or let it wait"
