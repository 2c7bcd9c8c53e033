"""Prints this machine's cards as JSON: the runner asks this way, so that NVML can neither hang nor fatten it."""

from __future__ import annotations

import os
import sys

import msgspec
from msgspec.structs import replace

from oelm_core.devices.card import Card


def main() -> int:
    from oelm_core.devices.nvml import NoDriver, read_cards

    try:
        cards = [
            replace(card, processes=tuple(replace(one, user=_owner(one.pid)) for one in card.processes))
            for card in read_cards()
        ]
    except NoDriver as error:  # a broken driver stands in the list as a card that does not answer
        cards = [Card(0, error=str(error).rstrip("."))] if error.broken else []
    print(msgspec.json.encode(cards).decode())
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
