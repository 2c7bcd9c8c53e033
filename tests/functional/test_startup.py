"""The light rooms stay light: what listing commands may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "numpy",
    "scipy",
    "peft",
    "optuna",
    "tensorboard",
    "wandb",
    "trackio",
    "mlflow",
)

LIGHT_MODULES = (
    "oelm_core.config",
    "oelm_core.config.catalogue",
    "oelm_core.doctor",
    "oelm_core.runs.store",
    "oelm_core.launch.local",
    "oelm_core.launch.runner",
    "oelm_core.devices.machine",
    "oelm_core.compare",
    "oelm_core.report",
    "oelm_tui.app",
    "oelm_tui.commands.run",
    "oelm_tui.commands.bench",
    "oelm_core.method.flops",
    "oelm_core.estimate",
    "oelm_core.forecast",
    "oelm_tui.commands.estimate",
    "oelm_core.study.tuning",
    "oelm_tui.commands.tune",
    "oelm_tui.commands.evaluate",
    "oelm_core.launch.later_score",
    "oelm_core.mirror.bridge",
)


def imported_by(code: str, home: Path) -> set[str]:
    """The top-level modules loaded after running `code` in a fresh interpreter."""
    script = f"import sys\n{code}\nprint('loaded:', *sorted({{m.split('.')[0] for m in sys.modules}}))"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=_environment(home), check=True
    )
    return set(ended.stdout.rpartition("loaded:")[2].split())


def _environment(home: Path) -> dict[str, str]:
    import os

    return {**os.environ, "OELM_HOME": str(home)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["runs"],
        ["presets"],
        ["presets", "--json"],
        ["runs", "--json"],
        ["bench", "--help"],
        ["estimate", "GPT-01", "--card", "a5000"],
        ["tune", "--help"],
    ],
)
def test_listing_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = f"sys.argv = ['oelm', *{arguments!r}]\nfrom oelm_tui.cli import main\nmain()"
    assert imported_by(code, tmp_path).isdisjoint(HEAVY)


def test_the_bench_refuses_a_mistyped_subject_before_it_loads_torch(tmp_path: Path) -> None:
    code = (
        "sys.argv = ['oelm', 'bench', 'gtp']\nfrom oelm_tui.cli import main\ntry:\n    main()\nexcept SystemExit: pass"
    )
    assert imported_by(code, tmp_path).isdisjoint(HEAVY)


def test_light_rooms_load_nothing_heavy(tmp_path: Path) -> None:
    """One after another: what is not there at the end, none of them has loaded."""
    together = imported_by(f"import {', '.join(LIGHT_MODULES)}", tmp_path)
    heavy = together.intersection(HEAVY)
    assert not heavy, [module for module in LIGHT_MODULES if heavy & imported_by(f"import {module}", tmp_path)]


def test_the_runner_loads_no_pydantic_either(tmp_path: Path) -> None:
    assert "pydantic" not in imported_by("import oelm_core.launch.runner", tmp_path)


def test_a_runner_that_waits_does_without_what_costs_memory(tmp_path: Path) -> None:
    run = "runpy.run_module('oelm_core.launch.runner', run_name='__main__')"
    loaded = imported_by(f"import runpy\ntry:\n    {run}\nexcept KeyError: pass  # no run folder was named", tmp_path)
    assert "msgspec" in loaded
    assert loaded.isdisjoint({"ctypes", "dataclasses", "difflib", "inspect", "json", "subprocess", "traceback"})


def test_help_loads_no_command(tmp_path: Path) -> None:
    code = "sys.argv = ['oelm', '--help']\nfrom oelm_tui.cli import main\nmain()"
    loaded = imported_by(code, tmp_path)
    assert loaded.isdisjoint({"pydantic", "yaml", "rich", "textual", "psutil"})
