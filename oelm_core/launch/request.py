"""What is asked for when something is launched: the same request from the command line and from the screen's form."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from oelm_core.config import Experiment, as_dict, config_hash, override
from oelm_core.config.sections import SEEDS
from oelm_core.config.seeds import seeds_option
from oelm_core.errors import BadInput, Refused
from oelm_core.home import home
from oelm_core.launch import launcher as launchers
from oelm_core.provenance import code_state, package_versions
from oelm_core.recipe import HASH_FORM
from oelm_core.runs import process
from oelm_core.runs.folder import RunFolder
from oelm_core.runs.schema import Arrival, RunRecord, RunState, Tuning

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


class RunRequest(Struct, frozen=True):
    """One run: an arm with its settings, a seed, and where and when it may run."""

    experiment: Experiment
    seed: int
    device: str = "auto"
    """auto, cpu, or the cards it may take: 2,3."""
    per_run: int = 1
    """Devices of one run, on each of its nodes."""
    nodes: int | None = None
    """Nodes of one run; None leaves it to slurm.yaml."""
    study: str | None = None
    after: str | None = None
    """A run to wait for."""
    after_any: bool = False
    pause: float = 0.0
    """Seconds its device must have rested."""
    beside: str | None = None
    """A run on whose very device this one is to run, so that the two compare."""
    slurm: tuple[str, ...] = ()
    """Texts of --slurm."""
    command: tuple[str, ...] = ()
    tuning: Tuning | None = None
    report_to: tuple[str, ...] = ()
    """Where its curves go."""

    def record(self, launcher: str, *, after: str | None, beside: str | None) -> RunRecord:
        """run.json; `after` and `beside` are ids by now."""
        config = {**as_dict(self.experiment), "seed": self.seed}
        device, code = self.device.strip(), code_state()
        return RunRecord(
            preset=self.experiment.id,
            study=self.study,
            config=config,
            config_hash=config_hash(config),
            hash=HASH_FORM,
            seed=self.seed,
            command=list(self.command or sys.argv),
            cwd=os.getcwd(),
            host=process.host(),
            devices_asked=device.lower() if device.lower() in ("auto", "cpu") else device,
            per_run=self.per_run,
            nodes=self.nodes,
            after=after,
            after_any=self.after_any,
            pause=self.pause,
            beside=beside,
            launcher=launcher,
            worker=os.environ.get("OELM_WORKER"),
            arrival=Arrival(process.boot_id(), process.since_boot()),
            git_commit=code.commit,
            git_diff=code.diff,
            versions=package_versions(),
            created=time.time(),
            tuning=self.tuning,
            report_to=list(self.report_to),
        )


class LaunchRequest(Struct, frozen=True):
    """Presets or a study, over seeds: everything one `oelm run`, `oelm study` or launch form asks for."""

    presets: tuple[str, ...] = ()
    study: str | None = None
    seeds: tuple[int, ...] = ()
    """None means the preset's own, or the study's list."""
    settings: tuple[str, ...] = ()
    """Texts of --set."""
    device: str = "auto"
    per_run: int = 1
    nodes: int | None = None
    after: str | None = None
    after_any: bool = False
    launcher: str = "local"
    slurm: tuple[str, ...] = ()
    catalogue: str | None = None
    """The folder of the user's own presets, where one was named."""
    report_to: tuple[str, ...] | None = None
    """Texts of --report-to; None leaves it to settings.yaml."""

    def experiments(self, catalogue: Catalogue) -> list[Experiment]:
        """The arms with the settings applied; BadInput with one sentence when they do not fit."""
        launchers.check_launcher(self.launcher, self.slurm, self.nodes)
        for seed in self.seeds:
            if seed not in SEEDS:
                raise BadInput(f"seed {seed} is out of bounds; it should be a number of 64 bits.")
        names = catalogue.study(self.study).arms if self.study else self.presets
        return [override(catalogue.named(name), self.settings) for name in names]

    def run_count(self, catalogue: Catalogue) -> int:
        if self.study:
            study = catalogue.study(self.study)
            return len(study.arms) * len(self.seeds or study.seeds)
        return len(self.presets) * max(1, len(self.seeds))

    def requests(self, catalogue: Catalogue, command: Sequence[str]) -> list[RunRequest]:
        """One request a run: a study's arms interleaved (A B A B), presets one after the other."""
        from oelm_core.runs.store import find_run

        study = catalogue.study(self.study) if self.study else None
        arms = self.experiments(catalogue)
        # Found once: with several arms, @last would else mean the arm just started.
        after = find_run(self.after).id if self.after else None
        report_to = self.reports_to()
        if study:
            pairs = [(arm, seed) for seed in self.seeds or study.seeds for arm in arms]
        else:
            pairs = [(arm, seed) for arm in arms for seed in dict.fromkeys(self.seeds or (arm.seed,))]
        return [
            RunRequest(
                arm,
                seed,
                self.device,
                self.per_run,
                self.nodes,
                study=study.id if study else None,
                after=after,
                after_any=self.after_any,
                pause=study.pause if study else 0.0,
                slurm=self.slurm,
                command=tuple(command),
                report_to=report_to,
            )
            for arm, seed in pairs
        ]

    def reports_to(self) -> tuple[str, ...]:
        """Where the curves go. What the command line names must be installed; what the settings name need not yet."""
        from oelm_core.mirror.targets import missing, target_names
        from oelm_core.settings import read_settings, settings_file

        if self.report_to is None:
            said = read_settings(home()).report_to
            return target_names(said, f"{settings_file(home())}, report_to") if said else ()
        names = target_names(self.report_to, "--report-to")
        for why in filter(None, map(missing, names)):
            raise Refused(why)
        return names

    def start(
        self, catalogue: Catalogue, command: Sequence[str], started: Callable[[RunFolder], object]
    ) -> list[RunFolder]:
        """Starts everything; `started` hears of each run as it is queued. A study's plan is registered first."""
        requests = self.requests(catalogue, command)
        self.register(catalogue)
        return launchers.start_all(self.launcher, requests, started)

    def register(self, catalogue: Catalogue) -> None:
        """Writes down what a study is going to compare, unless it was before; for presets alone there is no plan."""
        if self.study is None:
            return
        from oelm_core.study.registration import plan_of, register

        study = catalogue.study(self.study)
        register(plan_of(study, self.experiments(catalogue), self.seeds or study.seeds))

    def command(self) -> list[str]:
        """The same thing on the command line."""
        words = ["oelm", "study", self.study] if self.study else ["oelm", "run", *self.presets]
        words += ["--device", self.device] if self.device != "auto" else []
        words += ["--per-run", str(self.per_run)] if self.per_run != 1 else []
        words += ["--nodes", str(self.nodes)] if self.nodes is not None else []
        words += seeds_option(self.seeds).split() if self.seeds else []
        words += [part for text in self.settings for part in ("--set", text)]
        words += ["--after", self.after] if self.after else []
        words += ["--after-any"] if self.after_any else []
        words += ["--launcher", self.launcher] if self.launcher != "local" else []
        words += [part for text in self.slurm for part in ("--slurm", text)]
        words += ["--report-to", ",".join(self.report_to) or "none"] if self.report_to is not None else []
        return words + (["--presets", self.catalogue] if self.catalogue else [])


def queued_state() -> RunState:
    """state.json before a runner has the run."""
    me = process.me()
    return RunState(state="queued", host=me.host, boot_id=me.boot_id, boot_time=me.boot_time, heartbeat=time.time())
