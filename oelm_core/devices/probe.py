"""Prints this machine's cards as JSON: the runner asks this way, so that NVML can neither hang nor fatten it."""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    from oelm_core.devices.nvml import NoDriver, read_cards

    try:
        cards = read_cards()
    except NoDriver as error:  # a broken driver stands in the list as a card that does not answer
        print(json.dumps([{"index": 0, "uuid": None, "error": str(error).rstrip(".")}] if error.broken else []))
        return 0
    content = []
    for card in cards:
        processes = [{"pid": one.pid, "user": _owner(one.pid), "memory": one.memory} for one in card.processes]
        content.append({**card.__dict__, "processes": processes})
    print(json.dumps(content))
    return 0


def _owner(pid: int) -> str | None:
    """The user's name, or None where the kernel hides it."""
    import pwd

    try:
        return pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
    except (OSError, KeyError):
        return None


if __name__ == "__main__":
    sys.exit(main())
