"""$OELM_HOME/settings.yaml: what the user has said once for all runs, `notify:` and `report_to:`."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from oelm_core.errors import BadInput


class UserSettings(Struct, frozen=True):
    notify: str | None = None
    """The command to run when a run has ended."""
    report_to: tuple[str, ...] = ()
    """Where the curves of every run go: names of `oelm_core.mirror.targets`."""


def settings_file(home: Path) -> Path:
    return home / "settings.yaml"


def read_settings(home: Path) -> UserSettings:
    """What the file says, or nothing where there is none. BadInput for a file that cannot be read."""
    file = settings_file(home)
    if not file.exists():
        return UserSettings()
    from oelm_core.config.plain_yaml import read_yaml, read_yaml_file  # late: most runners end without

    found = read_yaml_file(file, read_yaml)
    if found is None:
        return UserSettings()
    if not isinstance(found, dict) or set(found) - set(UserSettings.__struct_fields__):
        raise BadInput(f"{file}: the keys it may have are {' and '.join(UserSettings.__struct_fields__)}.")
    notify, places = found.get("notify"), found.get("report_to")
    if not isinstance(notify, str | None):
        raise BadInput(f"{file}: notify should be a command, in one line.")
    places = [places] if isinstance(places, str) else places or []
    if not isinstance(places, list) or not all(isinstance(one, str) for one in places):
        raise BadInput(f"{file}: report_to should be a list, such as [tensorboard].")
    return UserSettings(notify or None, tuple(places))
