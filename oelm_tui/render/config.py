"""The Config tab: the resolved recipe, with what differs from the preset and from the baseline marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oelm_core.changes import as_text, differences, flattened
from oelm_tui.snapshots.run_view import RunView
from oelm_tui.text import Line, heading, named, named_lines, wrapped

if TYPE_CHECKING:
    from oelm_core.config.catalogue import Catalogue


def config_lines(view: RunView, catalogue: Catalogue | None, baseline: RunView | None, width: int) -> list[Line]:
    run = view.run
    preset: dict[str, Any] = {}
    if catalogue is not None and run.preset in catalogue.experiments:
        from oelm_core.config import as_dict  # late: pydantic only when the catalogue is there anyway

        preset = as_dict(catalogue.experiments[run.preset])
    changed = differences(run.config, preset) if preset else {}
    against = differences(run.config, baseline.run.config) if baseline else {}
    lines: list[Line] = [[(str(run.setting("title") or run.preset), "label")]]
    if about := run.setting("about"):
        lines += wrapped(str(about), width, "faint", indent="")
    lines += [[], heading("Identity"), *named_lines("run", run.id, width)]
    lines += named_lines("folder", str(run.folder.path), width)
    lines += [named("config hash", run.config_hash), named("seed", str(run.seed))]
    if baseline:
        lines += named_lines("baseline", f"{baseline.run.preset} ({baseline.id})", width)
    if changed:
        lines += [[], heading(f"Changed from preset {run.preset}")]
        lines += _compared(changed, "preset", "accent")
    if against:
        lines += [[], heading(f"Different from baseline {baseline.run.preset if baseline else ''}")]
        lines += _compared(against, "baseline", "arm1")
    for section in ("model", "data", "method", "train"):
        values = run.setting(section)
        if not isinstance(values, Mapping):
            continue
        lines += [[], heading(section)]
        for key, value in flattened(values).items():
            full = f"{section}.{key}"
            words = ["changed"] * (full in changed) + ["differs from baseline"] * (full in against)
            mark = ("  " + ", ".join(words), "accent")
            if value is not None or full in changed or full in against:
                lines.append(named(key, as_text(value), mark, 24))
    return lines


def _compared(pairs: Mapping[str, tuple[Any, Any]], other: str, role: str) -> list[Line]:
    return [
        named(key, as_text(here), (f"   {other} {as_text(there)}", "faint"), 30, role)
        for key, (here, there) in pairs.items()
    ]
