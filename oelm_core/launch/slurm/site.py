"""The site file `$OELM_HOME/slurm.yaml`: what this cluster wants to hear, overridable per preset and per command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from oelm_core.config.plain_yaml import read_yaml
from oelm_core.config.slurm import Site
from oelm_core.config.validation import first_problem
from oelm_core.errors import BadInput
from oelm_core.launch.slurm.discovery import discover as discover
from oelm_core.runs.folder import home


def site_file() -> Path:
    return home() / "slurm.yaml"


def load_site(preset: Mapping[str, Any] | None = None, overrides: Iterable[str] = ()) -> Site:
    """slurm.yaml, then the preset's `slurm:`, then `--slurm key=value`; the later wins. No file means defaults."""
    path = site_file()
    written = _read(path)
    build_site(written, str(path))
    with_preset = build_site({**written, **(preset or {})}, "the preset's slurm:")
    changes = parse_overrides(overrides)
    return build_site({**with_preset.model_dump(), **changes}, "--slurm") if changes else with_preset


def build_site(raw: Mapping[str, Any], where: str) -> Site:
    try:
        return Site.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{where}: {first_problem(error, Site)}") from None


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`["time=2:00:00"]` -> `{"time": "2:00:00"}`. One line given for `setup` or `extra` stands for a list of one."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise BadInput(f"--slurm {text}: write it as key=value, for example --slurm partition=gpu.")
        if key in ("setup", "extra") and not raw.lstrip().startswith("["):
            found[key] = [raw]
            continue
        try:
            found[key] = read_yaml(raw)
        except yaml.YAMLError:
            found[key] = raw
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):  # a home that is a file is told elsewhere
        return {}
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not UTF-8 text.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise BadInput(f"{path}:{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadInput(f"{path}: expected keys such as partition and time, found {type(content).__name__}.")
    return content
